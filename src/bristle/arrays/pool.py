"""Many receivers of the same senders."""

from __future__ import annotations

from dataclasses import dataclass

from bristle.arrays.namespace import Array


@dataclass(frozen=True)
class Pool:
    """Heads that are stored once, and for each receiver the positions of those that it hears.

    Parameters
    ----------
    heads : array [P, C, D]
        One head per sender.
    index : integer array [..., M]
        For each receiver, which heads it received. A receiver that hears fewer than M is masked in the call.
    """

    heads: Array
    index: Array

    def gather(self) -> Array:
        """Return the equivalent plain array [..., M, C, D]: a copy per receiver."""
        return self.heads[self.index, ...]
