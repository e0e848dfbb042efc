"""CAF and CGE against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import Context, rules
from bristle.rules import Reason


def heads_of(count: int, size: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal((1, size)) + rng.standard_normal((count, 1, size))


def filtered(vectors: Any, f: int) -> Any:
    """The covariance-bound agnostic filter with the covariance itself, size by size."""
    count = len(vectors)
    weights, best, least = np.ones(count), vectors.mean(axis=0), np.inf
    while weights.sum() > count - 2 * f:
        mean = weights @ vectors / weights.sum()
        about = vectors - mean
        values, directions = np.linalg.eigh((weights[:, None] * about).T @ about / weights.sum())
        if values[-1] < least:
            best, least = mean, values[-1]
        parts = (about @ directions[:, -1]) ** 2 * (weights > 0)
        weights = weights * (1 - parts / parts.max())
    return best


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("count", "size", "f"), [(5, 3, 2), (8, 3, 2), (10, 40, 4), (25, 12, 3), (30, 60, 11)])
def test_caf_is_the_published_filter(count: int, size: int, f: int, seed: int) -> None:
    heads = heads_of(count, size, seed)
    heads[-f:] += 3 * (seed % 2)
    head = rules.CAF(f=f)(heads[0], heads[1:]).head
    np.testing.assert_allclose(head.reshape(-1), filtered(heads[:, 0], f), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("size", [1e3, 1e8, 1e14])
def test_caf_ends_with_heads_so_far_off_that_nobody_else_would_lose_weight(size: float) -> None:
    heads = heads_of(12, 5, 0)
    heads[-1] = size
    heads[-2] = -size
    head = rules.CAF(f=3)(heads[0], heads[1:]).head
    assert np.linalg.norm(head - heads[:-2].mean(axis=0)) < 2


def test_caf_without_attackers_is_the_mean() -> None:
    heads = heads_of(6, 4, 0)
    np.testing.assert_allclose(rules.CAF(f=0)(heads[0], heads[1:]).head, heads.mean(axis=0))


def test_cge_averages_the_smallest_norms() -> None:
    heads = heads_of(9, 4, 1)
    norms = np.linalg.norm(heads[:, 0], axis=1)
    decision = rules.CGE(f=3)(heads[0], heads[1:])
    small = np.argsort(norms)[:6]
    np.testing.assert_allclose(decision.head, heads[small].mean(axis=0))
    assert set(np.flatnonzero(decision.reasons == int(Reason.KEPT)) + 1) == set(small) - {0}
    dropped = next(j for j in range(1, 9) if j not in small)
    assert decision.explain(dropped - 1) == "rejected: its update is among the largest"


def test_cge_measures_updates_from_the_head_before_training() -> None:
    heads = heads_of(9, 4, 2)
    previous = heads[0] + 3
    updates = np.linalg.norm((heads - previous)[:, 0], axis=1)
    head = rules.CGE(f=3)(heads[0], heads[1:], context=Context(previous=previous)).head
    np.testing.assert_allclose(head, heads[np.argsort(updates)[:6]].mean(axis=0))
