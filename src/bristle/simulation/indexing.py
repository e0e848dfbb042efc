"""Take, replace and join rows of some of the peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from bristle._core import Array, namespace
from bristle._core.arrays import from_numpy
from bristle.learning.optimiser import HeadState
from bristle.peer.step import StepState
from bristle.rules import Decision
from bristle.simulation.topology import Integers

# Receivers that hear less than one in SPARSE heads of a pool get copies of those, not the whole pool.
SPARSE = 8


def rows_of(values: Array, rows: Integers | None) -> Array:
    """Return `values[rows]` in any library, perhaps as a view; None: all rows."""
    if rows is None:
        return values
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(rows[1:] > rows[:-1])):
        return values[int(rows[0]) : int(rows[-1]) + 1, ...]  # Consecutive rows need no copy.
    return namespace(values).take(values, from_numpy(rows, like=values), axis=0)


def replaced(values: Array, rows: Integers | None, new: Array) -> Array:
    """Return a copy of `values` with `new` in place of `rows` (None: all)."""
    if rows is None:
        return new
    count = int(values.shape[0])
    source = np.arange(count)
    source[rows] = count + np.arange(len(rows))
    xp = namespace(values)
    return xp.take(xp.concat([values, new], axis=0), from_numpy(source, like=values), axis=0)


def heard(pools: list[Array], index: Integers, rows: Integers | None) -> tuple[Array, Integers]:
    """Return the heads of some pools [P, C, D], concatenated, and `index` [B, M] into them.

    For a part of the receivers (`rows`) that hear few of the heads, only heads that some of them hear are returned, so
    that the others are not copied and checked again for every part.
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


def joined(
    before: StepState, rows: Integers | None, parts: Iterable[tuple[StepState, Decision]], count: int, *, weigh: bool
) -> tuple[StepState, Decision]:
    """Join the states and decisions of `count` parts of the peers `rows` (None: all) into one state and one decision.

    Each part is copied before the next one is computed, so that its memory can be reused. The decision keeps no
    received heads: unless there is one part, weights are computed now (`weigh`) or not at all.
    """
    total = int(before.head.shape[0]) if rows is None else len(rows)
    kept: defaultdict[str, _Rows] = defaultdict(lambda: _Rows(total, count))
    for state, decision in parts:
        if count == 1 and rows is None:
            return state, decision
        if set(state.memory or {}) != set(before.memory or {}):
            names, begun = sorted(state.memory or {}), sorted(before.memory or {})
            raise ValueError(
                f"the rule remembers {names}, but its initial_state has {begun}: where peers act in parts, "
                "initial_state must name all that is remembered"
            )
        found = arrays_of(state) | {"decided": decision.head, "reasons": decision.reasons}
        for name, values in (found | {"weights": decision.weights} if weigh else found).items():
            kept[name].add(values)
    state = state_of({name: replaced(values, rows, kept[name].all()) for name, values in arrays_of(before).items()})
    weights = kept["weights"].all if weigh else _not_kept
    return state, Decision(head=kept["decided"].all(), weights=weights, reasons=kept["reasons"].all())


MEMORY = "memory."


def arrays_of(state: StepState) -> dict[str, Array]:
    """Return the arrays of a state by name; names of a rule's memory begin with `MEMORY`."""
    names = ("head", "first", "second", "steps", "previous")
    memory = {f"{MEMORY}{name}": values for name, values in (state.memory or {}).items()}
    return dict(zip(names, (*state.trained.arrays, state.previous), strict=True)) | memory


def state_of(arrays: Mapping[str, Array]) -> StepState:
    """Return the state with these arrays; other names are ignored."""
    memory = {name.removeprefix(MEMORY): values for name, values in arrays.items() if name.startswith(MEMORY)}
    trained = HeadState(*(arrays[name] for name in ("head", "first", "second", "steps")))
    return StepState(trained, arrays["previous"], memory or None)


class _Rows:
    """Concatenates arrays of `count` parts of the peers, `total` rows in all."""

    def __init__(self, total: int, count: int) -> None:
        self._total, self._count, self._filled = total, count, 0
        self._parts: list[Array] = []

    def add(self, values: Array) -> None:
        if namespace(values) is not np or self._count == 1:
            self._parts.append(values)
            return
        if not self._parts:
            self._parts.append(np.empty((self._total, *values.shape[1:]), dtype=values.dtype))
        self._parts[0][self._filled : self._filled + len(values)] = values
        self._filled += len(values)

    def all(self) -> Array:
        return self._parts[0] if len(self._parts) == 1 else namespace(self._parts[0]).concat(self._parts, axis=0)


def _not_kept() -> Array:
    raise ValueError("the weights of this iteration were not kept; call advance(weigh=True)")
