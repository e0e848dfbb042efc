"""Partitions: seeded ways to distribute training samples to peers.

>>> from bristle.data import mnist, partitions
>>> partition = partitions.create("consecutive", classes_per_peer=4, samples=2)(mnist(), peers=10, seed=0)
>>> print(partition.table())  # doctest: +SKIP
>>> partition.padded().train.shape
(10, 8)
"""

from typing import Any

from bristle._core.registry import Registry
from bristle.data.partitions.allocation import Ragged
from bristle.data.partitions.base import PaddedIndices, Partition, Partitioner
from bristle.data.partitions.schemes import IID, Classes, Consecutive, Dirichlet, IndexLists, Natural, Shards

__all__ = [
    "IID",
    "Classes",
    "Consecutive",
    "Dirichlet",
    "IndexLists",
    "Natural",
    "PaddedIndices",
    "Partition",
    "Partitioner",
    "Ragged",
    "Shards",
    "create",
    "names",
]

_PARTITIONS: dict[str, type[Partitioner]] = {
    "iid": IID,
    "consecutive": Consecutive,
    "shards": Shards,
    "dirichlet": Dirichlet,
    "classes": Classes,
    "natural": Natural,
    "indices": IndexLists,
}

PARTITIONS: Registry[Partitioner] = Registry("partition", Partitioner, _PARTITIONS, "bristle.partitions")


def names() -> tuple[str, ...]:
    """Return the names of all partitions: Bristle's own, then those of installed packages."""
    return PARTITIONS.names()


def create(name: str, **options: Any) -> Partitioner:
    """Make a partitioner by name, with its options, e.g. `create("dirichlet", alpha=0.1, samples=2)`.

    `module:name` and partitions of installed packages work as well.
    """
    return PARTITIONS.create(name, options)
