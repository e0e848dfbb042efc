"""Checks of the parameters that rules are made with."""

from __future__ import annotations

import math


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Insist on a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_share(name: str, value: float) -> None:
    """Insist on a number between 0 and 1."""
    if not (isinstance(value, int | float) and 0 <= value <= 1):
        raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def check_positive(name: str, value: float) -> None:
    """Insist on a finite number above 0."""
    if not (isinstance(value, int | float) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a finite number above 0, not {value!r}")
