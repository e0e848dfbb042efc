"""Names and parameters that rules and attacks are made with, checked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Insist on a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_share(name: str, value: float) -> None:
    """Insist on a number between 0 and 1."""
    if not (isinstance(value, Real) and 0 <= value <= 1):
        raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def check_positive(name: str, value: float, *, least: float = 0, most: float = 1e15) -> None:
    """Insist on a number above 0 with which 32 bits can be computed."""
    if not (isinstance(value, Real) and value > 0 and least <= value <= most):
        raise ValueError(f"{name} must be a number above {least:g} and up to {most:g}, not {value!r}")


def make(kind: str, known: Mapping[str, type[Any]], name: str, options: Mapping[str, object]) -> Any:
    """Make one of the `known` dataclasses by name; an unknown name or option gets the nearest known ones."""
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
        raise ValueError(f"there is no {kind} {name!r}; {hint}")
    accepted = [field.name for field in fields(known[name])]
    for option in options:
        if option not in accepted:
            takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise ValueError(f"{kind} {name!r} has no option {option!r}; {takes}")
    return known[name](**options)
