"""Worlds on features that are made up: peers learn, attackers do not stop them, and runs repeat to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.simulation import FeatureData, Scenario, World

CLASSES, FEATURES = 6, 24


def made_up(seed: int = 0) -> FeatureData:
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((CLASSES, FEATURES))
    labels = np.repeat(np.arange(CLASSES), 250)
    test_labels = np.repeat(np.arange(CLASSES), 40)

    def features(y: Any) -> Any:
        return (truth[y] + 0.8 * rng.standard_normal((len(y), FEATURES))).astype(np.float32)

    return FeatureData(features(labels), labels, features(test_labels), test_labels, tuple("abcdef"))


def after(scenario: Scenario, iterations: int = 60) -> World:
    world = World(scenario, made_up())
    for _ in range(iterations):
        world.advance()
    return world


def test_peers_learn_classes_that_they_do_not_hold() -> None:
    together = after(Scenario(peers=6, classes_per_peer=3)).accuracy()
    alone = after(Scenario(peers=6, classes_per_peer=3, rule=rules.Local())).accuracy()
    assert alone.max() < 0.6
    assert together.min() > 0.85


def test_label_flippers_are_given_nothing() -> None:
    scenario = Scenario(peers=6, attackers=6, attack=attacks.create("label-flip", classes=CLASSES), classes_per_peer=3)
    world = World(scenario, made_up())
    for _ in range(60):
        decision = world.advance()
    assert world.accuracy().min() > 0.85
    assert decision.weights[:, 5:].sum() < 0.02 * decision.weights.sum()
    fooled = after(Scenario(**{**vars(scenario), "rule": rules.FedAvg()}))
    assert fooled.accuracy().mean() < 0.5


@pytest.mark.parametrize("attack", attacks.names())
@pytest.mark.parametrize("rule", [rules.Bristle(), rules.Median()], ids=repr)
def test_every_attack_runs_and_no_head_breaks(attack: str, rule: rules.Rule) -> None:
    flip = attacks.create("label-flip", classes=CLASSES)
    special: dict[str, dict[str, Any]] = {"label-flip": {"classes": CLASSES}, "sybil": {"inner": flip}}
    options = special.get(attack, {})
    scenario = Scenario(peers=6, attackers=2, attack=attacks.create(attack, **options), rule=rule, classes_per_peer=3)
    world = after(scenario, 8)
    assert np.isfinite(world.heads).all()
    assert world.iteration == 8


def test_the_same_seed_gives_the_same_bits() -> None:
    scenario = Scenario(peers=5, attackers=2, attack=attacks.create("alie"), classes_per_peer=2, seed=3)
    first, second = after(scenario, 15).heads, after(scenario, 15).heads
    assert first.tobytes() == second.tobytes()
    assert after(Scenario(**{**vars(scenario), "seed": 4}), 15).heads.tobytes() != first.tobytes()


def test_samples_of_peers_and_attackers_do_not_meet_test_samples() -> None:
    world = World(Scenario(peers=4, attackers=2, classes_per_peer=3), made_up())
    assert world.held.index is not None
    assert world.attackers_hold.index is not None
    trained = set(world.held.index.ravel()) | set(world.attackers_hold.index.ravel())
    held_out = {row.tobytes() for row in world.evaluation.features.reshape(-1, FEATURES)}
    assert not held_out & {world.data.train[i].tobytes() for i in trained if i >= 0}
    assert (world.evaluation.labels >= 0).sum(axis=1).tolist() == [30] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peers": 0}, "at least 1 peer"),
        ({"attackers": -1}, "0 attackers"),
        ({"classes_per_peer": 7}, "classes_per_peer must lie between 1 and 6, not 7"),
        ({"samples_per_class": 10_000}, "class"),
    ],
)
def test_impossible_worlds_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(Scenario(**{"classes_per_peer": 3, **options}), made_up())
