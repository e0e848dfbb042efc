"""Putting together what became of parts of a world's peers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bristle._core import Array, namespace
from bristle.learning.optimiser import HeadState
from bristle.peer.step import PeerState
from bristle.rules import Decision
from bristle.simulation.rows_of import replaced
from bristle.simulation.topology import Integers


def joined(
    before: PeerState, rows: Integers | None, parts: Iterable[tuple[PeerState, Decision]], count: int, *, weigh: bool
) -> tuple[PeerState, Decision]:
    """Return the next state of all peers and one decision, from those of `count` parts of the peers `rows` (None: all).

    What is kept of a part is copied before the next one is made, so that its memory can be used again. The decision
    does not hold on to the heads it is about: weights are worked out now (`weigh`) or never, unless there is one part.
    """
    total = int(before.head.shape[0]) if rows is None else len(rows)
    head, first, second, steps, previous, decided, reasons, weights = (_Rows(total, count) for _ in range(8))
    memory = before.memory
    for state, decision in parts:
        if count == 1 and rows is None:
            return state, decision
        trained, memory = state.trained, state.memory
        kept = (head, trained.head), (first, trained.first), (second, trained.second), (steps, trained.steps)
        for some, values in (*kept, (previous, state.previous), (decided, decision.head), (reasons, decision.reasons)):
            some.add(values)
        if weigh:
            weights.add(decision.weights)
    old = before.trained
    trained = HeadState(
        replaced(old.head, rows, head.all()),
        replaced(old.first, rows, first.all()),
        replaced(old.second, rows, second.all()),
        replaced(old.steps, rows, steps.all()),
    )
    state = PeerState(trained, replaced(before.previous, rows, previous.all()), memory)
    return state, Decision(head=decided.all(), weights=weights.all if weigh else _not_kept, reasons=reasons.all())


class _Rows:
    """Arrays of some peers each, put one after the other until there are all `total` of them, from `count` parts."""

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
