"""Check the arguments of a rule's call, and split it into parts with usable models only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from bristle._core import Array, Pool, argsort, block_bytes, namespace, spread, take_rows, to_numpy, uniforms
from bristle._core.arrays import from_numpy, is_array, reshape
from bristle._core.linear_algebra import Pull
from bristle._core.validation import check_count
from bristle.learning.metrics import Evaluation
from bristle.rules.checks import (
    Measure,
    Measurements,
    check_array,
    check_evaluation,
    check_floats,
    check_like,
    check_mask,
    check_pool,
    check_previous,
    check_shape,
    fits,
    measure_models,
    refusals_of,
    same_library,
    zeroed,
)
from bristle.rules.decision import Decision, Reason
from bristle.rules.inbox import ArrayInbox, Inbox
from bristle.rules.pool_inbox import SPARSE, PoolInbox, SharedHeads

# Fewer values are sorted completely.
SORTED = 256

State = Mapping[str, Array]
"""State of a rule between calls: arrays by name, receivers first [..., *]."""


@dataclass(frozen=True)
class Context:
    """Position of a call in a run, and what rules with history need.

    Parameters
    ----------
    iteration, total : int
        The current iteration, from 1, and their total number.
    previous : array [..., C, D], optional
        The own head before its latest training; `own - previous` is the own update.
    senders : integer array [..., M], optional
        The sender of each model, as a number that is the same in every call.
    state : mapping of arrays [..., *], optional
        The state of the rule's previous decision; None at the start.
    """

    iteration: int = 1
    total: int = 1
    previous: Array | None = None
    senders: Array | None = None
    state: State | None = None

    def __post_init__(self) -> None:
        check_count("iteration", self.iteration, least=1)
        check_count("total", self.total, least=1)


_NO_CONTEXT = Context()


@dataclass(frozen=True)
class Task:
    """Inputs of a rule besides the heads, for one part of the receivers: arrays [B, ...]; None if not given."""

    evaluation: Evaluation | None
    claims: Array | None
    previous: Array | None
    senders: Array | None
    draws: Array | None
    iteration: int
    total: int
    state: State | None = None


@dataclass(frozen=True)
class Part:
    """Some of the receivers, all with the same number of usable models.

    `order` [B, M] holds the models' positions in the call, usable ones first (None: unchanged); `usable` and
    `refusals` [B, M] say which are usable, and why others are not.
    """

    inbox: Inbox
    task: Task
    order: Array | None = None
    usable: Array | None = None
    refusals: Array | None = None


@dataclass(frozen=True)
class Draw:
    """Randomness for a call, a generator or one uniform per model; and the largest number of models to examine."""

    rng: Any
    max_candidates: int | None = None


@dataclass
class Call:
    """A checked call, flattened to one batch axis."""

    batch: tuple[int, ...]
    own: Array
    classes: int
    received: Array | SharedHeads
    index: Array | None
    measured: Measurements
    usable: Array | None
    refusals: Array | None
    task: Task
    models_shape: tuple[int, ...]
    head_shape: tuple[int, int]
    _undo: Array | None = None

    @classmethod
    def check(
        cls,
        own: Array,
        received: Array | Pool,
        *,
        mask: Array | None = None,
        evaluation: Evaluation | None = None,
        claims: Array | None = None,
        context: Context | None = None,
        measure: Measure = Measure.NORMS,
        pull: Pull | None = None,
        draw: Draw | None = None,
    ) -> Call:
        """Check all arguments; raise ValueError with what to change."""
        if context is not None and not isinstance(context, Context):
            raise ValueError(f"context must be a Context, not {type(context).__name__}")
        heads = received.heads if isinstance(received, Pool) else received
        xp = same_library(own, heads)
        check_floats(xp, own, heads)
        if own.ndim < 2 or 0 in own.shape[-2:]:
            raise ValueError(f"own must be [..., classes, features], not {tuple(own.shape)}")
        batch, (classes, depth) = tuple(own.shape[:-2]), own.shape[-2:]
        size, width = prod(batch), classes * depth
        flat_own = reshape(xp, own, (size, width))
        index = None
        if isinstance(received, Pool):
            models = check_pool(xp, received, batch, (classes, depth))
            # Positions are multiplied below, where a small type would overflow.
            index = reshape(xp, xp.astype(received.index, xp.int64, copy=False), (size, models))
            flat = reshape(xp, heads, (heads.shape[0], width))
        else:
            models = check_array(received, batch, (classes, depth))
            flat = reshape(xp, received, (size, models, width))
        if not fits(flat_own):
            raise ValueError("own is not finite, or its norm is beyond 1e15; restore it before aggregating")
        mask = check_mask(xp, mask, own, (*batch, models))
        draws = None if draw is None else reshape(xp, uniforms(draw.rng, (*batch, models), like=own), (size, models))
        most = None if draw is None else draw.max_candidates
        about = flat_own if index is None else None
        measured, usable, refusals = examine(xp, flat, about, index, mask, draws, most, measure, pull)
        everyone: Array | SharedHeads = flat
        if index is not None:
            everyone = SharedHeads(zeroed(xp, flat, measured.fit), flat_own)
        task = _task(xp, (batch, models, classes, depth), own, evaluation, claims, context or _NO_CONTEXT, draws)
        shapes = (*batch, models), (classes, depth)
        return cls(batch, flat_own, classes, everyone, index, measured, usable, refusals, task, *shapes)

    def parts(self) -> Iterator[Part]:
        """Split the call into blocks of receivers with equally many usable models that fit in memory."""
        xp = namespace(self.own)
        if self.usable is None:
            yield from self._blocks(None, self.models_shape[-1])
            return
        counts = to_numpy(xp.sum(xp.astype(self.usable, xp.int64), axis=-1))
        if counts.size and counts.min() == counts.max():
            yield from self._blocks(None, int(counts[0]))
            return
        groups = [(int(count), np.flatnonzero(counts == count)) for count in np.unique(counts)]
        rows = np.concatenate([rows for _, rows in groups]) if groups else np.arange(0)
        self._undo = xp.asarray(np.argsort(rows), device=self.own.device)
        for count, members in groups:
            yield from self._blocks(xp.asarray(members, device=self.own.device), count)

    def restore(self, parts: list[Array], shape: tuple[int, ...] | None = None) -> Array:
        """Join the results [B, ...] of the parts in the order and batch shape of the call."""
        xp = namespace(self.own)
        whole = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
        if self._undo is not None:
            whole = xp.take(whole, self._undo, axis=0)
        return reshape(xp, whole, (*self.batch, *(whole.shape[1:] if shape is None else shape)))

    def restore_state(self, parts: list[State]) -> State:
        """Join the states of the parts in the order and batch shape of the call."""
        return {name: self.restore([state[name] for state in parts]) for name in parts[0]}

    def nobody(self) -> Decision:
        """Return the decision of a batch without receivers."""
        xp, like = namespace(self.own), {"device": self.own.device}
        classes = self.head_shape[0]
        return Decision(
            head=xp.zeros((*self.batch, *self.head_shape), dtype=self.own.dtype, **like),
            weights=lambda: xp.zeros((*self.models_shape, classes), dtype=self.own.dtype, **like),
            reasons=xp.zeros(self.models_shape, dtype=xp.int8, **like),
            state=None if self.task.state is None else self.restore_state([self.task.state]),
        )

    def _blocks(self, rows: Array | None, count: int) -> Iterator[Part]:
        xp = namespace(self.own)
        size = self.own.shape[0] if rows is None else rows.shape[0]
        itemsize = 8 if self.own.dtype == xp.float64 else 4
        per_receiver = (count + 1) * max(self.own.shape[1], count + 1) * itemsize
        step = max(1, block_bytes(self.own) // per_receiver)
        for start in range(0, max(size, 1), step):
            stop = min(start + step, size)
            members = _Members(xp, slice(start, stop) if rows is None else rows[start:stop], size == stop - start)
            yield self._part(members, count)

    def _part(self, members: _Members, count: int) -> Part:
        xp, usable = members.xp, members(self.usable)
        order = None if usable is None else argsort(xp, xp.astype(~usable, xp.int8))
        first = None if order is None else order[:, :count]

        def models_of(values: Array | None) -> Array | None:
            values = members(values)
            return values if values is None or first is None else take_rows(xp, values, first)

        own = members(self.own)
        inbox: Inbox
        if self.index is None:
            distances = models_of(self.measured.distances)
            inbox = ArrayInbox(own, self.classes, members(self.received), distances, index=first)
            if order is None:  # Results for all models are reused only if none is left out.
                inbox.known_products = members(self.measured.products)
                inbox.known_mean = members(self.measured.mean)
                inbox.clipped = members(self.measured.clipped)
        else:
            assert isinstance(self.received, SharedHeads)
            shared = PoolInbox(own, self.classes, self.received, models_of(self.index))
            inbox = shared.gathered() if self.received.heads.shape[0] > SPARSE * (count + 1) else shared
        if order is None and members.all:  # Nothing to pick: most calls have one part.
            return Part(inbox, self.task, order, usable, members(self.refusals))
        held = self.task.evaluation
        task = replace(
            self.task,
            evaluation=held and Evaluation(members(held.features), members(held.labels)),
            claims=models_of(self.task.claims),
            previous=members(self.task.previous),
            senders=models_of(self.task.senders),
            draws=models_of(self.task.draws),
            state=None if self.task.state is None else {k: members(v) for k, v in self.task.state.items()},
        )
        return Part(inbox, task, order, usable, members(self.refusals))


@dataclass(frozen=True)
class _Members:
    """Selects the receivers of one part from arrays of all receivers."""

    xp: Any
    rows: Any
    everyone: bool

    @property
    def all(self) -> bool:
        """Whether these are all receivers, in their order."""
        return self.everyone and isinstance(self.rows, slice)

    def __call__(self, values: Array | None) -> Array | None:
        if values is None or self.all:
            return values
        return values[self.rows, ...] if isinstance(self.rows, slice) else self.xp.take(values, self.rows, axis=0)


def _task(
    xp: Any,
    sizes: tuple[tuple[int, ...], int, int, int],
    own: Array,
    evaluation: Evaluation | None,
    claims: Array | None,
    context: Context,
    draws: Array | None,
) -> Task:
    batch, models, classes, depth = sizes
    size = prod(batch)

    def flat(name: str, values: Array | None, tail: tuple[int, ...]) -> Array | None:
        return None if values is None else reshape(xp, check_shape(name, values, own, (*batch, *tail)), (size, *tail))

    if claims is not None and check_shape("claims", claims, own, (*batch, models, classes)).dtype != xp.bool:
        raise ValueError(f"claims must hold booleans, not {claims.dtype}")
    return Task(
        evaluation=None if evaluation is None else check_evaluation(xp, evaluation, batch, classes, own, depth),
        claims=flat("claims", claims, (models, classes)),
        previous=None if context.previous is None else check_previous(xp, context.previous, own, size),
        senders=flat("context.senders", context.senders, (models,)),
        draws=draws,
        iteration=context.iteration,
        total=context.total,
        state=None if context.state is None else _flat_state(xp, context.state, own, batch),
    )


def _flat_state(xp: Any, state: State, own: Array, batch: tuple[int, ...]) -> State:
    """Check the state of a rule, and flatten its batch axes to one."""
    if not isinstance(state, Mapping):
        raise ValueError(f"context.state must be a mapping of arrays, not {type(state).__name__}")
    for name, values in state.items():
        found = tuple(check_like(f"context.state[{name!r}]", values, own).shape)
        if found[: len(batch)] != batch:
            raise ValueError(f"context.state[{name!r}] must have shape {(*batch, '...')}, not {found}")
    return {name: xp.reshape(values, (prod(batch), *values.shape[len(batch) :])) for name, values in state.items()}


def stack(own: Array, heads: Sequence[object]) -> tuple[Array, Array, Array]:
    """Return `received` [M, C, D], `mask` [M] and `reasons` [M] for heads of any origin.

    `rule(own, received, mask=mask).with_refusals(reasons)` decides and keeps these reasons.

    A head that is missing (None), not an array, of another shape or dtype than `own` [C, D], not finite or too large is
    masked out with its reason, and replaced by zeros in `received`.
    """
    if not is_array(own) or own.ndim != 2:
        raise ValueError("own must be one head, an array [classes, features]")
    xp = namespace(own)
    found = [_judge(own, head) for head in heads]
    zero = xp.zeros_like(own)
    rows = [head if reason is Reason.KEPT else zero for reason, head in found]
    received = xp.stack(rows) if rows else xp.zeros((0, *own.shape), dtype=own.dtype, device=own.device)
    codes = [int(reason) for reason, _ in found]
    reasons = xp.asarray(codes, dtype=xp.int8, device=own.device)
    return received, reasons == int(Reason.KEPT), reasons


def _judge(own: Array, head: Any) -> tuple[Reason, Array]:
    if head is None:
        return Reason.ABSENT, None
    if not is_array(head):
        return Reason.WRONG_DTYPE, None
    if tuple(head.shape) != tuple(own.shape):
        return Reason.WRONG_SHAPE, None
    try:
        # Through NumPy, where sparse, quantised and storage-less tensors fail.
        values = from_numpy(to_numpy(head), like=own)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return Reason.WRONG_DTYPE, None
    if values.dtype != own.dtype:
        return Reason.WRONG_DTYPE, None
    xp = namespace(own)
    if not bool(xp.all(xp.isfinite(values))):
        return Reason.NOT_FINITE, None
    if not fits(xp.reshape(values, (own.shape[0] * own.shape[1],))):
        return Reason.TOO_LARGE, None
    return Reason.KEPT, values


def examine(
    xp: Any,
    models: Array,
    own: Array | None,
    index: Array | None,
    mask: Array | None,
    draws: Array | None,
    most: int | None,
    measure: Measure,
    pull: Pull | None,
) -> tuple[Measurements, Array | None, Array | None]:
    """Measure models [B, M, F], or those of a pool [P, F]; return which are usable [B, M] and why others are not.

    With `most`, models are examined in the order of their draws until `most` usable ones are found. Usually these are
    the first ones, and no other is read.
    """
    count = models.shape[1] if index is None else index.shape[1]
    if draws is None or most is None or most >= count:
        measured = measure_models(xp, models, own, measure, pull=pull)
        return measured, *refusals_of(xp, mask, models, measured.fit, index)
    wanted = draws if mask is None else xp.where(mask, draws, xp.full_like(draws, 2))
    order = _smallest(xp, wanted, most)
    if own is not None:
        some = measure_models(xp, models, own, Measure.DISTANCES, picked=order[:, :most])
        if some.fit is None:
            looked = spread(xp, xp.ones_like(order[:, :most], dtype=xp.bool), order, False)
            usable = looked if mask is None else looked & mask
            distances = spread(xp, some.distances, order, 0)
            return Measurements(distances=distances), usable, _unseen(xp, looked, None, mask)
    order = argsort(xp, wanted)
    measured = measure_models(xp, models, own, measure)
    usable, refusals = refusals_of(xp, mask, models, measured.fit, index)
    if usable is None:
        usable = xp.ones(order.shape, dtype=xp.bool, device=order.device)
    found = xp.cumulative_sum(xp.astype(take_rows(xp, usable, order), xp.int64), axis=1)
    # After `most` usable models, others are not examined.
    earlier = xp.concat([xp.zeros_like(found[:, :1]), found[:, :-1]], axis=1)
    looked = spread(xp, earlier < most, order, False)
    return measured, usable & looked, _unseen(xp, looked, refusals, mask)


def _smallest(xp: Any, values: Array, count: int) -> Array:
    """Return the stable ascending order of values [B, n]; only the first `count` positions are in order."""
    if xp is not np or values.shape[1] < SORTED:
        return argsort(xp, values)
    order = np.argpartition(values, count - 1, axis=-1)
    first = np.sort(order[:, :count], axis=-1)
    found = np.take_along_axis(values, first, axis=-1)
    if np.any(np.count_nonzero(values <= np.max(found, axis=-1, keepdims=True), axis=-1) > count):
        return argsort(xp, values)  # Ties with the last one go to the first in order of position.
    order[:, :count] = np.take_along_axis(first, argsort(xp, found), axis=-1)
    return order


def _unseen(xp: Any, looked: Array, refusals: Array | None, mask: Array | None) -> Array:
    """Return the reasons [B, M] for all models, with NOT_SAMPLED for those that were not examined."""
    unseen = xp.full_like(looked, int(Reason.NOT_SAMPLED), dtype=xp.int8)
    reasons = unseen if refusals is None else xp.where(looked, refusals, unseen)
    return reasons if mask is None else xp.where(mask, reasons, xp.full_like(unseen, int(Reason.ABSENT)))
