"""Sorting that is stable everywhere, and a sorting network that sorts whole rows at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from bristle.arrays.namespace import Array, take_rows

# Beyond this many rows the library's own sort wins over the network's n log^2(n) / 4 comparators.
LARGEST_NETWORK = 384


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


def sort_rows(xp: Any, rows: Array, *, wanted: range | None = None, as_set: bool = False) -> list[Array]:
    """Sort an array [n, ...] along its first axis, elementwise, and return the sorted rows.

    Batcher's odd-even merge sort (1968) as a network of elementwise minima and maxima: each comparator
    handles whole rows, so that it runs at vector speed in every array library, where a sort along a short
    axis does not. Only the positions in `wanted` (all by default) need be right, or `as_set` only which values
    they hold together; comparators that do not matter are left out. `rows` may be overwritten.
    """
    count = rows.shape[0]
    if count > LARGEST_NETWORK:
        return _sorted_by_library(xp, rows)
    wanted = range(count) if wanted is None else wanted
    network = _network(count, wanted.start, wanted.stop, as_set)
    sorted_rows = [rows[i, ...] for i in range(count)]
    if xp is np:
        return _run_in_place(sorted_rows, network)
    for low, high, keep_low, keep_high in network:
        first, second = sorted_rows[low], sorted_rows[high]
        if keep_low:
            sorted_rows[low] = xp.minimum(first, second)
        if keep_high:
            sorted_rows[high] = xp.maximum(first, second)
    return sorted_rows


def _run_in_place(rows: list[Array], network: tuple[tuple[int, int, bool, bool], ...]) -> list[Array]:
    spare = np.empty_like(rows[0])
    for low, high, keep_low, keep_high in network:
        first, second = rows[low], rows[high]
        if keep_low and keep_high:
            np.minimum(first, second, out=spare)
            np.maximum(first, second, out=second)
            rows[low], spare = spare, first
        elif keep_low:
            np.minimum(first, second, out=first)
        else:
            np.maximum(first, second, out=second)
    return rows


def _sorted_by_library(xp: Any, rows: Array) -> list[Array]:
    if xp is np:  # A sort along contiguous memory is several times faster, the copy included.
        ordered = np.sort(np.ascontiguousarray(np.moveaxis(rows, 0, -1)), axis=-1)
        return list(np.ascontiguousarray(np.moveaxis(ordered, -1, 0)))
    ordered = xp.sort(rows, axis=0)
    return [ordered[i, ...] for i in range(rows.shape[0])]


@lru_cache(maxsize=256)
def _network(count: int, start: int, stop: int, as_set: bool) -> tuple[tuple[int, int, bool, bool], ...]:
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
