"""What rows say about a line of a figure: means over seeds, bands, and when a level was reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Point:
    """An iteration of a line: mean, lowest and highest over seeds, and the worst peer's accuracy, on average."""

    iteration: int
    mean: float
    low: float
    high: float
    worst: float


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows of worlds, asked by figure, panel and rule.

    `last` is the iteration that results are read at; a line that did not get there has no result.
    """

    rows: tuple[Row, ...]
    last: int = 300

    @cached_property
    def _lines(self) -> dict[Key, dict[int, list[Row]]]:
        lines: dict[Key, dict[int, list[Row]]] = {}
        for row in self.rows:
            if "accuracy_mean" in row:
                key = (row["figure"], row["panel"], row["rule"])
                lines.setdefault(key, {}).setdefault(row["iteration"], []).append(row)
        return lines

    def rules(self, figure: str, panel: str) -> list[str]:
        """Return which rules were measured in a panel."""
        return [rule for name, where, rule in self._lines if (name, where) == (figure, panel)]

    def curve(self, figure: str, panel: str, rule: str) -> list[Point]:
        """Return a line over iterations."""
        found = self._lines.get((figure, panel, rule), {})
        return [_point(iteration, rows) for iteration, rows in sorted(found.items())]

    def final(self, figure: str, panel: str, rule: str = "bristle") -> float | None:
        """Return the mean over seeds at the last iteration."""
        point = self._last(figure, panel, rule)
        return None if point is None else point.mean

    def worst(self, figure: str, panel: str, rule: str = "bristle") -> float | None:
        """Return the worst peer's accuracy at the last iteration, on average over seeds."""
        point = self._last(figure, panel, rule)
        return None if point is None else point.worst

    def reach(self, figure: str, panel: str, rule: str, level: float) -> int | None:
        """Return the first evaluated iteration at which the mean reaches `level`."""
        points = self.curve(figure, panel, rule)
        return next((point.iteration for point in points if point.mean >= level), None)

    def mean(self, figure: str, panels: Iterable[str], rule: str) -> float | None:
        """Return the mean over panels at the last iteration; None unless all of them were measured."""
        values = [self.final(figure, panel, rule) for panel in panels]
        known = [value for value in values if value is not None]
        return fmean(known) if known and len(known) == len(values) else None

    def milliseconds(self, rule: str) -> dict[int, float]:
        """Return the time of an iteration by how many peers one is connected to."""
        return {
            row["connected"]: row["milliseconds"] for row in self.rows if "connected" in row and row["rule"] == rule
        }

    def distance(self, model: str, attack: str | None = None) -> float | None:
        """Return the mean distance to models of a kind, under one attack or under all."""
        values = [
            row["distance"]
            for row in self.rows
            if row.get("model") == model and (attack is None or row["attack"] == attack)
        ]
        return fmean(values) if values else None

    def _last(self, figure: str, panel: str, rule: str) -> Point | None:
        rows = self._lines.get((figure, panel, rule), {}).get(self.last)
        return _point(self.last, rows) if rows else None


def _point(iteration: int, rows: list[Row]) -> Point:
    values = [row["accuracy_mean"] for row in rows]
    return Point(iteration, fmean(values), min(values), max(values), fmean(row["accuracy_min"] for row in rows))
