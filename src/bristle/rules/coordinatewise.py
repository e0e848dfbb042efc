"""Coordinate-wise rules: each returns the mean of a window of the sorted values."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, argsort, sort_rows, take_rows
from bristle._core.sorting import Workspace, sorts_columns, sum_of_sorted, sums_of_sorted_columns
from bristle._core.validation import check_count
from bristle.rules.base import Rule, Verdict, same_reason, stay
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import ArrayInbox, Inbox
from bristle.rules.pool_inbox import PoolInbox

WORKSPACE = Workspace()


@dataclass(frozen=True)
class Window:
    """The window of n sorted values that is averaged: `length` values, from position `start` on.

    With `nearest`, the window of each coordinate is the one in start..n-length whose values are nearest to the median.
    """

    length: int
    start: int = 0
    nearest: bool = False


@dataclass(frozen=True)
class CoordinateWise(Rule):
    """A rule defined by the window of sorted values that it averages."""

    measures = Measure.NORMS  # Sorting needs no distances.
    symmetric = True

    @abstractmethod
    def window(self, count: int) -> Window:
        """Return the window for `count` heads; a length below 1 means too few."""

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average the window, coordinate by coordinate."""
        window = self.window(inbox.received + 1)
        if window.length < 1:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        return Verdict(
            window_mean(inbox, window), lambda: window_shares(inbox, window), same_reason(inbox, Reason.KEPT)
        )


@dataclass(frozen=True, kw_only=True)
class Median(CoordinateWise):
    r"""x'_i = median_j x_j,i for every coordinate i; for an even count, the mean of the middle two.

    Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018.
    Assumes an honest majority with similar data. Needs no f, no data, no history. O(n log² n d).
    """

    def window(self, count: int) -> Window:
        """Return the middle value, or the middle two."""
        return Window(length=2 - count % 2, start=(count - 1) // 2)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(CoordinateWise):
    r"""x'_i = mean of the n - 2f values that remain when the f largest and f smallest are dropped.

    Yin et al., ICML 2018; as a decentralised rule (`bridge` for short) BRIDGE-T, Yang and Bajwa, arXiv 1908.08098.
    Assumes at most f attackers and similar data; needs n > 2f. No data, no history. O(n log² n d).
    """

    f: int = 4

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def window(self, count: int) -> Window:
        """Return the n - 2f middle values."""
        return Window(length=count - 2 * self.f, start=self.f)


@dataclass(frozen=True, kw_only=True)
class MeanAroundMedian(CoordinateWise):
    r"""x'_i = mean of the n - f values nearest to the median of coordinate i.

    Xie, Koyejo and Gupta, "Generalized Byzantine-tolerant SGD", 2018 (MeaMed).
    Assumes at most f attackers and similar data; needs n > f. No data, no history. O(n log² n d): the n - f
    values nearest to the median are consecutive once sorted, so that f + 1 windows need comparing.
    """

    f: int = 4

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def window(self, count: int) -> Window:
        """Return the n - f values around the median."""
        return Window(length=count - self.f, nearest=True)


def window_mean(inbox: Inbox, window: Window) -> Array:
    """Mean of the window's values for every coordinate [B, F]."""
    xp = inbox.xp
    same = inbox.distinct()
    if same is not None:  # Peers of a full mesh hold the same heads.
        some, which = same
        return xp.take(window_mean(some, window), which, axis=0)
    wanted = range(window.start, window.start + window.length)
    by_column = not window.nearest and sorts_columns(xp, inbox.received + 1, inbox.own.shape[1])
    if by_column and isinstance(inbox, ArrayInbox):
        return sums_of_sorted_columns(inbox.own, inbox.models, wanted) / window.length

    def mean(block: tuple[int, int]) -> Array:
        stacks = inbox.stacks(*block)
        if window.nearest:
            return _nearest_mean(xp, sort_rows(xp, stacks, workspace=WORKSPACE), window.length)
        return sum_of_sorted(xp, stacks, wanted, workspace=WORKSPACE) / window.length

    parts = [mean(block) for block in inbox.blocks()]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)


def window_shares(inbox: Inbox, window: Window) -> Array:
    """Fraction of each row's coordinates [B, n, C] that each head supplied; equal values by position."""
    if isinstance(inbox, PoolInbox) and (same := inbox.distinct()) is not None:
        some, which = same  # Peers of a full mesh hold the same heads, each in an order of its own.
        if (shares := _shares(some, window, ties=False)) is not None:
            return _reordered(inbox, some, which, shares)
    shares = _shares(inbox, window, ties=True)
    assert shares is not None
    return shares


def _shares(inbox: Inbox, window: Window, *, ties: bool) -> Array | None:
    """Return `window_shares`; without `ties` None where they depend on the order of heads, for equal values."""
    xp, count = inbox.xp, inbox.received + 1
    parts = []
    for start, stop in inbox.blocks():
        stacks = inbox.stacks(start, stop)
        values = xp.concat(stacks, axis=0)
        wanted = None if window.nearest else range(window.start, window.start + window.length)
        rows = sort_rows(xp, stacks, wanted=wanted)
        first: Any = _nearest_start(xp, rows, window.length) if window.nearest else window.start
        inside = (values >= _at(xp, rows, first)) & (values <= _at(xp, rows, first + (window.length - 1)))
        crowded = xp.sum(xp.astype(inside, xp.int32), axis=0, dtype=xp.int32) > window.length
        if bool(xp.any(crowded)):
            if not ties:
                return None
            inside = _by_position(xp, values, inside, crowded, first, window.length)
        parts.append(inside)
    shares = xp.permute_dims(xp.concat(parts, axis=-1), (1, 0, 2))
    shares = xp.reshape(xp.astype(shares, inbox.own.dtype), (shares.shape[0], count, inbox.classes, -1))
    return xp.mean(shares, axis=-1) / window.length


def _reordered(inbox: PoolInbox, some: PoolInbox, which: Array, shares: Array) -> Array:
    """Return shares [B, n, C] of all receivers from those of `some` [S, n, C] that hold the same heads."""
    xp = inbox.xp
    order = xp.take(argsort(xp, some.held), which, axis=0)
    return take_rows(xp, xp.take(shares, which, axis=0), take_rows(xp, order, argsort(xp, argsort(xp, inbox.held))))


def _by_position(xp: Any, values: Array, inside: Array, crowded: Array, first: Any, length: int) -> Array:
    """Keep `length` of the values [n, ...] inside where ties at an end make them more (`crowded`): the first ones."""
    if xp is not np:
        rank = argsort(xp, argsort(xp, values, axis=0), axis=0)
        return (rank >= first) & (rank < first + length)
    # Usually few.
    rank = argsort(xp, argsort(xp, values[:, crowded], axis=0), axis=0)
    start = first if isinstance(first, int) else first[crowded]
    inside[:, crowded] = (rank >= start) & (rank < start + length)
    return inside


def _at(xp: Any, rows: list[Array], position: Any) -> Array:
    """Return the value at `position`, a number or one for each coordinate."""
    if isinstance(position, int):
        return rows[position]
    found = rows[0]
    for number, row in enumerate(rows[1:], start=1):
        found = xp.where(position == number, row, found)
    return found


def _nearest_mean(xp: Any, rows: list[Array], length: int) -> Array:
    """Mean of the `length` sorted values nearest to the median.

    Only values inside the window are summed: in a running sum, large values would cost the others their digits.
    """
    spare = len(rows) - length
    start = _nearest_start(xp, rows, length)
    total = xp.zeros_like(rows[0])
    for position, row in enumerate(rows):
        if spare <= position < length:  # Inside every possible window.
            total = total + row
        else:
            inside = (start <= position) & (start > position - length)
            total = total + xp.where(inside, row, xp.zeros_like(row))
    return total / length


def _nearest_start(xp: Any, rows: list[Array], length: int) -> Array:
    median = (rows[(len(rows) - 1) // 2] + rows[len(rows) // 2]) / 2
    best_reach = _reach(xp, rows, 0, length, median)
    best = xp.zeros(best_reach.shape, dtype=xp.int64, device=best_reach.device)
    for start in range(1, len(rows) - length + 1):
        reach = _reach(xp, rows, start, length, median)
        closer = reach < best_reach
        best = xp.where(closer, xp.full_like(best, start), best)
        best_reach = xp.where(closer, reach, best_reach)
    return best


def _reach(xp: Any, rows: list[Array], start: int, length: int, median: Array) -> Array:
    """How far the window reaches from the median."""
    return xp.maximum(median - rows[start], rows[start + length - 1] - median)
