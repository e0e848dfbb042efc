"""Partitions by class, in shards, by Dirichlet mixtures and by natural users."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle.data.partitions.allocation import Cells, Indices, Pools, spread
from bristle.data.partitions.base import Partitioner, ReusingPartitioner, SampleSource, hold_out_of


@dataclass(frozen=True, kw_only=True)
class ByClass(ReusingPartitioner):
    """Peers have certain classes, and the same number of samples of each.

    With `samples=None` each of the o owners of a class of m samples gets floor(m/o) or ceil(m/o), drawn per class.
    """

    @abstractmethod
    def holdings(self, source: SampleSource, peers: int) -> tuple[Indices, Indices]:
        """Return peers and classes, as pairs ordered by peer and class."""

    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""
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

    def holdings(self, source: SampleSource, peers: int) -> tuple[Indices, Indices]:
        """Return peers and classes, as pairs ordered by peer and class."""
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

    def holdings(self, source: SampleSource, peers: int) -> tuple[Indices, Indices]:
        """Return peers and classes, as pairs ordered by peer and class."""
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

    def count_peers(self, source: SampleSource, peers: int | None) -> int:
        """Return the number of lists."""
        if peers is not None and peers != len(self.lists):
            raise ValueError(f"peers={peers}, but there are {len(self.lists)} class lists: give one list per peer")
        return len(self.lists)

    def holdings(self, source: SampleSource, peers: int) -> tuple[Indices, Indices]:
        """Return peers and classes, as pairs ordered by peer and class."""
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
    """Return the share of every cell when each pool is divided evenly among its cells."""
    owners = np.bincount(pool, minlength=len(sizes))
    order = np.argsort(pool, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(pool)) - np.repeat(np.cumsum(owners) - owners, owners)
    base, extra = np.divmod(sizes, np.maximum(owners, 1))
    turn = rng.integers(0, np.maximum(owners, 1))
    lucky = (rank - turn[pool]) % owners[pool] < extra[pool]
    return base[pool] + lucky


@dataclass(frozen=True, kw_only=True)
class Shards(ReusingPartitioner):
    """Sort the samples by class, cut them into equal shards, deal `shards_per_peer` of them to each peer.

    Samples of a class are shuffled first: a shard has samples of one class, or of two neighbouring ones.

    Parameters
    ----------
    shards_per_peer
        Number of shards of a peer.
    shard_size
        Samples per shard; None: all samples, in shards that differ by at most one sample. With `reuse` and a size,
        shards are dealt again when all are taken.

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

    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""
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
    """Deal shards from as many shuffled decks as needed."""
    decks = -(-needed // shards)
    return rng.permuted(np.tile(np.arange(shards), (decks, 1)), axis=1).ravel()[:needed]


@dataclass(frozen=True, kw_only=True)
class Dirichlet(ReusingPartitioner):
    """q_i ~ Dirichlet(alpha, .., alpha): peer i has the classes in the proportions q_i.

    With `samples=n` every peer has n * C training samples (C classes), divided by q_i, and `held_out` samples
    of each class that it trains. With `samples=None` all samples of class c are distributed, to peer i the
    fraction q_ic / sum_j q_jc, so that peers differ in size as well. Numbers are rounded by largest remainder.

    Parameters
    ----------
    alpha
        Concentration: 0.1 is strongly uneven, 100 nearly i.i.d.

    References
    ----------
    Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification. 2019.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha < np.inf:
            raise ValueError(f"alpha={self.alpha}: give a positive number, e.g. 0.5")

    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""
        pools = source.class_pools()
        sizes = pools.sizes()
        present = np.flatnonzero(sizes)
        mixture = rng.dirichlet(np.full(len(present), self.alpha), size=peers)
        if self.samples is None:
            mixture += np.finfo(np.float64).tiny  # a small alpha rounds a class to 0 for every peer: share it evenly
            parts = mixture / mixture.sum(axis=0)
            share = np.stack([_round(part, total) for part, total in zip(parts.T, sizes[present], strict=True)], axis=1)
            peer, column = np.nonzero(share)
            train, held = hold_out_of(share[peer, column], held_out=self.held_out, samples=None)
        else:
            share = _round(mixture, self.samples * len(sizes))
            peer, column = np.nonzero(share)
            train = share[peer, column]
            held = np.full_like(train, self.held_out)
        return pools, Cells(peer, present[column], train, held)


def _round(parts: npt.NDArray[np.float64], total: int) -> Indices:
    """Return integers in proportion to `parts` along the last axis that sum to `total`; ties go to the first."""
    exact = parts * total
    whole = np.floor(exact).astype(np.int64)
    missing = total - whole.sum(axis=-1)
    order = np.argsort(whole - exact, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(parts.shape[-1]), parts.shape), axis=-1)
    rounded: Indices = whole + (rank < missing[..., None])
    return rounded


@dataclass(frozen=True, kw_only=True)
class OwnSamples(Partitioner):
    """Peers have certain samples, of which some are held out."""

    def _owned(
        self, source: SampleSource, owner: Indices, peer_of_owner: Indices, words: Callable[[int], str]
    ) -> tuple[Pools, Cells]:
        """Return the samples of each peer from those of its owner; owners without a peer (-1) are left out."""
        classes = len(source.classes)
        pair, pool, sizes = np.unique(owner * classes + source.labels, return_inverse=True, return_counts=True)
        peer = peer_of_owner[pair // classes]
        kept = np.flatnonzero(peer >= 0)
        train, held = hold_out_of(sizes[kept], held_out=self.held_out, samples=self.samples)
        pools = Pools(pool, len(pair), lambda at: f"{source.name}: {words(int(pair[at] // classes))}")
        return pools, Cells(peer[kept], kept, train, held)


@dataclass(frozen=True, kw_only=True)
class Natural(OwnSamples):
    """Peer i has the samples of user i, in the order of their names; needs a dataset with a `user` column.

    With fewer peers than users, users are drawn. `samples` limits the training samples per class of a peer.
    """

    def count_peers(self, source: SampleSource, peers: int | None) -> int:
        """Return the number of users, unless fewer peers are wanted."""
        if source.user is None:
            raise ValueError(
                f"{source.name}: no user column, which natural needs: give user=, or use another partition"
            )
        users = len(np.unique(source.user))
        if peers is not None and peers > users:
            raise ValueError(f"{source.name}: peers={peers}, but there are {users} users: ask for at most {users}")
        return users if peers is None else peers

    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""
        names, user = np.unique(np.asarray(source.user), return_inverse=True)
        chosen = np.sort(rng.permutation(len(names))[:peers]) if peers < len(names) else np.arange(len(names))
        peer_of_user = np.full(len(names), -1)
        peer_of_user[chosen] = np.arange(peers)
        return self._owned(source, user, peer_of_user, lambda owner: f"user {names[owner]}")


@dataclass(frozen=True, kw_only=True)
class IndexLists(OwnSamples):
    """Peer i has the training samples in `lists[i]`; samples in no list are left out.

    `samples` limits the training samples per class of a peer.

    Parameters
    ----------
    lists
        Positions of each peer's samples in the training set, from 0. No sample is in two lists.
    """

    lists: Sequence[npt.ArrayLike]

    def count_peers(self, source: SampleSource, peers: int | None) -> int:
        """Return the number of lists."""
        if peers is not None and peers != len(self.lists):
            raise ValueError(f"peers={peers}, but there are {len(self.lists)} lists of indices: give one list per peer")
        return len(self.lists)

    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""
        owner = np.full(len(source.labels), peers)
        for peer, given in enumerate(self.lists):
            index = np.asarray(given)
            if index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
                raise ValueError(f"lists[{peer}] is not a list of indices: give every peer at least one, from 0")
            if index.min() < 0 or index.max() >= len(owner):
                wrong = int(index.min() if index.min() < 0 else index.max())
                raise ValueError(
                    f"lists[{peer}] has the index {wrong}: {source.name} has {len(owner):,} training samples, "
                    f"give 0 to {len(owner) - 1}"
                )
            taken = index[owner[index] < peers]
            if len(taken):
                raise ValueError(
                    f"lists[{peer}] has the index {taken[0]}, which is in lists[{owner[taken[0]]}]: "
                    "give every sample to one peer"
                )
            if len(np.unique(index)) < len(index):
                raise ValueError(f"lists[{peer}] has an index twice: give every sample once")
            owner[index] = peer
        peer_of_owner = np.append(np.arange(peers), -1)
        return self._owned(source, owner, peer_of_owner, lambda owner: f"lists[{owner}]")
