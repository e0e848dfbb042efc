"""Lines of figures from rows: means over seeds, bands, traffic, and the author's curves."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from bristle.paper.declaration import WorldPanel
from bristle.wire.sizes import head_bytes

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
class MeasuredRows:
    """Rows of worlds by figure, panel and rule.

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


HEAD = (10, 800)
WHOLE = (1, 20_750)  # the parameters of `regular.ConvolutionalNetwork`, which needs torch
NEIGHBOURS = (1, 2, 4, 8, 14, 32, 64, 96)


def bytes_per_iteration(shape: tuple[int, int], neighbours: int) -> int:
    """Return the bytes that a peer sends in an iteration: a model of `shape` to each neighbour."""
    return neighbours * head_bytes(*shape)


CAVEAT = (
    "The author's curves are single runs tested on 100 images: read them as give or take 3 points. "
    "His Krum averages the chosen head with the own one."
)


@dataclass(frozen=True)
class Curve:
    """Accuracy over iterations."""

    iterations: tuple[int, ...]
    accuracy: tuple[float, ...]


def author_curve(panel: WorldPanel, rule: str) -> Curve | None:
    """Return the author's curve of a rule in a panel's experiment; None if there is none."""
    return None if panel.author is None else _curves().get((*panel.author, rule))


@lru_cache(maxsize=1)
def author_timing() -> dict[str, tuple[tuple[int, float], ...]]:
    """Return the author's milliseconds per peer and iteration: for each rule pairs (peers, milliseconds)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in _rows("author_timing.csv.xz"):
        found.setdefault(row["gar"], []).append((int(row["n_nodes"]), float(row["ms_per_node_iteration"])))
    return {rule: tuple(sorted(pairs)) for rule, pairs in found.items()}


@lru_cache(maxsize=1)
def _curves() -> dict[tuple[str, str, str], Curve]:
    points: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for row in _rows("author_curves.csv.xz"):
        key = (row["figure"], row["experiment"], row["gar"])
        points.setdefault(key, []).append((int(row["iteration"]), float(row["mean_accuracy"])))
    curves = {}
    for key, pairs in points.items():
        iterations, accuracy = zip(*sorted(pairs), strict=True)
        curves[key] = Curve(iterations, accuracy)
    return curves


def _rows(name: str) -> list[dict[str, str]]:
    packed = files("bristle.paper").joinpath("assets", name).read_bytes()
    return list(csv.DictReader(lzma.decompress(packed).decode("utf-8").splitlines()))
