from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.learning.samples import Samples, SampleStore

CLASSES, DEPTH = 3, 2
ARRIVALS = st.lists(st.lists(st.integers(0, CLASSES - 1), max_size=30), max_size=12)
SHARES = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5])


def numbered(labels: list[int], first: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Features that tell which sample they belong to."""
    return np.stack([np.arange(first, first + len(labels)), np.asarray(labels)], axis=1).astype(np.float32)


@given(ARRIVALS, SHARES, st.integers(1, 12), st.integers(0, 99))
@settings(deadline=None)
def test_samples_stay_where_they_were_put(arrivals: list[list[int]], share: float, kappa: int, seed: int) -> None:
    store, rng = SampleStore(CLASSES, DEPTH, kappa=kappa, held_out_share=share), np.random.default_rng(seed)
    everything: list[int] = []
    given_out: list[tuple[Samples, Samples]] = []
    for labels in arrivals:
        before = np.bincount(store.evaluation.labels, minlength=CLASSES)
        store.add(numbered(labels, len(everything)), np.array(labels, dtype=np.int64), rng=rng)
        everything += labels
        training, held_out = store.training, store.evaluation
        ids = np.concatenate([training.features[:, 0], held_out.features[:, 0]])
        assert sorted(ids.tolist()) == list(range(len(everything)))
        assert (
            np.concatenate([training.features[:, 1], held_out.features[:, 1]])
            == np.concatenate([training.labels, held_out.labels])
        ).all()
        for old_training, old_held_out in given_out:
            np.testing.assert_array_equal(training.features[: len(old_training.labels)], old_training.features)
            np.testing.assert_array_equal(held_out.features[: len(old_held_out.labels)], old_held_out.features)
        given_out.append((training, Samples(held_out.features, held_out.labels)))

        tested = np.bincount(held_out.labels, minlength=CLASSES)
        trained = np.bincount(training.labels, minlength=CLASSES)
        new = np.bincount(np.array(labels, dtype=np.int64), minlength=CLASSES)
        # Never more than kappa, than half of a class, than its share of all and of the new samples; never less either.
        for c in range(CLASSES):
            assert tested[c] == min(kappa, math.floor(share * (tested[c] + trained[c])))
            assert tested[c] <= trained[c]
            assert tested[c] - before[c] <= math.ceil(share * new[c])
        assert store.trained.tolist() == (trained > 0).tolist()
        assert store.familiar.tolist() == (tested >= kappa).tolist()


@given(st.lists(st.integers(0, CLASSES - 1), max_size=40), SHARES, st.integers(0, 99))
@settings(deadline=None)
def test_one_at_a_time_holds_out_as_many_as_all_at_once(labels: list[int], share: float, seed: int) -> None:
    together, singly = (SampleStore(CLASSES, DEPTH, kappa=4, held_out_share=share) for _ in range(2))
    rng = np.random.default_rng(seed)
    together.add(numbered(labels, 0), np.array(labels, dtype=np.int64), rng=rng)
    for position, label in enumerate(labels):
        singly.add(numbered([label], position), [label], rng=rng)
    assert sorted(together.evaluation.labels) == sorted(singly.evaluation.labels)


def test_a_class_becomes_familiar_when_it_passes_kappa() -> None:
    store, rng = SampleStore(CLASSES, DEPTH, kappa=10), np.random.default_rng(0)
    for count in range(1, 31):
        store.add(numbered([1], count), [1], rng=rng)
        assert store.familiar.tolist() == [False, count >= 20, False]
    assert len(store.training.labels) == 20


def test_which_samples_are_held_out_is_drawn() -> None:
    chosen = set()
    for seed in range(20):
        store = SampleStore(CLASSES, DEPTH, kappa=1)
        store.add(numbered([0] * 10, 0), [0] * 10, rng=np.random.default_rng(seed))
        chosen.add(float(store.evaluation.features[0, 0]))
    assert len(chosen) > 5


def test_growth_is_amortised_and_what_was_given_out_stays() -> None:
    store, rng = SampleStore(CLASSES, DEPTH, kappa=1), np.random.default_rng(0)
    buffers, first = set(), None
    for count in range(2000):
        store.add(numbered([0], count), [0], rng=rng)
        features = store.training.features
        base = features.base
        assert base is not None
        buffers.add(len(base))
        first = features if count == 9 else first
    assert len(buffers) <= 12  # doublings, not one copy an addition
    assert first is not None
    assert first[:, 0].tolist() == [0, *range(2, 10)]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0


def test_a_restored_store_goes_on_without_splitting_again() -> None:
    rng = np.random.default_rng(0)
    store = SampleStore(CLASSES, DEPTH, kappa=3)
    store.add(numbered([0, 1, 2] * 8, 0), [0, 1, 2] * 8, rng=rng)
    held_out = Samples(store.evaluation.features, store.evaluation.labels)
    again = SampleStore.restore(store.training, held_out, classes=CLASSES, kappa=3)
    np.testing.assert_array_equal(again.training.features, store.training.features)
    np.testing.assert_array_equal(again.evaluation.features, store.evaluation.features)
    assert again.familiar.all()
    nothing_held_out = Samples(np.empty((0, DEPTH), dtype=np.float32), np.empty(0, dtype=np.int64))
    behind = SampleStore.restore(store.training, nothing_held_out, classes=CLASSES, kappa=3)
    behind.add(numbered([0, 0], 100), [0, 0], rng=rng)
    assert len(behind.evaluation.labels) == 1  # at most a share of the new ones, although more is missing


def test_mistakes_are_named_and_leave_the_store_as_it_was() -> None:
    store, rng = SampleStore(CLASSES, DEPTH), np.random.default_rng(0)
    good = np.zeros((2, DEPTH), dtype=np.float32)
    for message, features, labels in (
        (r"features have the shape \[2, 3\]: give \[samples, 2\]", np.zeros((2, 3)), [0, 1]),
        (r"labels have the shape \[3\]", good, [0, 1, 2]),
        ("labels must be integers, not float64", good, [0.0, 1.0]),
        ("labels go from -1 to 1: give 0 to 2", good, [-1, 1]),
        ("labels go from 0 to 3", good, [0, 3]),
        ("sample 1 has features that are not finite", np.array([[0, 0], [0, np.nan]]), [0, 1]),
    ):
        with pytest.raises(ValueError, match=message):
            store.add(features, labels, rng=rng)
        assert len(store.training.labels) == len(store.evaluation.labels) == 0
    for message, options in (("held_out_share=0.6", {"held_out_share": 0.6}), ("kappa=0", {"kappa": 0})):
        with pytest.raises(ValueError, match=message):
            SampleStore(CLASSES, DEPTH, **options)
