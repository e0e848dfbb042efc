"""A configuration, and any value in it, as TOML: such as `bristle simulate` reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, time
from typing import Any

from bristle.apps.simulate_config import SimulationConfig


def toml_of(config: SimulationConfig, *, about: str = "") -> str:
    """Return what the configuration says beyond the defaults, with `about` as a comment at the top."""
    lines = [f"# {line}".rstrip() for line in about.splitlines()]
    for section, content in config.model_dump(exclude_unset=True).items():
        lines += ["", f"[{section}]"]
        lines += [f"{_key(key)} = {value_of(value)}" for key, value in content.items() if value is not None]
    return "\n".join(lines).lstrip("\n") + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def value_of(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {value_of(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_of(entry) for entry in value)}]"
    return value.isoformat() if isinstance(value, date | time) else repr(value)


def _text(text: str) -> str:
    # JSON's strings are TOML's, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
