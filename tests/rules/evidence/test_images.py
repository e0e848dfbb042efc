"""Evidence on real features: digits, and clothes, on which rules that exchange heads lose most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.rules import Reason
from bristle.rules.evidence import EvidenceDecision
from bristle.simulation import FeatureData, Scenario, World, measure
from bristle.simulation.run import run
from tests.support.fashion import clothes, features_of_clothes, features_of_digits


def accuracy(data: FeatureData, rule: str, *, held_out: int = 4, attack: str = "none", attackers: int = 0) -> float:
    scenario = Scenario(
        peers=10,
        held_out=held_out,
        rule=rules.create(rule, **({"kappa": held_out} if rule == "bristle" else {})),
        attack=attacks.create(attack),
        attackers=attackers,
        iterations=1 if rule == "evidence" else 200,
    )
    return float(run(scenario, data, every=1000).rows[-1]["accuracy_mean"])


def test_the_clothes_are_as_they_were() -> None:
    data = clothes()
    assert data.x_train.shape == (240, 28, 28)
    assert data.x_test.shape == (160, 28, 28)
    np.testing.assert_array_equal(np.bincount(data.y_train), 24)
    np.testing.assert_array_equal(np.bincount(data.y_test), 16)


def test_on_hard_data_one_exchange_beats_two_hundred_of_heads() -> None:
    data = features_of_clothes()
    ours, heads = accuracy(data, "evidence"), accuracy(data, "bristle")
    assert ours > heads + 0.05
    assert ours > accuracy(data, "fedavg")
    assert ours > accuracy(data, "local") + 0.2


@pytest.mark.parametrize("attack", ["label-flip", "krum", "trimmed-mean", "alie"])
def test_on_hard_data_two_attackers_and_four_samples_a_class_cost_little(attack: str) -> None:
    data = features_of_clothes()
    before = accuracy(data, "evidence", held_out=2)
    assert accuracy(data, "evidence", held_out=2, attack=attack, attackers=2) > before - 0.08


@pytest.mark.parametrize(
    ("attack", "options"),
    [
        ("poisoned-scatter", {"times": 1e4, "along": "nearest"}),
        ("poisoned-scatter", {"times": 1e4, "along": "nearest", "classes_each": 1, "count": 14.0}),
        ("pincer", {"size": 4.0, "aside": 6.0}),
        ("laid-on", {"part": 1.0}),
    ],
)
def test_on_hard_data_far_more_liars_than_owners_take_few_of_a_peers_own_samples(
    attack: str, options: dict[str, Any]
) -> None:
    data = features_of_clothes()

    def own(**settings: Any) -> float:
        scenario = Scenario(peers=10, rule=rules.create("evidence"), held_out=12, reuse=True, iterations=1, **settings)
        world = World(scenario, data)
        by_class = measure(world, world.advance()).class_accuracy
        assert world.exchange is not None
        held = np.stack([np.asarray(one.counts) > 0 for one in world.exchange.statements])
        return float(by_class[held].mean())

    assert own(attackers=24, attack=attacks.create(attack, **options)) > own() - 0.05


def test_digits_after_one_exchange() -> None:
    scenario = Scenario(peers=10, rule=rules.create("evidence"), iterations=1)
    world = World(scenario, features_of_digits())
    decision = world.advance().decision
    assert isinstance(decision, EvidenceDecision)
    assert float(np.mean(world.accuracy())) > 0.93
    assert float(np.min(world.accuracy())) > 0.9
    assert (decision.reasons == int(Reason.KEPT)).mean() > 0.9
    assert all(decision.explain((0, place)) for place in range(9))


def test_digits_that_nobody_flips_successfully() -> None:
    flipped = Scenario(
        peers=10, attackers=3, attack=attacks.create("label-flip"), rule=rules.create("evidence"), iterations=1
    )
    world = World(flipped, features_of_digits())
    world.advance()
    assert float(np.mean(world.accuracy())) > 0.92
