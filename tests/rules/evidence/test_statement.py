"""Statements: counts, means and a sketch that keeps the variance of every feature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.learning.metrics import Evaluation
from bristle.rules import Reason
from bristle.rules.evidence import Evidence, Statement, state, unfit
from bristle.testing.evidence import hostile
from tests.support.evidence import Town, factors_of


def samples(seed: int, classes: int, features: int, most: int) -> Evaluation:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(0, most + 1, classes))
    labels = labels if len(labels) else np.zeros(1, dtype=np.int64)
    return Evaluation(rng.standard_normal((len(labels), features)) * rng.uniform(0.1, 5, features), labels)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(1, 5),
    features=st.integers(1, 12),
    most=st.integers(1, 20),
    rank=st.floats(0.3, 6),
)
def test_counts_means_and_the_variance_of_every_feature(
    seed: int, classes: int, features: int, most: int, rank: float
) -> None:
    held = samples(seed, classes, features, most)
    said = state(held, classes, rank=rank)
    assert np.array_equal(said.counts, np.bincount(held.labels, minlength=classes))
    rest = held.features.copy()
    for number in np.unique(held.labels):
        mine = held.labels == number
        np.testing.assert_allclose(said.rows[number], held.features[mine].mean(axis=0), atol=1e-12)
        rest[mine] -= said.rows[number]
    freedom = max(int(np.maximum(np.bincount(held.labels) - 1, 0).sum()), 1)
    assert said.factors is not None
    assert said.diagonal is not None
    kept = (said.factors**2).sum(axis=0) + said.diagonal
    np.testing.assert_allclose(kept, (rest**2).sum(axis=0) / freedom, atol=1e-9)
    assert (said.diagonal >= 0).all()
    assert said.factors.shape[0] <= min(features, freedom)
    assert unfit(said, classes, features) is None


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_sketch_is_never_more_than_the_scatter(seed: int) -> None:
    """F'F is part of it: what remains has no negative direction."""
    held = samples(seed, 3, 8, 12)
    said = state(held, 3, rank=1)
    whole = state(held, 3, rank=100)
    assert said.factors is not None
    assert whole.factors is not None
    rest = whole.factors.T @ whole.factors - said.factors.T @ said.factors
    assert np.linalg.eigvalsh(rest).min() > -1e-9


def test_more_samples_support_more_directions() -> None:
    town = Town.of(0, features=60)
    ranks = [len(factors_of(state(town.samples(0, [0, 1, 2], count), 6))) for count in (2, 5, 20, 100)]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[-1]
    wide = [len(factors_of(state(town.samples(0, [0, 1], 12), 6, rank=rank))) for rank in (0.5, 1, 2)]
    assert wide == sorted(set(wide))


def test_padding_is_left_out() -> None:
    held = samples(3, 3, 4, 9)
    padded = Evaluation(
        np.concatenate([held.features, np.full((4, 4), np.nan)]), np.concatenate([held.labels, np.full(4, -1)])
    )
    one, other = state(held, 3), state(padded, 3)
    for name in ("rows", "counts", "factors", "diagonal"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_nobody_can_use_what_is_broken() -> None:
    town = Town.of(1)
    good = state(town.samples(1, [0, 1, 2]), 6)
    assert unfit(good, 6, 20) is None
    for what, broken in hostile(good).items():
        reason = unfit(broken, 6, 20)
        assert reason is not None, what
        assert reason.words.startswith("refused"), what
    assert unfit(replace(good, counts=-good.counts), 6, 20) is Reason.IMPOSSIBLE
    assert unfit(good, 7, 20) is Reason.WRONG_SHAPE


def test_a_row_without_a_count_may_hold_anything_finite() -> None:
    good = state(Town.of(1).samples(1, [0, 1]), 6)
    rows = np.where(good.counts[:, None] > 0, good.rows, 1e6)
    assert unfit(replace(good, rows=rows), 6, 20) is None


def test_a_batch_gives_its_statements_back() -> None:
    town = Town.of(2)
    said = [state(town.samples(who, [0, 1], 3 + 9 * who), 6) for who in range(3)]
    batch = Statement.stack(said)
    assert batch.rows.shape == (3, 6, 20)
    np.testing.assert_array_equal(batch.freedom, [one.freedom for one in said])
    for place, one in enumerate(said):
        rank = len(factors_of(one))
        np.testing.assert_array_equal(batch[place].rows, one.rows)
        np.testing.assert_array_equal(factors_of(batch[place])[:rank], one.factors)
        assert not factors_of(batch[place])[rank:].any()


def test_a_rank_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="rank"):
        state(samples(0, 2, 3, 4), 2, rank=0)


@pytest.mark.parametrize(
    ("features", "labels", "said"),
    [
        (np.full((4, 3), np.nan), [0, 0, 1, 1], "must be finite"),
        (np.full((4, 3), np.inf), [0, 0, 1, 1], "must be finite"),
        (np.ones((4, 3)), [0, 0, 1, 5], "there is no class 5: labels go from 0 to 1"),
        (np.ones((4, 3)), [0.0, 0.0, 1.0, 1.0], "labels must be integers, not float64"),
        (np.ones((4, 3)), [0, 0, 1], r"features \[4, 3\] and labels \[3\]"),
        (np.ones((4, 0)), [0, 0, 1, 1], r"features \[4, 0\]"),
        (np.ones((4, 3), dtype=object), [0, 0, 1, 1], "features must be real numbers, not object"),
        (np.ones((4, 3), dtype=str), [0, 0, 1, 1], "features must be real numbers, not <U1"),
        (np.ones((4, 3), dtype=complex), [0, 0, 1, 1], "features must be real numbers, not complex128"),
    ],
)
def test_samples_that_cannot_be_stated_are_one_clear_error(
    features: np.ndarray[Any, Any], labels: list[float], said: str
) -> None:
    samples = Evaluation(features, np.array(labels))
    with pytest.raises(ValueError, match=said):
        state(samples, 2)
    fit = state(Evaluation(np.eye(4, 3), np.array([0, 0, 1, 1])), 2)
    with pytest.raises(ValueError, match=said if len(labels) == 4 and features.size else "evaluation must have"):
        Evidence()(fit, [fit], evaluation=samples)


def test_a_statement_has_at_least_one_class() -> None:
    with pytest.raises(ValueError, match="classes must be a whole number of at least 1, not 0"):
        state(samples(0, 2, 3, 4), 0)


def test_lists_are_no_arrays() -> None:
    fit = state(samples(0, 2, 3, 4), 2)
    lists: Any = [[1.0, 2.0, 3.0]], [0]
    for wrong, said in ((Evaluation(*lists), "features"), (Evaluation(np.ones((1, 3)), lists[1]), "labels")):
        with pytest.raises(ValueError, match=rf"{said} must be an array, not list: use np\.asarray\({said}\)"):
            state(wrong, 2)
        with pytest.raises(ValueError, match=f"{said} must be an array, not list"):
            Evidence()(fit, [fit], evaluation=wrong)


def test_an_evaluation_of_another_width_is_one_clear_error() -> None:
    fit = state(samples(0, 2, 3, 4), 2)
    narrow = Evaluation(np.ones((4, 2)), np.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match=r"features \[samples, 3\] with labels, not \[4, 2\], \[4\]$"):
        Evidence()(fit, [fit], evaluation=narrow)


def test_padding_may_hold_anything() -> None:
    features = np.vstack([np.eye(4, 3), np.full((1, 3), np.nan)])
    padded = state(Evaluation(features, np.array([0, 0, 1, 1, -1])), 2)
    plain = state(Evaluation(features[:4], np.array([0, 0, 1, 1])), 2)
    assert np.array_equal(padded.rows, plain.rows)
    assert np.array_equal(np.asarray(padded.factors), np.asarray(plain.factors))
