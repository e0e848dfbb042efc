"""Partitions that say which classes a peer has."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bristle.data.partitions.allocation import Cells, Pools
from bristle.data.partitions.partitioner import ReusingPartitioner, Source, hold_out_of
from bristle.data.partitions.ragged import Indices


@dataclass(frozen=True, kw_only=True)
class ByClass(ReusingPartitioner):
    """Peers have certain classes, and the same number of samples of each of them.

    With `samples=None` a class of m samples and o owners gives each of them floor(m/o) or ceil(m/o); who gets
    one more is drawn per class, so that it evens out.
    """

    @abstractmethod
    def holdings(self, source: Source, peers: int) -> tuple[Indices, Indices]:
        """Peers and classes, as pairs ordered by peer and class."""

    def demand(self, source: Source, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Say how many samples each peer gets, from which pools."""
        peer, held_class = self.holdings(source, peers)
        pools = source.class_pools()
        if self.samples is not None:
            train = np.full(len(peer), self.samples, dtype=np.int64)
            return pools, Cells(peer, held_class, train, np.full_like(train, self.held_out))
        share = _equal_shares(held_class, pools.sizes(), rng)
        given = share > 0
        train, held = hold_out_of(share[given], held_out=self.held_out, samples=None)
        return pools, Cells(peer[given], held_class[given], train, held)


@dataclass(frozen=True, kw_only=True)
class IID(ByClass):
    """Every peer has every class."""

    def holdings(self, source: Source, peers: int) -> tuple[Indices, Indices]:
        """Peers and classes, as pairs ordered by peer and class."""
        present = np.unique(source.labels)
        return np.repeat(np.arange(peers), len(present)), np.tile(present, peers)


@dataclass(frozen=True, kw_only=True)
class Consecutive(ByClass):
    """Peer i has the classes {i, .., i + k - 1} mod C, as in the experiments of the Bristle paper.

    Parameters
    ----------
    classes_per_peer
        The k above.
    """

    classes_per_peer: int = 4

    def holdings(self, source: Source, peers: int) -> tuple[Indices, Indices]:
        """Peers and classes, as pairs ordered by peer and class."""
        k, count = self.classes_per_peer, len(source.classes)
        if not 1 <= k <= count:
            raise ValueError(f"classes_per_peer={k}: {source.name} has {count} classes, give 1 to {count}")
        classes = np.sort((np.arange(peers)[:, None] + np.arange(k)) % count, axis=1)
        return np.repeat(np.arange(peers), k), classes.ravel()


@dataclass(frozen=True, kw_only=True)
class Classes(ByClass):
    """Peer i has the classes in `lists[i]`.

    Parameters
    ----------
    lists
        For every peer its classes, by number or by name.
    """

    lists: Sequence[Sequence[int | str]]

    def count_peers(self, source: Source, peers: int | None) -> int:
        """As many as there are lists."""
        if peers is not None and peers != len(self.lists):
            raise ValueError(f"peers={peers}, but there are {len(self.lists)} class lists: give one list per peer")
        return len(self.lists)

    def holdings(self, source: Source, peers: int) -> tuple[Indices, Indices]:
        """Peers and classes, as pairs ordered by peer and class."""
        numbers = {name: number for number, name in enumerate(source.classes)}
        rows = [sorted({self._number(entry, peer, numbers) for entry in row}) for peer, row in enumerate(self.lists)]
        empty = next((peer for peer, row in enumerate(rows) if not row), None)
        if empty is not None:
            raise ValueError(f"lists[{empty}] is empty: give every peer at least one class")
        peer = np.repeat(np.arange(peers), [len(row) for row in rows])
        return peer, np.array([number for row in rows for number in row], dtype=np.int64)

    @staticmethod
    def _number(entry: int | str, peer: int, numbers: dict[str, int]) -> int:
        number = numbers.get(entry, -1) if isinstance(entry, str) else int(entry)
        if not 0 <= number < len(numbers):
            known = ", ".join(list(numbers)[:20])
            raise ValueError(
                f"lists[{peer}] names the class {entry!r}: give numbers below {len(numbers)} or names: {known}"
            )
        return number


def _equal_shares(pool: Indices, sizes: Indices, rng: np.random.Generator) -> Indices:
    """Share of every cell when each pool is shared out evenly among its cells."""
    owners = np.bincount(pool, minlength=len(sizes))
    order = np.argsort(pool, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(pool)) - np.repeat(np.cumsum(owners) - owners, owners)
    base, extra = np.divmod(sizes, np.maximum(owners, 1))
    turn = rng.integers(0, np.maximum(owners, 1))
    lucky = (rank - turn[pool]) % owners[pool] < extra[pool]
    return base[pool] + lucky
