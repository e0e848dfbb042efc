"""What conformance suites share: how they complain, and the libraries that they try."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any


def expect(holds: object, complaint: str) -> None:
    """Raise an AssertionError with the complaint unless it holds."""
    if not holds:
        raise AssertionError(complaint)


def other_libraries() -> Iterator[Any]:
    """Yield the array libraries besides NumPy that are installed."""
    for name in ("torch", "array_api_strict"):
        try:
            yield importlib.import_module(name)
        except ImportError:
            continue
