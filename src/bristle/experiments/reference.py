"""The author's own curves, for comparison; `assets/README.md` says where they come from and how far to trust them."""

from __future__ import annotations

import csv
import lzma
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from bristle.experiments.declaration import Panel

CAVEAT = (
    "The author's curves are single runs tested on 100 images: read them as give or take 3 points. "
    "His Krum averages the chosen head with the own one."
)


@dataclass(frozen=True)
class Curve:
    """Accuracy over iterations."""

    iterations: tuple[int, ...]
    accuracy: tuple[float, ...]


def author_curve(panel: Panel, rule: str) -> Curve | None:
    """Return the author's curve of a rule in a panel's experiment; None if he kept none."""
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
    packed = files("bristle.experiments").joinpath("assets", name).read_bytes()
    return list(csv.DictReader(lzma.decompress(packed).decode("utf-8").splitlines()))
