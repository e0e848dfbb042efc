"""Steps against their formulas, and chains against doing it by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import Pool, rules
from bristle.rules import Bucketing, Clipping, FedAvg, GeometricMedian, Krum, Median, NearestNeighbourMixing, chain

SHAPE = (2, 5)


def heads(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).standard_normal((count, *SHAPE))


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(0, 11))
@settings(max_examples=50, deadline=None)
def test_mixing_averages_each_head_with_its_nearest(seed: int, count: int, f: int) -> None:
    x = heads(seed, count)
    mixed = NearestNeighbourMixing(f=f)(x[0], x[1:])
    for i in range(count):
        near = np.argsort(((x - x[i]) ** 2).sum(axis=(1, 2)))[: max(1, count - f)]
        np.testing.assert_allclose(mixed[i], x[near].mean(axis=0), atol=1e-12)


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_buckets_hold_every_head_once(seed: int, count: int, s: int) -> None:
    x = heads(seed, count)
    draws = np.random.default_rng(seed).random(count - 1)
    buckets = Bucketing(s=s)(x[0], x[1:], rng=draws)
    order = np.concatenate([[0], 1 + np.argsort(draws)])
    expected = [x[order[i : i + s]].mean(axis=0) for i in range(0, count, s)]
    np.testing.assert_allclose(buckets, expected, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(0, 6))
@settings(max_examples=50, deadline=None)
def test_clipping_about_the_own_head(seed: int, count: int, f: int) -> None:
    x = heads(seed, count)
    differences = x - x[0]
    norms = np.sqrt((differences**2).sum(axis=(1, 2)))
    static = Clipping(tau=1.5)(x[0], x[1:])
    np.testing.assert_allclose(np.linalg.norm((static - x[0]).reshape(count, -1), axis=1), np.minimum(norms, 1.5))
    adaptive = Clipping(f=f)(x[0], x[1:])
    clipped = int(2 * f / count * max(0, count - f))
    radius = np.sort(norms)[::-1][min(clipped, count - 1)]
    expected = x[0] + differences * np.minimum(1, radius / np.maximum(norms, 1e-300))[:, None, None]
    np.testing.assert_allclose(adaptive, expected, atol=1e-12)


def test_a_chain_equals_its_parts_by_hand() -> None:
    x = heads(3, 11)
    mixed = NearestNeighbourMixing(f=3)(x[0], x[1:])
    for rule in (Krum(f=2), Median(), GeometricMedian(), FedAvg()):
        together = chain(NearestNeighbourMixing(f=3), rule)(x[0], x[1:])
        np.testing.assert_allclose(together.head, rule(mixed[0], mixed[1:]).head, atol=1e-9)
    draws = np.random.default_rng(0).random(10)
    buckets = Bucketing(s=2)(x[0], x[1:], rng=draws)
    together = chain(Bucketing(s=2), Median())(x[0], x[1:], rng=draws)
    np.testing.assert_allclose(together.head, Median()(buckets[0], buckets[1:]).head, atol=1e-12)


def test_a_chain_tells_which_sender_had_what_share() -> None:
    x = heads(5, 9)
    decision = chain(NearestNeighbourMixing(f=4), FedAvg())(x[0], x[1:])
    own = 1 - decision.weights.sum(axis=0)
    combined = own[:, None] * x[0] + np.einsum("mc,mcd->cd", decision.weights, x[1:])
    np.testing.assert_allclose(combined, decision.head, atol=1e-12)


def test_steps_work_on_batches_and_pools() -> None:
    x = heads(1, 12).reshape(2, 6, *SHAPE)
    pool = Pool(x.reshape(12, *SHAPE), np.arange(12).reshape(2, 6)[:, 1:])
    for step in (NearestNeighbourMixing(f=2), Clipping(f=1), Clipping(tau=1.0), Bucketing(s=2)):
        batch = step(x[:, 0], x[:, 1:], rng=np.full((2, 5), 0.5) if isinstance(step, Bucketing) else None)
        assert batch.shape[0] == 2
        np.testing.assert_allclose(batch[1], step(x[1, 0], x[1, 1:], rng=np.full(5, 0.5)), atol=1e-12)
        np.testing.assert_allclose(step(x[:, 0], pool, rng=np.full((2, 5), 0.5)), batch, atol=1e-12)


def test_uneven_receivers_need_a_chain() -> None:
    x = heads(1, 12).reshape(2, 6, *SHAPE)
    mask = np.array([[True] * 5, [True] * 4 + [False]])
    with pytest.raises(ValueError, match="different numbers of usable models"):
        NearestNeighbourMixing(f=1)(x[:, 0], x[:, 1:], mask=mask)


def test_chain_takes_steps_and_one_rule() -> None:
    wrong: list[tuple[Any, ...]] = [(), (Median(), Krum()), (NearestNeighbourMixing(),)]
    for parts in wrong:
        with pytest.raises(ValueError, match="chain takes steps and then one rule"):
            chain(*parts)
    assert chain(Median())(np.zeros(SHAPE), np.ones((2, *SHAPE))).head.max() == 1


def test_clipping_takes_one_kind_of_radius() -> None:
    for options in ({}, {"tau": 1.0, "f": 2}):
        with pytest.raises(ValueError, match="either tau=, a fixed radius, or f="):
            Clipping(**options)  # type: ignore[arg-type]


def test_properties_pass_through_a_chain() -> None:
    assert chain(Bucketing(), Median()).stochastic
    assert not chain(NearestNeighbourMixing(), Median()).stochastic
    assert chain(NearestNeighbourMixing(), rules.Bristle()).consolidates
