import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data import partitions

LABELS = np.arange(4_000) % 8
alphas = st.floats(0.01, 1_000)


@given(alpha=alphas, peers=st.integers(1, 12), samples=st.integers(1, 4), seed=st.integers(0, 99))
def test_every_peer_has_the_same_number_of_samples(alpha: float, peers: int, samples: int, seed: int) -> None:
    partition = partitions.create("dirichlet", alpha=alpha, samples=samples)(LABELS, peers=peers, seed=seed)
    train, held_out = partition.train_counts(), partition.held_out_counts()
    assert train.sum(axis=1).tolist() == [samples * 8] * peers
    np.testing.assert_array_equal(held_out, np.where(train > 0, 10, 0))


@given(alpha=st.floats(0.05, 1_000) | st.just(0.001), peers=st.integers(1, 12), seed=st.integers(0, 99))
def test_all_samples_are_shared_out(alpha: float, peers: int, seed: int) -> None:
    partition = partitions.create("dirichlet", alpha=alpha)(LABELS, peers=peers, seed=seed)
    share = partition.train_counts() + partition.held_out_counts()
    assert share.sum(axis=0).tolist() == [500] * 8
    np.testing.assert_array_equal(partition.held_out_counts(), np.minimum(10, share // 2))


def test_alpha_goes_from_one_class_to_all() -> None:
    held = {
        alpha: (partitions.create("dirichlet", alpha=alpha, samples=4)(LABELS, peers=30).train_counts() > 0).mean()
        for alpha in (0.01, 0.5, 1_000)
    }
    assert held[0.01] < 0.2 < held[0.5] < 0.9
    assert held[1_000] == 1


def test_mixtures_have_the_variance_of_the_distribution() -> None:
    """Var q = (1/C)(1 - 1/C) / (C alpha + 1) for a symmetric Dirichlet over C classes."""
    partition = partitions.create("dirichlet", alpha=0.5, samples=500, held_out=0, reuse=True)(
        np.arange(40_000) % 8, peers=400
    )
    mixture = partition.train_counts() / 4_000
    assert mixture.mean() == pytest.approx(1 / 8)
    assert mixture.var() == pytest.approx((1 / 8) * (7 / 8) / (8 * 0.5 + 1), rel=0.1)


def test_classes_without_samples_are_left_out() -> None:
    partition = partitions.create("dirichlet", alpha=100, samples=1, held_out=0)([0, 2] * 40, peers=3)
    assert partition.train_counts()[:, 1].tolist() == [0, 0, 0]
    assert partition.train.lengths.tolist() == [3, 3, 3]


@pytest.mark.parametrize("alpha", [0, -1, float("inf"), float("nan")])
def test_bad_alpha(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha=.*: give a positive number"):
        partitions.create("dirichlet", alpha=alpha)
