"""Partitions and partitioners: common parts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bristle.data.dataset import Dataset, check_labels
from bristle.data.partitions.allocation import Cells, Indices, Pools, Ragged, allocate


@dataclass(frozen=True, eq=False)
class PaddedIndices:
    """Indices of many peers' samples as rectangles; -1 is padding.

    Parameters
    ----------
    train
        `[peers, S]`, where S is the largest number of training samples of a peer.
    held_out
        `[peers, T]`, likewise for held-out samples.
    """

    train: Indices
    held_out: Indices


@dataclass(frozen=True, eq=False)
class Partition:
    """Indices of training samples, distributed to peers.

    Held-out indices of one peer are trained on by none. Two peers have the same index only when `reused`.

    Parameters
    ----------
    train
        Row i: training samples of peer i, in the order of the classes.
    held_out
        Row i: held-out samples of peer i.
    labels
        Labels of all samples.
    classes
        Names of the classes.
    reused
        Whether there were too few samples, so that several peers hold some.
    """

    train: Ragged
    held_out: Ragged
    labels: Indices
    classes: tuple[str, ...]
    reused: bool

    @property
    def peers(self) -> int:
        """Number of peers."""
        return len(self.train)

    def take(self, peers: slice | npt.ArrayLike) -> "Partition":
        """Return the partition of some of the peers, e.g. a block that fits the memory of a device."""
        chosen = np.arange(self.peers)[peers if isinstance(peers, slice) else np.asarray(peers)]
        return replace(self, train=self.train.rows(chosen), held_out=self.held_out.rows(chosen))

    def padded(self) -> PaddedIndices:
        """Return rectangular arrays; for very many peers `take` a block of them first."""
        return PaddedIndices(train=self.train.padded(), held_out=self.held_out.padded())

    def train_counts(self) -> Indices:
        """Training samples per peer and class, `[peers, classes]`."""
        return self._counts(self.train)

    def held_out_counts(self) -> Indices:
        """Return the number of held-out samples per peer and class, `[peers, classes]`."""
        return self._counts(self.held_out)

    def table(self, *, rows: int = 20, columns: int = 26) -> str:
        """Return a table as text: a line per peer, a column per class, `training+held-out` samples.

        Parameters
        ----------
        rows, columns
            Largest number of peers and classes to show; sums count all.
        """
        shown = self.take(slice(rows))
        more = ["..."] if len(self.classes) > columns else []

        def line(title: str, train: Indices, held_out: Indices) -> list[str]:
            cells = [_cell(n, t) for n, t in zip(train[:columns], held_out[:columns], strict=True)]
            return [title, *cells, *more, _cell(int(train.sum()), int(held_out.sum()))]

        lines = [["peer", *self.classes[:columns], *more, "sum"]]
        counts = zip(shown.train_counts(), shown.held_out_counts(), strict=True)
        lines += [line(str(peer), *pair) for peer, pair in enumerate(counts)]
        if self.peers > rows:
            lines.append(["...", *[""] * (len(lines[0]) - 1)])
        lines.append(line("all", self._class_sums(self.train), self._class_sums(self.held_out)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.rjust, row, widths)).rstrip() for row in lines]
        shared = "some samples belong to several peers" if self.reused else "no sample belongs to two peers"
        return "\n".join([*text, f"{self.peers:,} peers, training+held-out samples; {shared}"])

    def _counts(self, part: Ragged) -> Indices:
        peer = np.repeat(np.arange(self.peers), part.lengths)
        cell = peer * len(self.classes) + self.labels[part.flat]
        return np.bincount(cell, minlength=self.peers * len(self.classes)).reshape(self.peers, len(self.classes))

    def _class_sums(self, part: Ragged) -> Indices:
        return np.bincount(self.labels[part.flat], minlength=len(self.classes))


def _cell(train: int, held_out: int) -> str:
    return f"{train}+{held_out}" if train or held_out else "."


@dataclass(frozen=True, eq=False)
class SampleSource:
    """The samples to distribute: their labels, the names of the classes, and users if known."""

    labels: Indices
    classes: tuple[str, ...]
    user: npt.NDArray[np.generic] | None
    name: str

    @classmethod
    def of(cls, data: Dataset | npt.ArrayLike) -> "SampleSource":
        """Take the training samples of a dataset, or bare labels."""
        if isinstance(data, Dataset):
            return cls(data.y_train, data.classes, data.user, data.name)
        labels = check_labels(data, where="labels")
        if not len(labels):
            raise ValueError("labels are empty: give one class number per sample")
        return cls(labels, tuple(str(number) for number in range(labels.max() + 1)), None, "labels")

    def class_pools(self) -> Pools:
        """Return one pool per class."""
        return Pools(self.labels, len(self.classes), lambda pool: f"{self.name}: class {self.classes[pool]!r}")


@dataclass(frozen=True, kw_only=True)
class Partitioner(ABC):
    """A seeded way to distribute training samples to peers.

    Parameters
    ----------
    samples
        Training samples per class and peer; None: all samples are distributed.
    held_out
        Held-out samples per class and peer (the paper's kappa), on which a peer tests received heads. They are drawn
        from the same data, in addition to `samples`. If a peer's samples are limited (`samples=None`, shards, natural),
        at most half of those of a class are held out.
    """

    samples: int | None = None
    held_out: int = 10

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"samples={self.samples}: give at least 1 per class and peer, or None for all")
        if self.held_out < 0:
            raise ValueError(f"held_out={self.held_out}: give 0 or more samples per class and peer")

    def __call__(self, data: Dataset | npt.ArrayLike, *, peers: int | None = None, seed: int = 0) -> Partition:
        """Distribute the training samples of a dataset (or samples with these labels) to peers.

        Parameters
        ----------
        data
            A dataset, or labels `[samples]`.
        peers
            Number of peers. Explicit class lists and natural data determine it.
        seed
            Seed of the partition.
        """
        source = SampleSource.of(data)
        number = self.count_peers(source, peers)
        if number < 1:
            raise ValueError(f"peers={number}: give at least one peer")
        rng = np.random.default_rng(seed)
        pools, cells = self.demand(source, number, rng)
        train, held_out, reused = allocate(cells, pools, peers=number, reuse=self.may_reuse(), rng=rng)
        idle = np.flatnonzero(train.lengths == 0)
        if len(idle):
            raise ValueError(
                f"{source.name}: {len(idle):,} of {number:,} peers (the first is peer {idle[0]}) would get "
                "no training samples: use fewer peers, or give samples per class and reuse=True"
            )
        return Partition(train, held_out, source.labels, source.classes, reused)

    def count_peers(self, source: SampleSource, peers: int | None) -> int:
        """Return the number of peers, checked against the data or determined by it."""
        if peers is None:
            raise ValueError(f"{type(self).__name__} needs a number of peers, e.g. peers=10")
        return peers

    def may_reuse(self) -> bool:
        """Return whether several peers may hold the same sample."""
        return False

    @abstractmethod
    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""


@dataclass(frozen=True, kw_only=True)
class ReusingPartitioner(Partitioner):
    """A partitioner that can let peers share samples.

    Parameters
    ----------
    reuse
        If a class has too few samples for all its peers: False raises; True gives samples to several peers, each as
        often as any other. Held-out samples are still never trained on.
    """

    reuse: bool = False

    def may_reuse(self) -> bool:
        """Return whether several peers may hold the same sample."""
        return self.reuse


def hold_out_of(share: Indices, *, held_out: int, samples: int | None) -> tuple[Indices, Indices]:
    """Hold out `min(held_out, share // 2)` of a peer's samples of a class, and train on at most `samples`."""
    held = np.minimum(held_out, share // 2)
    train = share - held
    return (train if samples is None else np.minimum(train, samples)), held
