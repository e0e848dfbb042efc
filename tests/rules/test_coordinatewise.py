"""What each head supplied to a rule that looks at one coordinate at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import rules


def test_shares_of_coordinatewise_rules_are_fractions_of_coordinates() -> None:
    own, a, b = np.array([[0.0, 0, 0, 0]]), np.array([[1.0, 1, -1, -1]]), np.array([[2.0, 2, 2, -2]])
    decision = rules.Median()(own, np.stack([a, b]))
    np.testing.assert_array_equal(decision.head, [[1, 1, 0, -1]])
    np.testing.assert_array_equal(decision.weights[:, 0], [0.75, 0])
    even = rules.Median()(own, np.stack([a, b, b + 1]))
    np.testing.assert_allclose(even.head, np.median(np.stack([own, a, b, b + 1]), axis=0))
    np.testing.assert_allclose(even.weights.sum(), 1 - 0.5 / 4)  # The own head is half of one coordinate.


def plain_shares_around_median(x: Any, f: int) -> Any:
    nearest = np.argsort(np.abs(x - np.median(x, axis=0)), axis=0)[: len(x) - f]
    inside = np.zeros(x.shape)
    np.put_along_axis(inside, nearest, 1 / (len(x) - f), axis=0)
    return inside.mean(axis=-1)


@given(count=st.integers(5, 20), f=st.integers(0, 3), features=st.integers(1, 4), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_shares_around_the_median_are_fractions_of_coordinates(count: int, f: int, features: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((count, 3, features))
    weights = rules.MeanAroundMedian(f=f)(x[0], x[1:]).weights
    np.testing.assert_allclose(weights, plain_shares_around_median(x, f)[1:], atol=1e-12)


def test_shares_of_wide_heads_are_put_together_from_blocks() -> None:
    x = np.random.default_rng(0).standard_normal((6, 2, 40_000))
    weights = rules.MeanAroundMedian(f=2)(x[0], x[1:]).weights
    np.testing.assert_allclose(weights, plain_shares_around_median(x, 2)[1:], atol=1e-12)
