"""Assertions and array libraries that the conformance suites share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def expect(holds: object, complaint: str) -> None:
    """Raise an AssertionError with the complaint unless it holds."""
    if not holds:
        raise AssertionError(complaint)


def expect_refused(mistakes: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Raise an AssertionError unless every call, after its description, raises a ValueError."""
    for what, call in mistakes:
        try:
            call()
        except ValueError:
            continue
        raise AssertionError(f"{what}: a caller's mistake that gets no ValueError")


def other_libraries() -> Iterator[Any]:
    """Yield the array libraries besides NumPy that are installed."""
    for name in ("torch", "array_api_strict"):
        try:
            yield importlib.import_module(name)
        except ImportError:
            continue
