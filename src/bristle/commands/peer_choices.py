"""Words that `bristle peer` lets one choose from; apart, so that help is quick."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """How the log is written."""

    TEXT = "text"
    JSON = "json"


class HeadEncoding(StrEnum):
    """How the numbers of a head are sent."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"
