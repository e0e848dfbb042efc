"""Of very many models only some are looked at, and that changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bristle import Bristle, Evaluation, Pool
from bristle.rules import Prioritiser, Reason
from bristle.rules.call import _smallest

SHAPE = (3, 4)
RULE = Bristle(beta=6, kappa=3)
MOST = RULE.max_candidates


def scene(count: int, batch: int = 1) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(count)
    own, heads = rng.standard_normal((batch, *SHAPE)), rng.standard_normal((count, *SHAPE))
    evaluation = Evaluation(rng.standard_normal((batch, 12, 4)), np.tile(np.arange(12) % 3, (batch, 1)))
    return own, heads, evaluation, rng.random((batch, count))


def test_all_are_looked_at_up_to_a_number() -> None:
    assert MOST == 48
    assert Bristle().max_candidates == 48
    assert Bristle(beta=51).max_candidates == 77


@pytest.mark.parametrize("masked", [False, True])
def test_the_answer_is_that_of_the_models_drawn_first(masked: bool) -> None:
    own, heads, evaluation, draws = scene(300)
    mask = np.arange(300) % 3 != 0 if masked else np.ones(300, dtype=bool)
    first = np.argsort(np.where(mask, draws[0], 2))[:MOST]
    one = Evaluation(evaluation.features[0], evaluation.labels[0])
    whole = RULE(own[0], heads, mask=mask if masked else None, evaluation=one, rng=draws[0])
    some = RULE(own[0], heads[first], evaluation=one, rng=draws[0, first])
    np.testing.assert_allclose(whole.head, some.head, atol=1e-12)
    np.testing.assert_array_equal(whole.reasons[first], some.reasons)
    others = np.setdiff1d(np.arange(300), first)
    expected = np.where(mask[others], Reason.NOT_SAMPLED, Reason.ABSENT)
    np.testing.assert_array_equal(whole.reasons[others], expected)
    np.testing.assert_allclose(whole.weights[first], some.weights, atol=1e-12)
    assert not whole.weights[others].any()
    assert (whole.reasons[mask] != Reason.NOT_SAMPLED).sum() == RULE.beta


def test_batches_pools_and_libraries_agree() -> None:
    own, heads, evaluation, draws = scene(150, batch=3)
    heads[3], heads[40], heads[90] = np.nan, 1e30, np.inf
    mask = np.random.default_rng(0).random((3, 150)) < 0.9
    received = np.tile(heads, (3, 1, 1, 1))
    whole = RULE(own, received, mask=mask, evaluation=evaluation, rng=draws)
    pool = Pool(heads, np.tile(np.arange(150), (3, 1)))
    pooled = RULE(own, pool, mask=mask, evaluation=evaluation, rng=draws)
    tensors = RULE(
        torch.asarray(own),
        torch.asarray(received),
        mask=torch.asarray(mask),
        evaluation=Evaluation(torch.asarray(evaluation.features), torch.asarray(evaluation.labels)),
        rng=draws,
    )
    for other in (pooled, tensors):
        np.testing.assert_array_equal(whole.reasons, np.asarray(other.reasons))
        np.testing.assert_allclose(whole.head, np.asarray(other.head), atol=1e-9)
    shuffled = np.random.default_rng(1).permutation(150)
    for b in range(3):
        one = Evaluation(evaluation.features[b], evaluation.labels[b])
        looped = RULE(own[b], heads, mask=mask[b], evaluation=one, rng=draws[b])
        np.testing.assert_array_equal(whole.reasons[b], looped.reasons)
        np.testing.assert_allclose(whole.head[b], looped.head, atol=1e-9)
        moved = RULE(own[b], heads[shuffled], mask=mask[b, shuffled], evaluation=one, rng=draws[b, shuffled])
        np.testing.assert_array_equal(moved.reasons, looped.reasons[shuffled])
        np.testing.assert_allclose(moved.head, looped.head, atol=1e-9)


def test_unfit_models_are_refused_where_they_are_looked_at() -> None:
    own, heads, evaluation, draws = scene(200)
    one = Evaluation(evaluation.features[0], evaluation.labels[0])
    by_draw = np.argsort(draws[0])
    heads[by_draw[[0, 10]]] = np.nan
    heads[by_draw[MOST + 1]] = 1e30
    heads[by_draw[199]] = np.inf
    reasons = RULE(own[0], heads, evaluation=one, rng=draws[0]).reasons
    # Two of the first are no use, so that two more are looked at, and a third in place of one of those.
    assert (reasons[by_draw[[0, 10]]] == Reason.NOT_FINITE).all()
    assert reasons[by_draw[MOST + 1]] == Reason.TOO_LARGE
    assert (reasons[by_draw[MOST + 3 :]] == Reason.NOT_SAMPLED).all()
    assert np.isin(reasons, [Reason.NOT_SAMPLED, Reason.NOT_FINITE, Reason.TOO_LARGE]).sum() == 200 - RULE.beta


def test_everyone_is_drawn_equally_often_from_the_thirds() -> None:
    """The thirds of the models looked at stand for the thirds of all: shares follow the quotas, not the numbers."""
    rng = np.random.default_rng(5)
    own, heads = np.zeros((1, 2)), np.zeros((600, 1, 2))
    heads[:, 0, 0] = rng.permutation(600)
    prioritiser = Prioritiser(alpha=0.4, beta=30)
    drawn = np.stack([prioritiser(own, heads, rng=rng) for _ in range(400)])
    assert (drawn.sum(axis=1) == 30).all()
    share = [drawn[:, heads[:, 0, 0] // 200 == tier].sum(axis=1).mean() for tier in range(3)]
    # Models near the border of a third may be counted to its neighbour.
    np.testing.assert_allclose(share, prioritiser.quotas(64), atol=1.5)


@pytest.mark.parametrize("kinds", [5, 50, 1_000_000])
def test_the_first_places_are_those_of_a_stable_sort(kinds: int) -> None:
    values = np.random.default_rng(kinds).integers(0, kinds, (3, 1_000)).astype(np.float32)
    found = _smallest(np, values, 48)
    np.testing.assert_array_equal(found[:, :48], np.argsort(values, axis=-1, kind="stable")[:, :48])
    np.testing.assert_array_equal(np.sort(found, axis=-1), np.broadcast_to(np.arange(1_000), (3, 1_000)))
