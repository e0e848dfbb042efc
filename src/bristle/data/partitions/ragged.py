"""Rows of different lengths: one list of indices per peer, kept flat."""

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
        All rows one after another.
    offsets
        Where each row begins, and the end: `[rows + 1]`.
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
        """Choose some of the rows."""
        lengths = self.lengths[chosen]
        return Ragged.from_lengths(self.flat[spread(self.offsets[chosen], lengths)], lengths)

    def padded(self) -> Indices:
        """All rows in one array `[rows, longest]`, filled up with -1."""
        lengths = self.lengths
        table = np.full((len(self), int(lengths.max(initial=0))), -1, dtype=np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = self.flat
        return table


def spread(starts: Indices, lengths: Indices) -> Indices:
    """Write out the ranges `starts[i], .., starts[i] + lengths[i] - 1`, one after another."""
    before = np.cumsum(lengths) - lengths
    positions: Indices = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - before, lengths)
    return positions
