"""Optimal ALIE and optimal inner product: the factor of ByzFL's search, and never less damage than without a search."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import peers
from bristle import attacks, rules
from bristle.attacks import OptimalALittleIsEnough, OptimalInnerProduct, View
from bristle.attacks.base import Attack

RULES = [rules.TrimmedMean(f=3), rules.Median(), rules.FedAvg(), rules.CAF(f=3), rules.Krum(f=3)]


def damage(rule: rules.Rule, view: View, sent: Any) -> float:
    """How far the victim is taken from the mean of the honest heads."""
    honest = np.concatenate([np.array(view.victim)[None], np.array(view.inbox)])
    head = rule(view.victim, np.concatenate([np.array(view.inbox), sent])).head
    return float(np.linalg.norm(head - honest.mean(axis=0)))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [OptimalALittleIsEnough, OptimalInnerProduct])
def test_search_hurts_at_least_as_much_as_the_factors_it_starts_from(
    make_view: Callable[..., View], kind: Any, rule: rules.Rule
) -> None:
    view = make_view(attackers=3, models=9)
    sent = kind(rule=rule)(view)
    np.testing.assert_array_equal(sent, np.broadcast_to(sent[:1], sent.shape))
    for evaluations in (1, 2, 5):
        fewer = kind(rule=rule, evaluations=evaluations)(view)
        assert damage(rule, view, sent) >= damage(rule, view, fewer) * (1 - 1e-9)


@pytest.mark.parametrize("name", ["optimal-alie", "optimal-inner-product"])
def test_worlds_point_it_at_the_rule_of_their_peers(name: str) -> None:
    attack = attacks.create(name)
    median, krum = rules.Median(), rules.Krum(f=2)
    assert attack.pointed_at(median) == type(attack)(rule=median)  # type: ignore[call-arg]
    assert type(attack)(rule=krum).pointed_at(median) == type(attack)(rule=krum)  # type: ignore[call-arg]
    assert attack.pointed_at(rules.Evidence()) is attack


def test_against_a_mean_the_factor_doubles_to_the_end(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=3, models=9)
    honest = np.concatenate([np.array(view.victim)[None], np.array(view.inbox)])
    sent = OptimalInnerProduct(evaluations=5)(view)  # 0, 10, 30, 70, 150
    np.testing.assert_allclose(sent[0], -150 * honest.mean(axis=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "krum"}, r"rule must be a Rule, made with rules.create\(name\), or None, not 'krum'"),
        ({"evaluations": 0}, "evaluations must be a whole number of at least 1, not 0"),
        ({"step": 0}, "step must be"),
        ({"ratio": 0.5}, r"ratio must be a number between 0.5 and 1, not 0.5"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptimalALittleIsEnough(**options)


@pytest.mark.skipif(not peers.available(), reason="ByzFL is not here: run `make peers`")
@pytest.mark.parametrize("seed", range(3))
def test_same_lie_as_byzfl(seed: int) -> None:
    fl, _ = peers.load()
    theirs = import_module("byzfl.attacks.attacks")
    rng = np.random.default_rng(seed)
    honest = 2 * rng.standard_normal((1, 6)) + rng.standard_normal((9, 6))
    attackers = 3

    def ours(attack: Attack, sign: int) -> Any:
        heads = sign * honest[:, None, :]
        view = View(
            own=np.zeros((attackers, 1, 6)),
            inbox=heads[1:],
            victim=heads[0],
            update=np.zeros((1, 6)),
            testable=np.ones(1, dtype=bool),
        )
        return sign * attack(view)[0, 0]

    for rule, aggregator in (
        (rules.TrimmedMean(f=3), fl.TrMean(f=3)),
        (rules.Median(), fl.Median()),
        (rules.MDA(f=3), fl.MDA(f=3)),
        (rules.FedAvg(), fl.Average()),
    ):
        product = theirs.Optimal_InnerProductManipulation(aggregator, pre_agg_list=[], f=attackers)
        np.testing.assert_allclose(ours(OptimalInnerProduct(rule=rule), 1), product(honest), rtol=1e-9, atol=1e-12)
        # Theirs goes to μ + τ s, the publication to μ - τ σ: the same in a mirror, with s = √(n / (n - 1)) σ.
        alie = theirs.Optimal_ALittleIsEnough(aggregator, pre_agg_list=[], f=attackers)
        scaled = OptimalALittleIsEnough(rule=rule, step=10 * (9 / 8) ** 0.5)
        np.testing.assert_allclose(ours(scaled, -1), alie(honest), rtol=1e-9)
