"""A table of every user's accuracy on its own test samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from bristle.report.content import Table
from bristle.report.words import one_line

COLUMN = "accuracy_per_user"
LONGEST = 40
"""Largest number of characters of a user's name to show."""


def check_users(row: Mapping[str, Any]) -> None:
    """Raise ValueError unless the accuracies of users, if a row has any, are numbers (or nothing) by name."""
    found = row.get(COLUMN)
    if found is None:
        return
    values = found.values() if isinstance(found, dict) else (None, "")
    numbers = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in numbers):
        raise ValueError(f"{COLUMN} must be an object of numbers by user, and is {str(found)[:LONGEST]}")


def user_tables(ends: Iterable[tuple[str, str, Sequence[Mapping[str, Any]]]]) -> tuple[Table, ...]:
    """Return a table of rules and settings, from the last row of every seed; none if rows have no users."""
    rows = []
    for rule, setting, last in ends:
        known: dict[str, list[float]] = {}
        for row in last:
            for user, value in (row.get(COLUMN) or {}).items():
                if value is not None:
                    known.setdefault(user, []).append(value)
        if known:
            means = {user: fmean(values) for user, values in known.items()}
            worst = min(means, key=means.__getitem__)
            shown = one_line(worst, longest=LONGEST)
            rows.append((rule, setting, len(means), fmean(means.values()), means[worst], shown))
    if not rows:
        return ()
    caption = "Every user's head on that user's test samples, which are never trained on. Means over seeds."
    columns = ("Rule", "Setting", "Users", "Mean of the users", "Worst user", "Who")
    return (Table(title="Every user on its own samples", columns=columns, rows=tuple(rows), caption=caption),)
