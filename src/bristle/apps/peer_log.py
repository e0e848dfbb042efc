"""The log of a running peer: for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from bristle.apps.peer_choices import LogFormat


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, and what there is to say about it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **_details(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Words(logging.Formatter):
    """For people: the time, the event, and what there is to say about it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event, details = record.getMessage(), dict(_details(record))
        if event in details:
            event = f"{event} {details.pop(event)}"
        told = "  ".join(f"{name} {_short(value)}" for name, value in details.items())
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        line = f"{datetime.fromtimestamp(record.created):%H:%M:%S}  {level}{event}  {told}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr(form: LogFormat) -> None:
    """Send what peers and their network log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else Words())
    logger = logging.getLogger("bristle")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _details(record: logging.LogRecord) -> dict[str, Any]:
    details: dict[str, Any] = record.__dict__.get("details", {})
    return details


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return f"{text[:16]}" if len(text) == 40 and text.isalnum() else text  # a key id
