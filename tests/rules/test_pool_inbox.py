"""A pool is a way to compute: every rule answers as it would if each receiver had copies of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import rules
from bristle._core import Pool
from bristle.learning.metrics import Evaluation
from bristle.rules import Rule, chain

CLASSES, DEPTH, BATCH, HEARD = 3, 5, 4, 5
OTHERS: list[Rule] = [
    rules.create("bristle", beta=3, kappa=1),
    chain(rules.NearestNeighbourMixing(f=1), rules.Krum(f=1)),
    chain(rules.NearestNeighbourMixing(f=1), rules.create("geometric-median")),
    chain(rules.Bucketing(s=2), rules.TrimmedMean(f=1)),
    chain(rules.Clipping(f=1), rules.Median()),
    chain(rules.Clipping(tau=0.5), rules.create("centered-clipping")),
]
RULES = [rules.create(name) for name in rules.names(shares="heads")] + OTHERS


def called(rule: Rule, pool: Pool, own: Any, *, gathered: bool, mask: Any = None) -> Any:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((BATCH, 12, DEPTH))
    labels = np.tile(np.arange(12) % CLASSES, (BATCH, 1))
    claims = rng.random((BATCH, HEARD, CLASSES)) < 0.5
    draws = rng.random((BATCH, HEARD))
    received = pool.gather() if gathered else pool
    return rule(own, received, mask=mask, evaluation=Evaluation(features, labels), claims=claims, rng=draws)


def scene(size: int, *, seed: int, far: bool = False) -> tuple[Pool, Any]:
    rng = np.random.default_rng(seed)
    heads = rng.standard_normal((size, CLASSES, DEPTH))
    index = np.stack([rng.permutation(size)[:HEARD] for _ in range(BATCH)])
    own = rng.standard_normal((BATCH, CLASSES, DEPTH))
    if far:  # One receiver, and those that it hears, are far from all others and near each other.
        own[0] += 1e6
        heads[index[0]] += 1e6
    return Pool(heads, index), own


@pytest.mark.parametrize(
    ("size", "far", "scale"), [(6, False, 1.0), (13, False, 0.05), (30, True, 1.0), (60, False, 1.0)]
)
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_pool_answers_as_copies_do(rule: Rule, size: int, far: bool, scale: float) -> None:
    pool, own = scene(size, seed=size, far=far)
    pool, own = Pool(pool.heads * scale, pool.index), own * scale
    mask = np.ones((BATCH, HEARD), bool)
    mask[1, 2] = False
    for given in (None, mask):
        shared, copied = (called(rule, pool, own, gathered=gathered, mask=given) for gathered in (False, True))
        np.testing.assert_array_equal(shared.reasons, copied.reasons)
        np.testing.assert_allclose(shared.head, copied.head, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(shared.weights, copied.weights, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_receivers_that_hold_the_same_are_answered_the_same(rule: Rule) -> None:
    pool, _ = scene(HEARD + 1, seed=3)
    everyone = np.stack([np.delete(np.arange(HEARD + 1), who) for who in (0, 1, 0, 2)])
    own = pool.heads[[0, 1, 0, 2]]
    shared = called(rule, Pool(pool.heads, everyone), own, gathered=False)
    copied = called(rule, Pool(pool.heads, everyone), own, gathered=True)
    np.testing.assert_allclose(shared.head, copied.head, rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(shared.reasons, copied.reasons)
    np.testing.assert_allclose(shared.weights, copied.weights, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rule", [rules.Median(), rules.TrimmedMean(f=1), rules.MeanAroundMedian(f=2)], ids=repr)
@pytest.mark.parametrize("equal", [0, 2, HEARD + 1])
def test_shares_of_the_same_heads_are_shared_out_in_the_order_of_each_receiver(rule: Rule, equal: int) -> None:
    pool, _ = scene(HEARD + 1, seed=4)
    pool.heads[:equal, 1] = pool.heads[0, 1]  # Equal values go to the first head in a receiver's own order.
    index = np.stack([[1, 2, 3, 4, 5], [5, 4, 3, 2, 0], [3, 1, 0, 4, 5], [2, 1, 3, 5, 4]])
    own = pool.heads[[0, 1, 2, 0]]
    shared, copied = (called(rule, Pool(pool.heads, index), own, gathered=gathered) for gathered in (False, True))
    np.testing.assert_array_equal(shared.weights, copied.weights)


@pytest.mark.parametrize("size", [6, 13, 60])
def test_outputs_of_a_pool_are_those_of_its_heads(size: int) -> None:
    pool, own = scene(size, seed=size)
    inboxes = []

    class Spy(rules.FedAvg):
        def decide(self, inbox: Any, task: Any) -> Any:
            inboxes.append(inbox)
            return super().decide(inbox, task)

    Spy()(own, pool)
    features = np.random.default_rng(9).standard_normal((BATCH, 7, DEPTH))
    everyone = np.concatenate([own[:, None], pool.gather()], axis=1)
    expected = np.einsum("btd,bmcd->bmtc", features, everyone)
    np.testing.assert_allclose(inboxes[0].logits(features), expected, rtol=1e-10)
    np.testing.assert_array_equal(inboxes[0].predictions(features), expected.argmax(axis=-1))
