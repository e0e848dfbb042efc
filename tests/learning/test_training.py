from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle._core import keyed_uniforms
from bristle.learning.metrics import log_likelihood_loss
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.training import choose_batch, full_step, held_labels, mean_shift, train, train_step
from bristle.learning.training import trained_classes as trained_of

Floats = np.ndarray[Any, Any]
LIBRARIES: tuple[Callable[..., Any], ...] = (np.asarray, torch.asarray, array_api_strict.asarray)
CLASSES, DEPTH = 4, 6


def world(
    seed: int, *, peers: int = 3, samples: int = 8, padding: bool = False, dtype: Any = np.float64
) -> tuple[HeadState, Floats, Floats]:
    """Heads in the middle of training, features and labels; with padding, peers hold 0, 1, 2, ... samples."""
    rng = np.random.default_rng(seed)
    shape = (peers, CLASSES, DEPTH)
    state = HeadState(
        rng.standard_normal(shape).astype(dtype),
        0.1 * rng.standard_normal(shape).astype(dtype),
        0.1 * rng.random(shape).astype(dtype),
        rng.integers(0, 50, peers),
    )
    labels = rng.integers(0, CLASSES, (peers, samples))
    if padding:
        labels[np.arange(samples) >= np.arange(peers)[:, None]] = -1
    return state, rng.standard_normal((peers, samples, DEPTH)).astype(dtype), labels


def converted(convert: Callable[..., Any], state: HeadState) -> HeadState:
    return HeadState(*(convert(np.array(values)) for values in arrays(state)))


def arrays(state: HeadState) -> tuple[Any, Any, Any, Any]:
    return state.head, state.first, state.second, state.steps


def one(state: HeadState, peer: int) -> HeadState:
    return HeadState(*(values[peer, ...] for values in arrays(state)))


def assert_same(found: HeadState, expected: HeadState, tolerance: float = 0.0) -> None:
    for values, wanted in zip(arrays(found), arrays(expected), strict=True):
        np.testing.assert_allclose(np.asarray(values), np.asarray(wanted), rtol=tolerance, atol=tolerance)


@given(st.integers(0, 999), st.booleans())
@settings(deadline=None, max_examples=20)
def test_the_gradient_is_that_of_the_loss(seed: int, padding: bool) -> None:
    state, features, labels = world(seed, padding=padding)
    plain = TrainingSettings(beta1=0, l2=0.3)
    after = full_step(state, features, labels, settings=plain)

    def loss(head: Floats) -> Any:
        return log_likelihood_loss(features @ head.swapaxes(1, 2), labels) + 0.15 * (head**2).sum(axis=(1, 2))

    step = 1e-5
    for c in range(CLASSES):
        for d in range(DEPTH):
            nudge = np.zeros((CLASSES, DEPTH))
            nudge[c, d] = step
            slope = (loss(state.head + nudge) - loss(state.head - nudge)) / (2 * step)
            active = (labels >= 0).any(axis=1)
            # Without decay the first moment is the gradient.
            np.testing.assert_allclose(after.first[active, c, d], slope[active], atol=1e-7)


@given(st.integers(0, 999), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=30)
def test_every_library_gives_the_same(seed: int, consolidate: bool, padding: bool) -> None:
    state, features, labels = world(seed, padding=padding)
    draws = np.random.default_rng(seed).random(labels.shape)
    expected = train_step(state, features, labels, draws, consolidate=consolidate)
    for convert in LIBRARIES[1:]:
        inputs = converted(convert, state), convert(features), convert(labels)
        found = train_step(*inputs, draws, consolidate=consolidate)
        assert type(found.head) is type(inputs[1])
        assert_same(found, expected, 1e-12)
        assert_same(train_step(*inputs, convert(draws), consolidate=consolidate), expected, 1e-12)


@given(st.integers(0, 999), st.booleans())
@settings(deadline=None, max_examples=20)
def test_a_batch_of_peers_equals_a_loop_over_them(seed: int, consolidate: bool) -> None:
    state, features, labels = world(seed, peers=4, padding=True)
    draws = np.random.default_rng(seed).random((4, 8))
    together = train_step(state, features, labels, draws, consolidate=consolidate)
    for peer in range(4):
        alone = train_step(one(state, peer), features[peer], labels[peer], draws[peer], consolidate=consolidate)
        assert alone.head.shape == (CLASSES, DEPTH)
        assert_same(alone, one(together, peer), 1e-14)


@given(st.integers(0, 999), st.integers(1, 6))
@settings(deadline=None, max_examples=30)
def test_padding_may_stand_anywhere_and_hold_anything(seed: int, extra: int) -> None:
    state, features, labels = world(seed, samples=4)
    rng = np.random.default_rng(seed)
    draws = rng.random(labels.shape)
    expected = train_step(state, features, labels, draws)
    place = np.sort(rng.permutation(4 + extra)[:4])
    wide = np.full((3, 4 + extra, DEPTH), rng.choice([np.nan, np.inf, 1e300]))
    wide_labels, wide_draws = np.full((3, 4 + extra), -1), np.zeros((3, 4 + extra))
    wide[:, place], wide_labels[:, place], wide_draws[:, place] = features, labels, draws
    for convert in LIBRARIES:
        found = train_step(converted(convert, state), convert(wide), convert(wide_labels), wide_draws)
        assert_same(found, expected, 1e-12)
    assert_same(full_step(state, wide, wide_labels), full_step(state, features, labels), 1e-12)


@given(st.integers(0, 999))
@settings(deadline=None, max_examples=20)
def test_a_peer_without_samples_stays_as_it_is(seed: int) -> None:
    state, features, labels = world(seed, padding=True)
    features[0] = np.nan
    draws = np.random.default_rng(seed).random((3, 8))
    for convert in LIBRARIES:
        after = train_step(converted(convert, state), convert(features), convert(labels), draws)
        assert_same(one(after, 0), one(state, 0))
        np.testing.assert_array_equal(np.asarray(after.steps), state.steps + np.array([0, 1, 1]))
        assert np.isfinite(np.asarray(after.head)).all()
    nothing = train_step(state, features[:, :0], labels[:, :0], draws[:, :0])
    assert_same(nothing, state)


@given(st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_consolidation_leaves_other_rows_to_the_bit(seed: int) -> None:
    state, features, labels = world(seed, peers=5, samples=3)
    draws = np.random.default_rng(seed).random(labels.shape)
    trained = trained_of(labels, CLASSES)
    assert trained.tolist() == [[c in row for c in range(CLASSES)] for row in labels]
    for convert in LIBRARIES:
        inputs = converted(convert, state), convert(features), convert(labels)
        plain, kept = train_step(*inputs, draws), train_step(*inputs, draws, consolidate=True)
        for before, free, after in zip(arrays(state)[:3], arrays(plain), arrays(kept), strict=False):
            np.testing.assert_array_equal(np.asarray(after)[~trained], before[~trained])
            np.testing.assert_allclose(np.asarray(after)[trained], np.asarray(free)[trained], rtol=1e-13)
            assert (np.asarray(free)[~trained] != before[~trained]).all()
    given_mask = full_step(state, features, labels, trained=trained)
    np.testing.assert_array_equal(given_mask.second[~trained], state.second[~trained])


@given(st.integers(0, 999), st.integers(1, 12), st.integers(1, 9), st.booleans())
@settings(deadline=None, max_examples=60)
def test_batches_are_the_smallest_draws_without_replacement(seed: int, samples: int, size: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, 2, (3, samples))
    draws = rng.integers(0, 4, labels.shape) / 4 if ties else rng.random(labels.shape)
    for convert in LIBRARIES:
        chosen = np.asarray(choose_batch(convert(draws), convert(labels), size))
        assert chosen.shape == (3, min(size, samples))
        for peer in range(3):
            real = np.flatnonzero(labels[peer] >= 0)
            expected = real[np.argsort(draws[peer, real], kind="stable")][:size]
            assert chosen[peer][chosen[peer] >= 0].tolist() == sorted(expected)


def test_over_many_iterations_every_sample_serves_equally_often() -> None:
    labels = np.zeros((1, 20), dtype=np.int64)
    served = np.zeros(20)
    for iteration in range(4000):
        served[choose_batch(keyed_uniforms(0, np.arange(1), iteration, 20), labels, 5)] += 1
    assert np.abs(served - 1000).max() < 5 * np.sqrt(1000 * 0.75)


@given(st.integers(0, 999))
@settings(deadline=None, max_examples=20)
def test_a_table_with_an_index_equals_copies_for_every_peer(seed: int) -> None:
    state, _, _ = world(seed)
    rng = np.random.default_rng(seed)
    table, classes = rng.standard_normal((30, DEPTH)), rng.integers(0, CLASSES, 30)
    index = rng.integers(-1, 30, (3, 8))
    labels = held_labels(classes, index)
    assert (labels[index >= 0] == classes[index[index >= 0]]).all()
    assert (labels[index < 0] == -1).all()
    draws = rng.random(index.shape)
    expected = train_step(state, table[index], labels, draws)
    for convert in LIBRARIES:
        inputs = converted(convert, state), convert(table), convert(labels)
        assert_same(train_step(*inputs, draws, index=convert(index)), expected, 1e-12)


def test_training_takes_steps_and_repeats() -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, DEPTH))
    labels = np.tile(np.arange(CLASSES), (3, 3))
    features = centres[labels] + 0.1 * rng.standard_normal((*labels.shape, DEPTH))
    start = HeadState.zeros((3, CLASSES, DEPTH), like=features)
    fast = TrainingSettings(learning_rate=0.1)
    state = train(start, features, labels, steps=40, seed=5, settings=fast)
    assert not start.head.any()
    assert state.steps.tolist() == [40] * 3
    assert ((features @ state.head.swapaxes(1, 2)).argmax(-1) == labels).all()
    again = start
    for iteration in range(1, 41):
        draws = keyed_uniforms(5, np.arange(3), iteration, labels.shape[1])
        again = train_step(again, features, labels, draws, settings=fast)
    assert_same(again, state)
    assert (train(start, features, labels, steps=40, seed=6, settings=fast).head != state.head).any()
    assert_same(train(start, features, labels, steps=0, seed=5), start)


def test_the_mean_shift_centres_every_row() -> None:
    head = np.random.default_rng(0).standard_normal((2, CLASSES, DEPTH)) + 3
    for convert in LIBRARIES:
        shifted = np.asarray(mean_shift(convert(head)))
        np.testing.assert_allclose(shifted.mean(axis=-1), 0, atol=1e-14)
        np.testing.assert_allclose(np.diff(shifted, axis=-1), np.diff(head, axis=-1), atol=1e-14)


def test_mistakes_are_named() -> None:
    state, features, labels = world(0)
    draws = np.zeros(labels.shape)
    index = np.full(labels.shape, 2)
    wrong: list[tuple[str, Callable[[], object]]] = [
        (r"features has the shape \[3, 7, 6\]: \[3, 8, 6\]", lambda: train_step(state, features[:, 1:], labels, draws)),
        (r"features has the shape \[3, 8, 5\]", lambda: train_step(state, features[..., 1:], labels, draws)),
        (r"draws has the shape \[2, 8\]", lambda: train_step(state, features, labels, draws[1:])),
        ("labels must be integers, not float64", lambda: train_step(state, features, labels * 1.0, draws)),
        ("labels go up to 9, but heads have 4 rows", lambda: train_step(state, features, labels * 0 + 9, draws)),
        (
            "index goes up to 2, but the table has 2",
            lambda: train_step(state, features[0, :2], labels, draws, index=index),
        ),
        ("held_labels", lambda: train_step(state, features[0], labels, draws, index=index - 3)),
        ("features are float32, but heads are float64", lambda: full_step(state, np.float32(features), labels)),
        (r"trained has the shape \[4\]", lambda: full_step(state, features, labels, trained=np.ones(4, np.bool))),
        (r"heads must be \[..., cl", lambda: full_step(replace(state, head=state.steps * 1.0), features, labels)),
        (r"steps has the shape \[2\]", lambda: full_step(replace(state, steps=state.steps[1:]), features, labels)),
    ]
    for message, call in wrong:
        with pytest.raises(ValueError, match=message):
            call()
