"""Stable sorts, and sorts of many models coordinate by coordinate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from bristle._core.arrays import Array, take_rows
from bristle._core.sorting_network import GIVEN, Plan, Run, network_for, plan_for
from bristle._core.threads import in_threads

# Beyond this many rows the library's own sort wins over the network's n log^2(n) / 4 comparators.
LARGEST_NETWORK = 384


def argsort(xp: Any, values: Array, *, axis: int = -1) -> Array:
    """Return the stable ascending order: equal values keep the order of their positions."""
    if xp is np:
        return np.argsort(values, axis=axis, kind="stable")
    return xp.argsort(values, axis=axis, stable=True)


def spread(xp: Any, chosen: Array, order: Array, fill: Any) -> Array:
    """Undo a selection: scatter `chosen` [B, m, ...] to the positions that it was taken from.

    These are the first m entries of each row of the permutation `order` [B, n]; all other positions get `fill`.
    """
    batch, selected = chosen.shape[:2]
    if xp is np:
        laid_out = np.full((*order.shape, *chosen.shape[2:]), fill, dtype=chosen.dtype)
        laid_out[np.arange(batch)[:, None], order[:, :selected]] = chosen
        return laid_out
    if selected == 0:
        return xp.full((*order.shape, *chosen.shape[2:]), fill, dtype=chosen.dtype, device=chosen.device)
    rank = argsort(xp, order)
    if selected == order.shape[1]:
        return take_rows(xp, chosen, rank)
    padding = xp.full((batch, 1, *chosen.shape[2:]), fill, dtype=chosen.dtype, device=chosen.device)
    position = xp.where(rank < selected, rank, selected)
    return take_rows(xp, xp.concat([chosen, padding], axis=1), position)


class Workspace(threading.local):
    """Memory that sorting reuses, since allocation costs as much as the sorting; one per thread."""

    largest = 32 << 20
    """Largest number of bytes kept between calls."""
    plans = 16
    """Largest number of layouts kept between calls."""
    gap = 16
    """Numbers between rows: at distances of a power of two they would compete for the same cache lines."""

    def __init__(self) -> None:
        self._memory: Array = np.empty(0, dtype=np.float32)
        self._prepared: dict[tuple[Plan, tuple[int, ...]], _Prepared] = {}

    def prepare(self, plan: Plan, shape: tuple[int, ...], dtype: Any) -> _Prepared:
        """Lay out the plan's steps in memory for rows of `shape`; results of earlier calls are overwritten."""
        needed = 2 * len(plan.places) * (prod(shape) + self.gap)
        memory = self._memory
        if memory.dtype != dtype or memory.size < needed:
            memory = np.zeros(needed, dtype=dtype)  # Zeros, since what lies in the gaps is compared as well.
        if memory.nbytes > self.largest:
            return _Prepared(plan, memory.reshape(2, len(plan.places), -1), shape)
        if memory is not self._memory or len(self._prepared) >= self.plans:
            self._memory, self._prepared = memory, {}
        key = (plan, shape)
        if key not in self._prepared:
            self._prepared[key] = _Prepared(plan, memory[:needed].reshape(2, len(plan.places), -1), shape)
        return self._prepared[key]


class _Prepared:
    """A plan laid out in memory [2, n, ...]: every minimum and maximum with its input and output rows."""

    def __init__(self, plan: Plan, memory: Array, shape: tuple[int, ...]) -> None:
        self._plan, self._memory, self._shape = plan, memory, shape
        self._calls: list[tuple[Callable[..., Any], Array | Run, Array | Run, Array]] = []
        for step in plan.steps:
            fresh = GIVEN in (step.low.place, step.high.place)
            low, high = self._rows(step.low, fresh), self._rows(step.high, fresh)
            for compare, out in ((np.minimum, step.smaller), (np.maximum, step.larger)):
                if out is not None:
                    self._calls.append((compare, low, high, self._rows(out, fresh)))

    def run(self, stacks: Sequence[Array]) -> None:
        """Sort the rows of `stacks`, which stay unchanged."""
        for compare, low, high, out in self._calls:
            compare(
                low if type(low) is not Run else _given(stacks, low),
                high if type(high) is not Run else _given(stacks, high),
                out=out,
            )

    def rows(self, stacks: Sequence[Array]) -> list[Array]:
        """Return the rows by sorted position; unwanted ones may hold anything."""
        return [self._stack(run, stacks)[0] for run in self._plan.places]

    def sum_of_wanted(self, stacks: Sequence[Array]) -> Array:
        """Return the sum of the wanted rows."""
        runs = [self._stack(run, stacks) for run in self._plan.wanted]
        total = np.add.reduce(runs[0], axis=0)
        room = np.empty_like(total) if len(runs) > 1 else total
        for run in runs[1:]:
            np.add(total, run[0] if len(run) == 1 else np.add.reduce(run, axis=0, out=room), out=total)
        return total

    def _rows(self, run: Run, fresh: bool) -> Array | Run:
        """Return the memory of a run, in one piece (gaps included) unless it meets rows that are given."""
        if run.place == GIVEN:
            return run
        rows = self._memory[run.place, run.start : run.start + run.count]
        return rows[:, : prod(self._shape)].reshape(run.count, *self._shape) if fresh else rows.reshape(-1)

    def _stack(self, run: Run, stacks: Sequence[Array]) -> Array:
        rows = self._rows(run, fresh=True)
        return _given(stacks, run) if isinstance(rows, Run) else rows


def _given(stacks: Sequence[Array], run: Run) -> Array:
    start = run.start
    for stack in stacks:
        if start < len(stack):
            return stack[start : start + run.count]
        start -= len(stack)
    raise IndexError(run)


def sort_rows(
    xp: Any,
    stacks: Sequence[Array],
    *,
    wanted: range | None = None,
    as_set: bool = False,
    workspace: Workspace | None = None,
) -> list[Array]:
    """Sort n arrays of one shape elementwise: position i of the result holds the i-th smallest values.

    The arrays come in `stacks` [k, ...] of any number each, and stay unchanged. A network of elementwise minima and
    maxima sorts them: each comparator handles whole rows, at vector speed in every array library, unlike a sort along a
    short axis. Only the positions in `wanted` (default: all) are correct, with `as_set` only as a set; comparators that
    do not matter are left out. With a `workspace`, the result is valid until that is used again.
    """
    sizes = tuple(int(stack.shape[0]) for stack in stacks)
    count = sum(sizes)
    wanted = range(count) if wanted is None else wanted
    if count > LARGEST_NETWORK:
        return _sorted_by_library(xp, stacks)
    if xp is np:
        prepared = _prepared(stacks, sizes, wanted, as_set, workspace)
        return prepared.rows(stacks)
    network = network_for(count, wanted.start, wanted.stop, as_set)
    rows = [stack[i, ...] for stack in stacks for i in range(stack.shape[0])]
    for low, high, keep_low, keep_high in network.comparators:
        first, second = rows[low], rows[high]
        if keep_low:
            rows[low] = xp.minimum(first, second)
        if keep_high:
            rows[high] = xp.maximum(first, second)
    return [rows[i] for i in network.order]


def sum_of_sorted(xp: Any, stacks: Sequence[Array], wanted: range, *, workspace: Workspace | None = None) -> Array:
    """Sum, for each element, of the values at the sorted positions `wanted`; see `sort_rows`."""
    sizes = tuple(int(stack.shape[0]) for stack in stacks)
    if xp is np and sum(sizes) <= LARGEST_NETWORK:
        return _prepared(stacks, sizes, wanted, True, workspace).sum_of_wanted(stacks)
    rows = sort_rows(xp, stacks, wanted=wanted, as_set=True)[wanted.start : wanted.stop]
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def _prepared(
    stacks: Sequence[Array], sizes: tuple[int, ...], wanted: range, as_set: bool, workspace: Workspace | None
) -> _Prepared:
    plan = plan_for(sizes, wanted.start, wanted.stop, as_set)
    prepared = (workspace or Workspace()).prepare(plan, stacks[0].shape[1:], stacks[0].dtype)
    prepared.run(stacks)
    return prepared


def _sorted_by_library(xp: Any, stacks: Sequence[Array]) -> list[Array]:
    rows = xp.concat(list(stacks), axis=0)
    if xp is np:  # A sort along contiguous memory is several times faster, the copy included.
        ordered = np.sort(np.ascontiguousarray(np.moveaxis(rows, 0, -1)), axis=-1)
        return list(np.ascontiguousarray(np.moveaxis(ordered, -1, 0)))
    ordered = xp.sort(rows, axis=0)
    return [ordered[i, ...] for i in range(rows.shape[0])]


# Fewer rows are sorted sooner by a network, and so are fewer numbers, which are not worth a thread.
LEAST_ROWS, LEAST_NUMBERS = 48, 1 << 21
# Numbers at a time: they are copied, turned and sorted within a core's cache.
BLOCK = 1 << 16
# Numbers between rows: at distances of a power of two they would compete for the same places in the cache.
GAP = 16


def sorts_columns(xp: Any, rows: int, width: int) -> bool:
    """Return whether models of `width` numbers are better sorted by columns.

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
