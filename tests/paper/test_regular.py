"""Whole networks from scratch: honest peers that train and aggregate all their parameters."""

from __future__ import annotations

import json

import pytest

from bristle.data import mnist
from bristle.paper import Entry, RunTask, entries
from bristle.paper.measured import WHOLE, bytes_per_iteration
from bristle.paper.reproduce import wanted_of
from bristle.paper.work import work
from bristle.simulation import FeatureData

pytest.importorskip("torch")


def lines() -> list[Entry]:
    return [line for line in entries(wanted_of(["regular-vs-transfer"], full=True, seeds=1)) if line.panel.regular]  # type: ignore[union-attr]


def short(task: RunTask, data: FeatureData, iterations: int) -> list[dict[str, float]]:
    config = {**task.config, "data": {"test_samples": 300}}
    config["world"] = {**config["world"], "iterations": iterations, "evaluate_every": iterations // 2}
    ticks: list[int] = []
    rows: list[dict[str, float]] = json.loads(work(RunTask(kind="regular", config=config).text, data, ticks.append))
    assert ticks == [row["iteration"] for row in rows] == [iterations // 2, iterations]
    return rows


@pytest.fixture(scope="module")
def data() -> FeatureData:
    digits = mnist()
    return FeatureData(digits.x_train, digits.y_train, digits.x_test, digits.y_test, digits.classes)


def test_averaging_peers_learn_together(data: FeatureData) -> None:
    fedavg = next(line.task for line in lines() if line.label == "fedavg")
    rows = short(fedavg, data, 40)
    assert rows[-1]["accuracy_mean"] > 0.25  # ten classes: a guess is right one time in ten
    assert rows[-1]["bytes_sent"] == 40 * bytes_per_iteration(WHOLE, 9)
    assert short(fedavg, data, 40) == rows


@pytest.mark.parametrize("label", ["median", "krum", "bridge"])
def test_other_rules_take_whole_networks(data: FeatureData, label: str) -> None:
    rows = short(next(line.task for line in lines() if line.label == label), data, 4)
    assert all(0 <= row["accuracy_min"] <= row["accuracy_mean"] <= 1 for row in rows)
