"""Means, bands and levels, from rows."""

from __future__ import annotations

from typing import Any

import pytest

from bristle.paper import MeasuredRows


def row(seed: int, iteration: int, mean: float, worst: float, rule: str = "bristle") -> dict[str, Any]:
    return {
        "figure": "f", "panel": "p", "rule": rule, "seed": seed, "iteration": iteration, "accuracy_mean": mean,
        "accuracy_min": worst,
    }  # fmt: skip


ROWS = (
    row(0, 10, 0.5, 0.4),
    row(0, 20, 0.9, 0.8),
    row(1, 20, 0.8, 0.6),
    row(1, 10, 0.7, 0.6),
    row(0, 20, 0.1, 0, "krum"),
)


def test_a_line_is_the_mean_over_seeds_with_a_band() -> None:
    first, last = MeasuredRows(ROWS, 20).curve("f", "p", "bristle")
    assert (first.iteration, first.low, first.high) == (10, 0.5, 0.7)
    assert first.mean == pytest.approx(0.6)
    assert last.worst == pytest.approx(0.7)


def test_final_is_that_of_the_last_iteration_alone() -> None:
    assert MeasuredRows(ROWS, 20).final("f", "p") == pytest.approx(0.85)
    assert MeasuredRows(ROWS, 20).worst("f", "p") == pytest.approx(0.7)
    assert MeasuredRows(ROWS, 300).final("f", "p") is None
    assert MeasuredRows(ROWS, 20).final("f", "elsewhere") is None


def test_reach_is_the_first_evaluation_at_or_above() -> None:
    measured = MeasuredRows(ROWS, 20)
    assert measured.reach("f", "p", "bristle", 0.55) == 10
    assert measured.reach("f", "p", "bristle", 0.65) == 20
    assert measured.reach("f", "p", "bristle", 0.95) is None


def test_a_mean_over_panels_needs_all_of_them() -> None:
    measured = MeasuredRows(ROWS, 20)
    assert measured.mean("f", ["p"], "krum") == pytest.approx(0.1)
    assert measured.mean("f", ["p", "q"], "krum") is None
    assert measured.rules("f", "p") == ["bristle", "krum"]
