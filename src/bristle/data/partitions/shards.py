"""Shards: the partition of the paper that introduced federated averaging."""

from dataclasses import dataclass

import numpy as np

from bristle.data.partitions.allocation import Cells, Pools
from bristle.data.partitions.partitioner import ReusingPartitioner, Source, hold_out_of
from bristle.data.partitions.ragged import Indices, spread


@dataclass(frozen=True, kw_only=True)
class Shards(ReusingPartitioner):
    """Sort the samples by class, cut them into equal shards, deal `shards_per_peer` of them to each peer.

    Samples of a class are shuffled first, so a shard is a number of samples of one class, or of
    neighbouring ones where it lies across a border.

    Parameters
    ----------
    shards_per_peer
        How many shards a peer gets.
    shard_size
        Samples per shard; None: everything is used, in shards that differ by at most one sample. With `reuse`
        and a size, shards are dealt again when all are given away.

    References
    ----------
    McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data. AISTATS 2017.
    """

    shards_per_peer: int = 2
    shard_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shards_per_peer < 1:
            raise ValueError(f"shards_per_peer={self.shards_per_peer}: give at least 1")
        if self.shard_size is not None and self.shard_size < 1:
            raise ValueError(f"shard_size={self.shard_size}: give at least 1, or None to use everything")

    def demand(self, source: Source, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Say how many samples each peer gets, from which pools."""
        count, classes = len(source.labels), len(source.classes)
        needed = peers * self.shards_per_peer
        available = needed if self.shard_size is None else count // self.shard_size
        if available > count or available < 1 or (needed > available and not self.reuse):
            raise ValueError(
                f"{source.name}: {count:,} samples make {min(available, count):,} shards, "
                f"but {peers:,} peers with {self.shards_per_peer} each need {needed:,}: "
                "lower peers or shards_per_peer, or give a shard_size and reuse=True"
            )
        used = count if self.shard_size is None else available * self.shard_size
        ends = np.arange(available + 1) * used // available
        shard = np.repeat(np.arange(available), np.diff(ends))
        held, parts = np.unique(shard * classes + np.sort(source.labels)[:used], return_counts=True)

        owner_of_slot = np.repeat(np.arange(peers), self.shards_per_peer)
        shard_of_slot = _deal(available, needed, rng)
        per_shard = np.bincount(held // classes, minlength=available)
        first = np.cumsum(per_shard) - per_shard
        pieces = per_shard[shard_of_slot]
        at = spread(first[shard_of_slot], pieces)
        cell, which = np.unique(np.repeat(owner_of_slot, pieces) * classes + held[at] % classes, return_inverse=True)
        share = np.bincount(which, weights=parts[at]).astype(np.int64)
        train, held_out = hold_out_of(share, held_out=self.held_out, samples=self.samples)
        return source.class_pools(), Cells(cell // classes, cell % classes, train, held_out)


def _deal(shards: int, needed: int, rng: np.random.Generator) -> Indices:
    """Deal shards from as many shuffled decks as it takes."""
    decks = -(-needed // shards)
    return rng.permuted(np.tile(np.arange(shards), (decks, 1)), axis=1).ravel()[:needed]
