"""Who holds what."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bristle.data.partitions.ragged import Indices, Ragged


@dataclass(frozen=True, eq=False)
class PaddedIndices:
    """Indices of many peers' samples as rectangles; -1 is padding.

    Parameters
    ----------
    train
        `[peers, S]`, S being the most training samples that a peer has.
    held_out
        `[peers, T]`, likewise for held-out samples.
    """

    train: Indices
    held_out: Indices


@dataclass(frozen=True, eq=False)
class Partition:
    """Indices of training samples, shared out to peers.

    No index is held out by one peer and trained on by any. An index is in the rows of two peers only when
    `reused`.

    Parameters
    ----------
    train
        Row i: what peer i trains on, in the order of the classes.
    held_out
        Row i: what peer i tests received models on.
    labels
        Labels of all samples that were shared out.
    classes
        Names of the classes.
    reused
        Whether there were too few samples, so that some serve several peers.
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
        """Choose some of the peers, e.g. a block that fits the memory of a device."""
        chosen = np.arange(self.peers)[peers if isinstance(peers, slice) else np.asarray(peers)]
        return replace(self, train=self.train.rows(chosen), held_out=self.held_out.rows(chosen))

    def padded(self) -> PaddedIndices:
        """Make batch arrays; for very many peers `take` a block of them first."""
        return PaddedIndices(train=self.train.padded(), held_out=self.held_out.padded())

    def train_counts(self) -> Indices:
        """Training samples per peer and class, `[peers, classes]`."""
        return self._counts(self.train)

    def held_out_counts(self) -> Indices:
        """Held-out samples per peer and class, `[peers, classes]`."""
        return self._counts(self.held_out)

    def table(self, *, rows: int = 20, columns: int = 26) -> str:
        """Print who holds what: a line per peer, a column per class, `training+held-out` samples.

        Parameters
        ----------
        rows, columns
            Show at most so many peers and classes; the sums count all of them.
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
        shared = "some samples serve several peers" if self.reused else "no sample serves two peers"
        return "\n".join([*text, f"{self.peers:,} peers, training+held-out samples; {shared}"])

    def _counts(self, part: Ragged) -> Indices:
        peer = np.repeat(np.arange(self.peers), part.lengths)
        cell = peer * len(self.classes) + self.labels[part.flat]
        return np.bincount(cell, minlength=self.peers * len(self.classes)).reshape(self.peers, len(self.classes))

    def _class_sums(self, part: Ragged) -> Indices:
        return np.bincount(self.labels[part.flat], minlength=len(self.classes))


def _cell(train: int, held_out: int) -> str:
    return f"{train}+{held_out}" if train or held_out else "."
