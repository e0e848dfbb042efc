"""A word where a setting has no effect, or another one than it seems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import rules, simulate
from bristle.data import Dataset
from bristle.simulation import Watch
from bristle.simulation.config import read, settings_of

PLAIN: dict[str, Any] = {
    "world": {"peers": 6, "iterations": 1},
    "data": {"backbone": "none"},
    "partition": {"classes_per_peer": 2},
    "rule": {"name": "fedavg"},
}


def table(users: int = 12) -> Dataset:
    rng = np.random.default_rng(0)
    y = np.arange(960) % 4
    user = np.arange(960) // 4 % users
    return Dataset.from_arrays(rng.normal(size=(960, 5)) + y[:, None], y, user=user)


def notes_of(**tables: dict[str, Any]) -> list[str]:
    notes: list[str] = []
    simulate(PLAIN | tables, data=table(), watch=Watch(note=notes.append))
    return notes


def test_nothing_is_said_where_all_is_as_it_seems() -> None:
    assert notes_of() == []
    assert notes_of(rule={"name": "krum", "f": 2}) == []
    assert notes_of(partition={"name": "dirichlet", "samples": 3}) == []
    assert notes_of(attack={"name": "none"}) == []


def test_an_attack_without_attackers() -> None:
    assert notes_of(attack={"name": "label-flip"}) == [
        "the attack 'label-flip' has no effect, since there are 0 attackers: set world.attackers"
    ]


@pytest.mark.parametrize(
    ("rule", "heads"),
    [({"name": "krum", "f": 4}, 6), ({"name": "trimmed-mean", "f": 3}, 6), ({"name": "bulyan", "f": 2}, 6)],
)
def test_more_attackers_than_the_rule_can_expect(rule: dict[str, Any], heads: int) -> None:
    (note,) = notes_of(rule=rule)
    assert f"{rule['name']} with f = {rule['f']} needs more than the {heads} heads" in note
    assert "set a smaller rule.f" in note


def test_heads_are_counted_where_they_are_heard() -> None:
    krum, ring = {"name": "krum", "f": 2}, {"name": "ring"}
    (note,) = notes_of(rule=krum, topology=ring)
    assert "needs more than the 3 heads" in note
    more = {"peers": 6, "attackers": 3, "iterations": 1}
    assert notes_of(rule=krum, topology=ring, world=more, attack={"name": "sign-flip"}) == []
    (note,) = notes_of(rule={**krum, "before": ["bucketing"]})
    assert note.startswith("bucketing+krum with f = 2 needs more")


def test_defaults_that_are_another_partitions() -> None:
    (note,) = notes_of(partition={"name": "dirichlet"})
    samples = len(table().y_train)
    assert note == (
        f"the partition 'dirichlet' uses all {samples} training samples; the default of 2 per class and peer "
        "applies to 'consecutive' only: set partition.samples"
    )
    (note,) = notes_of(partition={"name": "natural"}, world={"iterations": 1})
    assert note == ("the data have 12 users, but the default is 10 peers, drawn from them: set world.peers, e.g. to 12")
    assert notes_of(partition={"name": "natural"}) == []


def test_a_note_is_made_once_for_all_seeds() -> None:
    notes: list[str] = []
    attack = {"attack": {"name": "label-flip"}}
    simulate(PLAIN | attack, data=table(), seeds=3, baselines=True, watch=Watch(note=notes.append))
    assert len(notes) == 1


def test_the_papers_name_of_a_rule() -> None:
    assert rules.create("bridge", f=2) == rules.TrimmedMean(f=2)
    assert "bridge" not in rules.names()
    assert settings_of(read({"rule": {"name": "bridge"}})) == {"rule.name": "trimmed-mean"}
    assert simulate(PLAIN | {"rule": {"name": "bridge", "f": 1}}, data=table()).last()["rule"] == "trimmed-mean"
    with pytest.raises(ValueError, match="did you mean 'bridge'"):
        rules.create("brigde")
