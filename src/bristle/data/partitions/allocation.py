"""From numbers of samples per peer and class to lists of samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i is `flat[offsets[i]:offsets[i + 1]]`.

    Parameters
    ----------
    flat
        All rows, concatenated.
    offsets
        Start of each row, and the end: `[rows + 1]`.
    """

    flat: Indices
    offsets: Indices

    @classmethod
    def from_lengths(cls, flat: Indices, lengths: Indices) -> "Ragged":
        """Cut a flat array into rows of the given lengths."""
        return cls(flat, np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Indices:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Indices:
        """Length of every row."""
        return np.diff(self.offsets)

    def rows(self, chosen: Indices) -> "Ragged":
        """Return some of the rows."""
        lengths = self.lengths[chosen]
        return Ragged.from_lengths(self.flat[spread(self.offsets[chosen], lengths)], lengths)

    def padded(self) -> Indices:
        """Return all rows in one array `[rows, longest]`, padded with -1."""
        lengths = self.lengths
        table = np.full((len(self), int(lengths.max(initial=0))), -1, dtype=np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = self.flat
        return table


def spread(starts: Indices, lengths: Indices) -> Indices:
    """Return the concatenated ranges `starts[i], .., starts[i] + lengths[i] - 1`."""
    before = np.cumsum(lengths) - lengths
    positions: Indices = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
    return positions


@dataclass(frozen=True, eq=False)
class Pools:
    """Samples in groups.

    Parameters
    ----------
    of_sample
        Pool of every sample.
    count
        Number of pools.
    title
        Returns the name of a pool for errors, e.g. `mnist: class '3'`.
    """

    of_sample: Indices
    count: int
    title: Callable[[int], str]

    def sizes(self) -> Indices:
        """Count the samples of every pool."""
        return np.bincount(self.of_sample, minlength=self.count)


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers of samples per peer and pool, ordered by peer and then by pool; arrays of one length.

    Parameters
    ----------
    peer, pool
        Each pair of a peer and a pool, once.
    train, held_out
        Number of training and of held-out samples.
    """

    peer: Indices
    pool: Indices
    train: Indices
    held_out: Indices


def allocate(
    cells: Cells, pools: Pools, *, peers: int, reuse: bool, rng: np.random.Generator
) -> tuple[Ragged, Ragged, bool]:
    """Deal samples to cells.

    While a pool has enough samples, its cells get consecutive pieces of the shuffled pool: no sample twice, and a
    peer's samples do not depend on the peers after it. Otherwise, with `reuse`, the pool is split once into a training
    and a held-out part, and each part is dealt repeatedly, shuffled every time. In either case held-out samples of one
    peer are trained on by none.

    Returns
    -------
    train, held_out, reused
        Indices of samples per peer, and whether any pool was dealt more than once.
    """
    sizes = pools.sizes()
    shuffled = rng.permutation(len(pools.of_sample))
    deck = shuffled[np.argsort(pools.of_sample[shuffled], kind="stable")]
    deck_start = np.cumsum(sizes) - sizes

    by_pool = np.argsort(cells.pool, kind="stable")
    owners = np.bincount(cells.pool, minlength=pools.count)
    first_owner = np.cumsum(owners) - owners
    wanted = (cells.train + cells.held_out)[by_pool]
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(wanted)])
    demand = before[first_owner + owners] - before[first_owner]

    train_start = np.empty(len(by_pool), dtype=np.int64)
    train_start[by_pool] = before[:-1] + np.repeat(deck_start - before[first_owner], owners)
    held_out_start = train_start + cells.train
    decks, dealt = [deck], len(deck)
    short = np.flatnonzero(demand > sizes)
    for pool in map(int, short):
        mine = by_pool[first_owner[pool] : first_owner[pool] + owners[pool]]
        samples = deck[deck_start[pool] : deck_start[pool] + sizes[pool]]
        _check_supply(cells.train[mine], cells.held_out[mine], len(samples), title=pools.title(pool), reuse=reuse)
        cut = _training_part(cells.train[mine], cells.held_out[mine], len(samples))
        for counts, starts, part in (
            (cells.train, train_start, samples[:cut]),
            (cells.held_out, held_out_start, samples[cut:]),
        ):
            again, at = _deal_again(counts[mine], part, rng)
            starts[mine] = dealt + at
            decks.append(again)
            dealt += len(again)

    source = np.concatenate(decks)
    train, held_out = (
        Ragged.from_lengths(source[spread(starts, counts)], _sums(cells.peer, counts, peers))
        for starts, counts in ((train_start, cells.train), (held_out_start, cells.held_out))
    )
    return train, held_out, len(short) > 0


def _check_supply(train: Indices, held_out: Indices, size: int, *, title: str, reuse: bool) -> None:
    if not reuse:
        raise ValueError(
            f"{title} has {size:,} samples, but its {len(train):,} peers need {train.sum():,} to train on "
            f"and {held_out.sum():,} held out: lower samples, held_out or peers, "
            "or let peers share samples with reuse=True"
        )
    if train.max() + held_out.max() > size:
        raise ValueError(
            f"{title} has {size:,} samples, but one peer alone needs {train.max():,} to train on and "
            f"{held_out.max():,} held out: lower samples or held_out"
        )


def _training_part(train: Indices, held_out: Indices, size: int) -> int:
    """Return the number of training samples of a reused pool: proportional to demand, but enough for any cell."""
    share = round(size * train.sum() / (train.sum() + held_out.sum()))
    return int(np.clip(share, train.max(), size - held_out.max()))


def _deal_again(counts: Indices, samples: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Deal pieces of `counts.max()` samples; a piece lies within one shuffle, so it has no sample twice."""
    width = int(counts.max())
    if width == 0:
        return samples[:0], np.zeros(len(counts), dtype=np.int64)
    pieces = len(samples) // width
    shuffles = -(-len(counts) // pieces)
    dealt = rng.permuted(np.tile(samples, (shuffles, 1)), axis=1)
    shuffle, piece = np.divmod(np.arange(len(counts)), pieces)
    return dealt.ravel(), shuffle * len(samples) + piece * width


def _sums(peer: Indices, counts: Indices, peers: int) -> Indices:
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    ends = np.searchsorted(peer, np.arange(peers + 1))
    return np.diff(before[ends])
