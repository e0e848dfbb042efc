"""Claims are judged by rows: made-up rows that bear them out, and rows that do not."""

from __future__ import annotations

from typing import Any

import pytest

from bristle.paper import MeasuredRows, Wanted, figures
from bristle.paper.claims import BARS, CLAIMS, TARGETS, observations

Row = dict[str, Any]


def world(figure: str, panel: str, rule: str, accuracy: float, *, iteration: int = 300, worst: float = 1.0) -> Row:
    return {
        "figure": figure, "panel": panel, "rule": rule, "seed": 0, "iteration": iteration, "accuracy_mean": accuracy,
        "accuracy_min": accuracy * worst,
    }  # fmt: skip


def held(claim: str, rows: list[Row]) -> bool | None:
    check = next(check for check in CLAIMS if check.claim.startswith(claim))
    return check(MeasuredRows(tuple(rows))).held


def test_nothing_is_held_by_nothing() -> None:
    for check in (*CLAIMS, *BARS):
        if check.figure != "traffic":  # That is a calculation.
            found = check(MeasuredRows(()))
            assert (found.held, found.measured) == (None, "not measured in this run"), check.claim


def test_every_check_is_about_a_panel_that_exists() -> None:
    """Rows of every panel at a level of their own: each check then finds what it asks for."""
    everything = Wanted(figures=figures(), full=True)
    rows = [
        world(figure.name, panel.name, rule, 0.5, iteration=iteration)
        for figure in figures()
        for panel in everything.panels(figure)
        for rule in ("bristle", "evidence", "fedavg", "median", "krum", "bridge", "mozi")
        for iteration in (10, 300)
        if not (panel.regular and rule in ("bristle", "evidence", "mozi"))
    ]
    rows += [
        {"figure": "speed", "panel": "", "rule": rule, "connected": count, "milliseconds": 1.0}
        for rule in ("bristle", "fedavg", "median", "krum", "bridge", "mozi")
        for count in (8, 32, 96)
    ]
    models = ("malicious", *(f"{count} classes shared" for count in range(4)))
    rows += [{"figure": "distances", "model": model, "attack": "trimmed-mean", "distance": 1.0} for model in models]
    for row in rows:
        if row.get("panel") == "transfer":
            row["accuracy_mean"] = 0.95
    for check in (*CLAIMS, *BARS):
        assert check(MeasuredRows(tuple(rows))).held is not None, check.claim


@pytest.mark.parametrize(("accuracy", "expected"), [(0.951, True), (0.949, False)])
def test_95_percent_under_half_attackers(accuracy: float, expected: bool) -> None:
    attacks = ("label-flip", "additive-noise", "krum", "trimmed-mean")
    rows = [world("byzantine-iid", f"{attack} 5+5", "bristle", 0.99) for attack in attacks[:3]]
    rows.append(world("byzantine-iid", "trimmed-mean 5+5", "bristle", accuracy))
    assert held("Bristle converges to 95 %", rows) is expected
    assert held("Bristle converges to 95 %", rows[:3]) is None


@pytest.mark.parametrize(("when", "expected"), [(60, True), (70, False)])
def test_90_percent_in_55_iterations(when: int, expected: bool) -> None:
    points = [(10, 0.5), (when, 0.91), (300, 0.92)]
    rows = [world("non-iid", "4 classes", "bristle", value, iteration=at) for at, value in points]
    assert held("Bristle reaches 90 %", rows) is expected


@pytest.mark.parametrize(("late", "expected"), [(180, True), (100, False)])
def test_83_percent_fewer_iterations(late: int, expected: bool) -> None:
    rows = [
        world("regular-vs-transfer", panel, "fedavg", value, iteration=at)
        for panel, at, value in (("transfer", 30, 0.9), ("regular", 10, 0.2), ("regular", late, 0.9))
    ]
    assert held("83 % fewer", rows) is expected
    assert held("83 % fewer", rows[:1]) is None


@pytest.mark.parametrize(("mozi", "expected"), [(0.38, True), (0.6, False)])
def test_2_3_times_the_accuracy(mozi: float, expected: bool) -> None:
    rows = [
        world("byzantine-non-iid", attack, rule, value)
        for attack in ("label-flip", "additive-noise", "krum", "trimmed-mean")
        for rule, value in (("bristle", 0.94), ("mozi", mozi), ("krum", 0.3), ("median", 0.3), ("bridge", 0.3))
    ]
    assert held("2.3 times", rows) is expected


@pytest.mark.parametrize(("far", "expected"), [(2.9, True), (3.1, False)])
def test_flat_beyond_beta(far: float, expected: bool) -> None:
    rows = [
        {"figure": "speed", "rule": "bristle", "connected": at, "milliseconds": ms} for at, ms in ((32, 2), (96, far))
    ]
    assert held("More than beta", rows) is expected


def test_90_percent_fewer_bytes_does_not_hold_for_this_network() -> None:
    assert held("90 % fewer bytes", []) is False


@pytest.mark.parametrize(("mean", "worst", "expected"), [(0.93, 0.99, True), (0.91, 1.0, False), (0.93, 0.9, False)])
def test_targets_look_at_mean_and_worst_peer(mean: float, worst: float, expected: bool) -> None:
    target = next(t for t in TARGETS if (t.figure, t.panel) == ("byzantine-non-iid", "krum"))
    found = target.check()(MeasuredRows((world("byzantine-non-iid", "krum", "bristle", mean, worst=worst),)))
    assert found.held is expected
    assert found.source == "target"


def test_a_better_baseline_is_said() -> None:
    rows = [world("intro", "10+7", rule, value) for rule, value in (("bristle", 0.9), ("krum", 0.95), ("oracle", 0.99))]
    (found,) = observations(MeasuredRows(tuple(rows)), [("intro", "10+7")])
    assert "krum ends above Bristle" in found.claim
    assert "5.0 points" in found.measured
