"""Some of the peers: taking their rows from arrays, and putting rows back."""

from __future__ import annotations

import numpy as np

from bristle._core import Array, namespace
from bristle._core.arrays import from_numpy
from bristle.simulation.topology import Integers

# A pool of more heads than so many times those that a receiver hears (and its own) is not worked on as a whole.
SPARSE = 8


def rows_of(values: Array, rows: Integers | None) -> Array:
    """Return `values[rows]`, in any library, to be read only; None: all of them."""
    if rows is None:
        return values
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(rows[1:] > rows[:-1])):
        return values[int(rows[0]) : int(rows[-1]) + 1, ...]  # Those that follow each other need not be copied.
    return namespace(values).take(values, from_numpy(rows, like=values), axis=0)


def replaced(values: Array, rows: Integers | None, new: Array) -> Array:
    """Return `values` with `new` in the place of `rows` (None: of all); nothing is overwritten."""
    if rows is None:
        return new
    count = int(values.shape[0])
    source = np.arange(count)
    source[rows] = count + np.arange(len(rows))
    xp = namespace(values)
    return xp.take(xp.concat([values, new], axis=0), from_numpy(source, like=values), axis=0)


def heard(pools: list[Array], index: Integers, rows: Integers | None) -> tuple[Array, Integers]:
    """Return the heads of some pools [P, C, D], one after the other, and where in them `index` [B, M] points.

    For some of all receivers (`rows`) that hear few of the heads, only heads that anybody of them hears are returned:
    the others would be copied and checked again for every part of the receivers.
    """
    xp, total = namespace(*pools), sum(int(pool.shape[0]) for pool in pools)
    least = SPARSE * (index.shape[1] + 1)
    if rows is not None and total > least:
        wanted = np.zeros(total, dtype=np.bool)
        wanted[index.ravel()] = True
        needed = np.flatnonzero(wanted)
        if len(needed) > least:
            place = np.empty(total, dtype=np.int64)
            place[needed] = np.arange(len(needed))
            starts = np.cumsum([0, *(int(pool.shape[0]) for pool in pools)])
            cuts = np.searchsorted(needed, starts)
            parts = [
                rows_of(pool, needed[first:last] - start)
                for pool, start, first, last in zip(pools, starts[:-1], cuts[:-1], cuts[1:], strict=True)
                if last > first
            ]
            return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0), place[index]
    return pools[0] if len(pools) == 1 else xp.concat(pools, axis=0), index
