"""Sorting that is stable everywhere, and a sorting network that sorts whole rows at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from bristle.arrays.namespace import Array, take_rows

# Beyond this many rows the library's own sort wins over the network's n log^2(n) / 4 comparators.
LARGEST_NETWORK = 384


# Comparators: (low, high, whether the smaller values are needed, whether the larger ones are).
Network = tuple[tuple[int, int, bool, bool], ...]


def argsort(xp: Any, values: Array, *, axis: int = -1) -> Array:
    """Return the stable ascending order: equal values keep the order of their positions."""
    if xp is np:
        return np.argsort(values, axis=axis, kind="stable")
    return xp.argsort(values, axis=axis, stable=True)


def spread(xp: Any, chosen: Array, order: Array, fill: Any) -> Array:
    """Undo a selection: lay `chosen` [B, m, ...] out over the positions `order` [B, n] that it was taken from.

    The first m entries of each row of the permutation `order` say where the values come from; all other
    positions get `fill`.
    """
    batch, selected = chosen.shape[:2]
    if selected == 0:
        return xp.full((*order.shape, *chosen.shape[2:]), fill, dtype=chosen.dtype, device=chosen.device)
    rank = argsort(xp, order)
    if selected == order.shape[1]:
        return take_rows(xp, chosen, rank)
    padding = xp.full((batch, 1, *chosen.shape[2:]), fill, dtype=chosen.dtype, device=chosen.device)
    position = xp.where(rank < selected, rank, selected)
    return take_rows(xp, xp.concat([chosen, padding], axis=1), position)


class Workspace(threading.local):
    """Memory that sorting may use again: fresh memory costs as much as the sorting. One for each thread."""

    largest = 32 << 20
    """Bytes that are kept at most between calls."""
    gap = 16
    """Numbers between rows: at distances of a power of two they would compete for the same places in the cache."""

    def __init__(self) -> None:
        self._memory: Array = np.empty(0, dtype=np.float32)

    def rows(self, count: int, shape: tuple[int, ...], dtype: Any) -> list[Array]:
        """Return `count` uninitialised arrays of `shape`; what an earlier call returned is overwritten."""
        size = prod(shape)
        needed = count * (size + self.gap)
        memory = self._memory
        if memory.dtype != dtype or memory.size < needed:
            memory = np.empty(needed, dtype=dtype)
            if memory.nbytes <= self.largest:
                self._memory = memory
        laid_out = memory[:needed].reshape(count, size + self.gap)
        return [row[:size].reshape(shape) for row in laid_out]


def sort_rows(
    xp: Any,
    rows: Sequence[Array],
    *,
    wanted: range | None = None,
    as_set: bool = False,
    workspace: Workspace | None = None,
) -> list[Array]:
    """Sort n arrays of one shape elementwise: position i of the answer holds the i-th smallest values.

    Batcher's odd-even merge sort (1968) as a network of elementwise minima and maxima: each comparator
    handles whole rows, so that it runs at vector speed in every array library, where a sort along a short
    axis does not. Only the positions in `wanted` (all by default) need be right, or `as_set` only which values
    they hold together; comparators that do not matter are left out. `rows` stay as they are. With a `workspace`,
    the answer is only good until that is used again.
    """
    count = len(rows)
    if count > LARGEST_NETWORK:
        return _sorted_by_library(xp, xp.stack(list(rows)))
    wanted = range(count) if wanted is None else wanted
    network = _network(count, wanted.start, wanted.stop, as_set)
    if xp is np:
        return _run_numpy(rows, network, workspace or Workspace())
    ordered = list(rows)
    for low, high, keep_low, keep_high in network:
        first, second = ordered[low], ordered[high]
        if keep_low:
            ordered[low] = xp.minimum(first, second)
        if keep_high:
            ordered[high] = xp.maximum(first, second)
    return ordered


def _run_numpy(rows: Sequence[Array], network: Network, workspace: Workspace) -> list[Array]:
    """Run the network in work space of one row more than there are; the given rows are only read."""
    ordered = list(rows)
    free = workspace.rows(len(rows) + 1, rows[0].shape, rows[0].dtype)
    ours = [False] * len(rows)

    def place(position: int) -> Array:
        return ordered[position] if ours[position] else free.pop()

    for low, high, keep_low, keep_high in network:
        first, second = ordered[low], ordered[high]
        if keep_low and keep_high:
            smaller, larger = free.pop(), place(high)
            np.minimum(first, second, out=smaller)
            np.maximum(first, second, out=larger)
            if ours[low]:
                free.append(first)
            ordered[low], ordered[high] = smaller, larger
            ours[low] = ours[high] = True
        elif keep_low:
            ordered[low] = np.minimum(first, second, out=place(low))
            ours[low] = True
        else:
            ordered[high] = np.maximum(first, second, out=place(high))
            ours[high] = True
    return ordered


def _sorted_by_library(xp: Any, rows: Array) -> list[Array]:
    if xp is np:  # A sort along contiguous memory is several times faster, the copy included.
        ordered = np.sort(np.ascontiguousarray(np.moveaxis(rows, 0, -1)), axis=-1)
        return list(np.ascontiguousarray(np.moveaxis(ordered, -1, 0)))
    ordered = xp.sort(rows, axis=0)
    return [ordered[i, ...] for i in range(rows.shape[0])]


@lru_cache(maxsize=256)
def _network(count: int, start: int, stop: int, as_set: bool) -> Network:
    """Return the comparators (low, high, keep low, keep high) that positions start..stop-1 depend on.

    Wanted only as a set, two of these positions need no comparing with each other: their sum is the same.
    """
    in_set = set(range(start, stop)) if as_set else set()
    exact = set() if as_set else set(range(start, stop))
    network = []
    for low, high in reversed(_merge_sort_network(count)):
        if low in in_set and high in in_set:
            continue
        keep_low, keep_high = low in in_set | exact, high in in_set | exact
        if keep_low or keep_high:
            network.append((low, high, keep_low, keep_high))
            in_set -= {low, high}
            exact |= {low, high}
    return tuple(reversed(network))


def _merge_sort_network(count: int) -> list[tuple[int, int]]:
    comparators = []
    run = 1
    while run < count:
        step = run
        while step >= 1:
            for first in range(step % run, count - step, 2 * step):
                for low in range(first, first + min(step, count - first - step)):
                    if low // (2 * run) == (low + step) // (2 * run):
                        comparators.append((low, low + step))
            step //= 2
        run *= 2
    return comparators
