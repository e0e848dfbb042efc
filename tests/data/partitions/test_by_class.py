import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data import Dataset, mnist, partitions

LABELS = np.arange(3_000) % 10


@given(
    k=st.integers(1, 10),
    peers=st.integers(1, 12),
    samples=st.integers(1, 4),
    held_out=st.integers(0, 10),
    seed=st.integers(0, 99),
)
def test_consecutive_classes_with_exact_counts(k: int, peers: int, samples: int, held_out: int, seed: int) -> None:
    create = partitions.create("consecutive", classes_per_peer=k, samples=samples, held_out=held_out)
    partition = create(LABELS, peers=peers, seed=seed)
    expected = np.zeros((peers, 10), dtype=int)
    for peer in range(peers):
        for step in range(k):
            expected[peer, (peer + step) % 10] = 1
    np.testing.assert_array_equal(partition.train_counts(), expected * samples)
    np.testing.assert_array_equal(partition.held_out_counts(), expected * held_out)


def test_the_experiments_of_the_paper_fit_mnist() -> None:
    partition = partitions.create("consecutive", classes_per_peer=4, samples=2)(mnist(), peers=100)
    assert not partition.reused
    assert partition.padded().train.shape == (100, 8)
    assert partition.padded().held_out.shape == (100, 40)


@given(peers=st.integers(1, 40), held_out=st.integers(0, 12), seed=st.integers(0, 99))
def test_iid_shares_out_every_class_evenly(peers: int, held_out: int, seed: int) -> None:
    labels = np.repeat([0, 1, 2], [50, 200, 333])
    partition = partitions.create("iid", held_out=held_out)(labels, peers=peers, seed=seed)
    train, held = partition.train_counts(), partition.held_out_counts()
    share = train + held
    assert share.sum(axis=0).tolist() == [50, 200, 333]
    assert (share.max(axis=0) - share.min(axis=0) <= 1).all()
    np.testing.assert_array_equal(held, np.minimum(held_out, share // 2))


def test_iid_leaves_out_classes_without_samples() -> None:
    partition = partitions.create("iid", samples=1, held_out=0)([0, 0, 2, 2], peers=2)
    assert partition.train_counts().tolist() == [[1, 0, 1], [1, 0, 1]]


@given(
    lists=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=10),
    samples=st.none() | st.integers(1, 3),
)
def test_class_lists_are_honoured(lists: list[list[int]], samples: int | None) -> None:
    partition = partitions.create("classes", lists=lists, samples=samples)(LABELS)
    held = [np.flatnonzero(row).tolist() for row in partition.train_counts()]
    assert held == [sorted(set(row)) for row in lists]


def test_class_lists_by_name() -> None:
    x, y = np.zeros((60, 1)), np.arange(60) % 3
    data = Dataset(x, y, x, y, classes=("ant", "bee", "cow"))
    partition = partitions.create("classes", lists=[["cow", "ant"], [1]], samples=1, held_out=1)(data)
    assert partition.train_counts().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_bad_class_lists() -> None:
    with pytest.raises(ValueError, match="peers=3, but there are 2 class lists: give one list per peer"):
        partitions.create("classes", lists=[[0], [1]])(LABELS, peers=3)
    with pytest.raises(ValueError, match=r"lists\[1\] is empty: give every peer at least one class"):
        partitions.create("classes", lists=[[0], []])(LABELS)
    for wrong in (10, -1, "ant"):
        with pytest.raises(
            ValueError, match=rf"lists\[0\] names the class '?{wrong}'?: give numbers below 10 or names: 0, 1"
        ):
            partitions.create("classes", lists=[[wrong]])(LABELS)


@pytest.mark.parametrize("k", [0, 11])
def test_bad_number_of_classes(k: int) -> None:
    with pytest.raises(ValueError, match=f"classes_per_peer={k}: labels has 10 classes, give 1 to 10"):
        partitions.create("consecutive", classes_per_peer=k)(LABELS, peers=2)
