import numpy as np
import pytest

from bristle.data import Partition, partitions
from bristle.data.partitions import Ragged

LABELS = np.arange(1_200) % 3


@pytest.fixture
def partition() -> Partition:
    return partitions.create("consecutive", classes_per_peer=2, samples=2, held_out=3)(LABELS, peers=4, seed=0)


def test_table_says_who_holds_what(partition: Partition) -> None:
    assert partition.table().splitlines() == [
        "peer    0    1    2    sum",
        "   0  2+3  2+3    .    4+6",
        "   1    .  2+3  2+3    4+6",
        "   2  2+3    .  2+3    4+6",
        "   3  2+3  2+3    .    4+6",
        " all  6+9  6+9  4+6  16+24",
        "4 peers, training+held-out samples; no sample belongs to two peers",
    ]


def test_table_is_cut_but_its_sums_are_not(partition: Partition) -> None:
    assert partition.table(rows=2, columns=1).splitlines() == [
        "peer    0  ...    sum",
        "   0  2+3  ...    4+6",
        "   1    .  ...    4+6",
        " ...",
        " all  6+9  ...  16+24",
        "4 peers, training+held-out samples; no sample belongs to two peers",
    ]


def test_counts(partition: Partition) -> None:
    assert partition.train_counts().tolist() == [[2, 2, 0], [0, 2, 2], [2, 0, 2], [2, 2, 0]]
    assert partition.held_out_counts().tolist() == [[3, 3, 0], [0, 3, 3], [3, 0, 3], [3, 3, 0]]


def test_padded_arrays() -> None:
    partition = Partition(
        train=Ragged.from_lengths(np.array([4, 5, 6]), np.array([1, 2])),
        held_out=Ragged.from_lengths(np.array([7, 8]), np.array([2, 0])),
        labels=LABELS,
        classes=("0", "1", "2"),
        reused=False,
    )
    batch = partition.padded()
    assert batch.train.tolist() == [[4, -1], [5, 6]]
    assert batch.held_out.tolist() == [[7, 8], [-1, -1]]


def test_blocks_of_peers(partition: Partition) -> None:
    whole = partition.padded()
    np.testing.assert_array_equal(partition.take(slice(1, 3)).padded().train, whole.train[1:3])
    np.testing.assert_array_equal(partition.take([3, 0]).padded().held_out, whole.held_out[[3, 0]])
    assert partition.take(slice(1, 3)).peers == 2
