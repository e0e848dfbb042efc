"""The adaptive attack: it asks the rule, and finds what hurts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.attacks import Adaptive, Sybil, View
from bristle.attacks.adaptive import Oracle
from bristle.rules.evidence import Evidence
from bristle.simulation import FeatureData, Scenario, World
from bristle.testing import check_attack
from bristle.testing.attacks import evidence_scene


def blobs(rng: np.random.Generator) -> FeatureData:
    centres = 3 + 2 * rng.normal(size=(10, 12))

    def draw(each: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        labels = np.repeat(np.arange(10), each)
        return (centres[labels] + 1.5 * rng.normal(size=(10 * each, 12))).astype(np.float32), labels

    return FeatureData(*draw(100), *draw(20), tuple("0123456789"))


def test_it_attacks_the_rule_of_the_world_unless_told_otherwise() -> None:
    bristle, median = rules.create("bristle"), rules.create("median")
    assert Adaptive().pointed_at(bristle).rule == bristle
    assert Adaptive(rule=median).pointed_at(bristle).rule == median
    sybil = Sybil(inner=Adaptive()).pointed_at(bristle)
    assert isinstance(sybil.inner, Adaptive)
    assert sybil.inner.rule == bristle
    flip = attacks.create("label-flip")
    assert flip.pointed_at(bristle) is flip


@pytest.mark.parametrize("rule", ["median", "bristle"])
def test_it_conforms_with_a_rule_to_ask(rule: str) -> None:
    check_attack(Adaptive(rule=rules.create(rule), budget=7))


def test_a_larger_budget_finds_at_least_as_much(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(2,))
    oracle = Oracle(None, view)
    losses = [oracle.loss(Adaptive(budget=budget)(view)[:, 0]) for budget in (1, 6, 24)]
    assert (losses[0] <= losses[1] + 1e-9).all()
    assert (losses[1] <= losses[2] + 1e-9).all()
    assert (losses[0] < losses[2]).all()


@pytest.mark.parametrize("rule", ["fedavg", "bristle"])
def test_it_harms_rules_that_exchange_heads(rule: str) -> None:
    data, found = blobs(np.random.default_rng(0)), []
    for name in ("none", "adaptive"):
        scenario = Scenario(
            attackers=1, attack=attacks.create(name), rule=rules.create(rule), iterations=12, samples_per_class=4
        )
        world = World(scenario, data)
        for _ in range(12):
            world.advance()
        found.append(float(np.mean(world.accuracy())))
    assert found[1] < found[0]


def test_it_harms_a_victim_of_evidence_more_than_its_first_lie() -> None:
    scene, rule = evidence_scene(3, 6), Evidence()
    ground = scene.ground

    def accuracy(budget: int) -> float:
        sent = Adaptive(budget=budget).pointed_at(rule).state(scene, 0, np.random.default_rng(0))
        answer = rule.weigh(scene.statements[0], [*scene.statements[1:], *sent], scene.samples[0]).answer
        return float(((ground.features @ answer.head.T + answer.bias).argmax(axis=1) == ground.labels).mean())

    assert accuracy(24) <= accuracy(1)


def test_in_a_world_of_evidence() -> None:
    scenario = Scenario(attackers=2, attack=Adaptive(budget=4), rule=rules.create("evidence"), iterations=1)
    world = World(scenario, blobs(np.random.default_rng(0)))
    world.advance()
    assert np.isfinite(world.accuracy()).all()


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="rule must be a Rule"):
        Adaptive(rule="bristle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="budget must be"):
        Adaptive(budget=0)
