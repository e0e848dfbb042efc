"""Sorting each coordinate's values where they lie side by side: for many large models this wins over a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from bristle.arrays.namespace import Array
from bristle.arrays.threads import in_threads

# Fewer rows are sorted sooner by a network, and so are fewer numbers, which are not worth a thread.
LEAST_ROWS, LEAST_NUMBERS = 48, 1 << 21
# Numbers at a time: they are copied, turned and sorted within a core's cache.
BLOCK = 1 << 16
# Numbers between rows: at distances of a power of two they would compete for the same places in the cache.
GAP = 16


def sorts_columns(xp: Any, rows: int, width: int) -> bool:
    """Tell whether models of `width` numbers are better sorted by columns.

    Not a matter of how many threads there are: the last bits of a sum depend on the way, and must not on the machine.
    """
    return xp is np and rows >= LEAST_ROWS and rows * width >= LEAST_NUMBERS


def sums_of_sorted_columns(own: Array, models: Array, wanted: range) -> Array:
    """Sum [B, F] of each coordinate's values at the sorted positions `wanted`, of own [B, F] and models [B, k, F]."""
    batch, received, width = models.shape
    total = np.empty((batch, width), dtype=own.dtype)
    columns = max(16, BLOCK // (received + 1))
    ones = np.ones(len(wanted), dtype=own.dtype)

    def work(first: int, last: int) -> None:
        room = np.empty((received + 1, columns + GAP), dtype=own.dtype)
        turned = np.empty((columns, received + 1), dtype=own.dtype)
        for b in range(batch):
            for start in range(first * columns, min(last * columns, width), columns):
                stop = min(start + columns, width)
                block, by_column = room[:, : stop - start], turned[: stop - start]
                block[0], block[1:] = own[b, start:stop], models[b, :, start:stop]
                by_column[...] = block.T
                by_column.sort(axis=-1)
                np.vecdot(by_column[:, wanted.start : wanted.stop], ones, out=total[b, start:stop])

    in_threads(work, -(-width // columns))
    return total
