"""The accuracy of every user on its own samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bristle import simulate
from bristle.backbones import NoBackbone
from bristle.data import Dataset, partitions
from bristle.report import report_of
from bristle.simulation import Scenario, World, prepare
from bristle.simulation.results import accuracy_per_user

CONFIG: dict[str, Any] = {
    "world": {"iterations": 40, "peers": 3},
    "data": {"backbone": "none"},
    "partition": {"name": "natural", "held_out": 5},
    "rule": {"name": "local"},
    "training": {"learning_rate": 0.05},
}


def diary() -> Dataset:
    """Two classes that `eve` names the other way round."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    user = np.array(["ann", "bob", "eve"])[np.arange(300) // 100]
    x = rng.normal(size=(300, 4)) + 3.0 * (2 * (y ^ (user == "eve")) - 1)[:, None]
    return Dataset.from_arrays(x, y, user=user, name="diary")


def test_every_user_is_measured_on_its_own_test_samples() -> None:
    results = simulate(CONFIG, data=diary())
    users = results.last()["accuracy_per_user"]
    assert list(users) == ["ann", "bob", "eve"]
    # Each alone has learned its own names, with which the others' samples are wrong.
    assert min(users.values()) > 0.95
    assert results.last()["accuracy_mean"] < 0.75


def test_a_row_counts_hits_of_a_users_head_on_that_users_samples() -> None:
    data = diary()
    scenario = Scenario(peers=3, partition=partitions.create("natural", held_out=5))
    world = World(scenario, prepare(data, NoBackbone(4)))
    world.state.trained.head[:] = np.random.default_rng(1).normal(size=(3, 2, 4))
    found = accuracy_per_user(world)
    assert found is not None
    assert data.test_user is not None
    for head, (user, share) in zip(world.heads, found.items(), strict=True):
        own = data.test_user == user
        assert share == pytest.approx(np.mean((data.x_test[own] @ head.T).argmax(axis=1) == data.y_test[own]))


def test_users_without_test_samples_have_no_accuracy() -> None:
    data = diary()
    assert data.test_user is not None
    elsewhere = replace(data, test_user=np.where(data.test_user == "bob", "joe", data.test_user))
    users = simulate(CONFIG, overrides=["world.iterations=1"], data=elsewhere).last()["accuracy_per_user"]
    assert users["bob"] is None
    assert users["ann"] is not None


@pytest.mark.parametrize(
    "partition",
    [
        {"name": "iid", "held_out": 5, "samples": 5},
        {"name": "indices", "lists": [[0, 1], [2, 3], [100, 101]], "held_out": 0},
    ],
)
def test_where_peers_are_not_users_there_is_nothing_to_say(partition: dict[str, Any]) -> None:
    row = simulate(CONFIG | {"partition": partition}, overrides=["world.iterations=1"], data=diary()).last()
    assert "accuracy_per_user" not in row


def test_without_users_of_the_test_samples_there_is_nothing_to_say() -> None:
    unknown = replace(diary(), test_user=None)
    assert "accuracy_per_user" not in simulate(CONFIG, overrides=["world.iterations=1"], data=unknown).last()


def test_the_report_names_the_worst_user() -> None:
    rows = simulate(CONFIG, data=diary()).rows
    rows[-1]["accuracy_per_user"] = {"ann": 0.9, "bob": 0.4, "eve": None}
    tables = {table.title: table for table in report_of(rows).sections[0].tables}
    (row,) = tables["Every user on its own samples"].rows
    assert list(row[2:]) == [2, pytest.approx(0.65), 0.4, "bob"]
    for wrong in ([0.5], {"ann": "much"}, {"ann": float("nan")}):
        rows[-1]["accuracy_per_user"] = wrong
        with pytest.raises(ValueError, match="accuracy_per_user must be an object of numbers by user"):
            report_of(rows)


def test_a_report_of_runs_without_users_has_no_such_table() -> None:
    row = {"rule": "krum", "iteration": 1, "accuracy_mean": 0.5}
    assert [table.title for table in report_of([row]).sections[0].tables] == ["The last row of every rule"]
