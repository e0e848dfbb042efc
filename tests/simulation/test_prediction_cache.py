"""Predictions are exact, whatever helped to find them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.simulation.measurement import TRIAL, PredictionCache


def exact(heads: np.ndarray, test: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.einsum("pcd,nd->pcn", heads, test, dtype=np.float64).argmax(axis=1)
    return found


def some(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(
    peers=st.integers(0, 23),
    classes=st.integers(1, 6),
    depth=st.integers(1, 12),
    spread=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 1.0]),
    seed=st.integers(0, 1000),
)
def test_predictions_are_those_of_the_product(peers: int, classes: int, depth: int, spread: float, seed: int) -> None:
    test = some(seed, 700, depth)
    guesses = PredictionCache(test)
    common = some(seed + 1, classes, depth)
    for call in range(4):
        heads = common + np.float32(spread) * some(seed + 2 + call, peers, classes, depth)
        assert np.array_equal(guesses.of(heads), exact(heads, test))


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0])
def test_what_was_asked_before_changes_nothing(spread: float) -> None:
    test, common = some(0, 2 * TRIAL, 8), some(1, 5, 8)
    heads = common + np.float32(spread) * some(2, 12, 5, 8)
    asked = PredictionCache(test)
    for step in range(3):
        asked.of(common + np.float32(0.01 * step) * some(3 + step, 12, 5, 8))
    assert np.array_equal(asked.of(heads), PredictionCache(test).of(heads))


def test_equals_go_to_the_first_class() -> None:
    test = some(0, 50, 300)
    heads = np.repeat(some(1, 1, 1, 300), 7, axis=1)
    assert not PredictionCache(test).of(heads).any()
    assert not PredictionCache(test).of(np.zeros_like(heads)).any()


def test_a_difference_below_32_bits_counts() -> None:
    test = np.ones((3, 100), dtype=np.float32)
    heads = np.ones((1, 2, 100), dtype=np.float32)
    heads[0, 1, 0] = np.nextafter(np.float32(1), np.float32(2))
    assert PredictionCache(test).of(heads).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_equal_rows_are_predicted_as_the_first_of_them(classes: int) -> None:
    test, rows = some(0, 700, 9), some(1, 12, 5, 9)
    rows[:, 3] = rows[:, 1]
    rows[4:, 4] = rows[4:, 1]  # Some heads have more equal rows than others.
    rows[7:, 2] = rows[7:, 1]
    heads = np.ascontiguousarray(rows[:, :classes])
    assert np.array_equal(PredictionCache(test).of(heads), exact(heads, test))
    few = np.append(heads, some(2, 1, classes, 9), axis=0)
    assert np.array_equal(PredictionCache(test).of(few), exact(few, test))
