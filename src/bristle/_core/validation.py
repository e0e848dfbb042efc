"""Check the parameters that rules and attacks are made with."""

from __future__ import annotations

from numbers import Integral, Real


def check_count(name: str, value: object, *, least: int = 0) -> None:
    """Raise a ValueError unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_share(name: str, value: float) -> None:
    """Raise a ValueError unless the value is a number between 0 and 1."""
    if not (isinstance(value, Real) and 0 <= value <= 1):
        raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def check_positive(name: str, value: float, *, least: float = 0, most: float = 1e15) -> None:
    """Raise a ValueError unless the value is a number above 0 with which 32 bits can be computed."""
    if not (isinstance(value, Real) and value > 0 and least <= value <= most):
        raise ValueError(f"{name} must be a number above {least:g} and up to {most:g}, not {value!r}")
