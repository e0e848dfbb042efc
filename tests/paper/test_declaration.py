"""Tasks as text: the same declaration is always the same text, and says what a simulation is told."""

from __future__ import annotations

import json

import pytest

from bristle.paper import Contender, RunTask, Setting, Size
from bristle.rules import Krum, NearestNeighbourMixing, chain
from bristle.simulation import RandomNeighbours
from bristle.simulation.build import scenario_of
from bristle.simulation.config import read


def task(contender: Contender, setting: Setting, *, seed: int = 0, size: Size | None = None) -> RunTask:
    config = {**setting.tables(seed=seed, size=size or Size()), **contender.tables()}
    return RunTask(kind="world", config=config)


def test_a_task_survives_being_text() -> None:
    made = task(Contender(label="x", rule="krum", options={"f": 4}), Setting(attackers=5, attack="alie"))
    assert RunTask.read(made.text) == made
    assert RunTask.read(made.text).text == made.text
    assert json.loads(made.text)["kind"] == "world"


def test_a_label_is_no_part_of_what_is_run() -> None:
    setting = Setting(attackers=5, attack="label-flip")
    one, other = (task(Contender(label=label, rule="trimmed-mean", options={"f": 4}), setting) for label in "ab")
    assert one.text == other.text
    assert one.text != task(Contender(label="a", rule="trimmed-mean", options={"f": 3}), setting).text
    assert one.text != task(Contender(label="a", rule="trimmed-mean", options={"f": 4}), setting, seed=1).text


def test_the_engine_gets_what_was_declared() -> None:
    contender = Contender(
        label="x", rule="krum", options={"f": 3}, before=({"name": "nearest-neighbour-mixing", "f": 2},)
    )
    setting = Setting(peers=20, attackers=2, attack="krum", classes_per_peer=3, samples_per_class=5, hears=4)
    found = scenario_of(read(task(contender, setting, seed=7, size=Size(iterations=40)).config))
    assert (found.peers, found.attackers, found.seed, found.iterations) == (20, 2, 7, 40)
    assert (found.classes_per_peer, found.samples_per_class) == (3, 5)
    assert found.topology == RandomNeighbours(k=4)
    assert found.rule == chain(NearestNeighbourMixing(f=2), Krum(f=3))


@pytest.mark.parametrize("hears", [None, 5])
def test_alone_drops_attackers_and_keeps_the_peers(hears: int | None) -> None:
    setting = Setting(peers=9, attackers=3, attack="krum", classes_per_peer=2, samples_per_class=7, hears=hears)
    alone = setting.alone()
    assert (alone.attackers, alone.attack) == (0, "none")
    assert (alone.peers, alone.classes_per_peer, alone.samples_per_class) == (9, 2, 7)
    assert (alone.hears is None) == (hears is None)


def test_larger_worlds_cost_more() -> None:
    local = Contender(label="local", rule="local")
    worlds = (Setting(), Setting(attackers=100), Setting(peers=100, hears=5))
    small, crowded, large = (task(local, world).cost for world in worlds)
    assert small < crowded
    assert small < large
