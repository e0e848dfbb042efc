from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import simulate
from bristle.data import Dataset, partitions

LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2])


def split(lists: Any, **options: Any) -> partitions.Partition:
    return partitions.create("indices", lists=lists, **options)(LABELS)


def test_peers_have_the_samples_of_their_lists_and_hold_out_at_most_half_of_a_class() -> None:
    lists: list[Any] = [[4, 0, 1, 2, 3], np.array([9, 5, 8])]
    partition = split(lists, held_out=1)
    assert partition.peers == 2
    for peer, own in enumerate(lists):
        found = [*partition.train[peer].tolist(), *partition.held_out[peer].tolist()]
        assert sorted(found) == sorted(int(place) for place in own)
    np.testing.assert_array_equal(partition.train_counts(), [[3, 1, 0], [0, 1, 1]])
    np.testing.assert_array_equal(partition.held_out_counts(), [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(split(lists, held_out=0, samples=2).train_counts(), [[2, 1, 0], [0, 1, 2]])


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[0, 1], [10]], r"lists\[1\] has the index 10: labels has 10 training samples, give 0 to 9"),
        ([[0, -1]], r"lists\[0\] has the index -1"),
        ([[0, 1], [2, 1]], r"lists\[1\] has the index 1, which is in lists\[0\]: give every sample to one peer"),
        ([[0, 3, 0]], r"lists\[0\] has an index twice"),
        ([[0], []], r"lists\[1\] is not a list of indices"),
        ([[0], ["a"]], r"lists\[1\] is not a list of indices"),
        ([3, 4], r"lists\[0\] is not a list of indices"),
    ],
)
def test_impossible_lists_are_said_in_one_line(lists: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(lists)


def test_there_are_as_many_peers_as_lists() -> None:
    with pytest.raises(ValueError, match="peers=3, but there are 2 lists of indices: give one list per peer"):
        partitions.create("indices", lists=[[0], [1]])(LABELS, peers=3)


def test_a_world_takes_lists_as_its_partition() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    x = rng.normal(size=(60, 3)) + labels[:, None] * 3
    config = {
        "world": {"peers": 2, "iterations": 2},
        "data": {"backbone": "none"},
        "partition": {"name": "indices", "lists": [list(range(30)), list(range(30, 40))], "held_out": 2},
    }
    row = simulate(config, data=Dataset.from_arrays(x, labels, test_share=0.2)).last()
    assert (row["peers"], row["classes_per_peer"]) == (2, 2)
