"""Expectations that hold under `python -O` as well, where assert statements are left out."""

from __future__ import annotations


def expect(holds: object, complaint: str) -> None:
    """Raise an AssertionError with the complaint unless it holds."""
    if not holds:
        raise AssertionError(complaint)
