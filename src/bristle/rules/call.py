"""Checking a call once, and cutting it into parts in which every model is fit for use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from bristle.arrays import Array, Pool, argsort, block_bytes, namespace, squared_norms, take_rows, to_numpy
from bristle.arrays.namespace import is_array
from bristle.learning.metrics import Evaluation
from bristle.rules.decision import Reason
from bristle.rules.inbox import ArrayInbox, Inbox, PoolInbox, SharedHeads

# A head with a larger norm is refused: its square, and sums of such squares, must fit a 32-bit float.
LARGEST_NORM = 1e15


@dataclass(frozen=True)
class Context:
    """Where in a run a call stands; what rules with history need.

    Parameters
    ----------
    iteration, total : int
        The current iteration, from 1, and how many there will be.
    previous : array [..., C, D], optional
        The own head before its latest training; `own - previous` is the own update.
    senders : integer array [..., M], optional
        Who sent each model, the same number for the same sender in every call.
    state : object
        What the rule's previous decision returned as its state.
    """

    iteration: int = 1
    total: int = 1
    previous: Array | None = None
    senders: Array | None = None
    state: Any = None


@dataclass(frozen=True)
class Task:
    """What a rule may consult about one part: everything flat, [B, ...], and None where not given."""

    evaluation: Evaluation | None
    claims: Array | None
    previous: Array | None
    senders: Array | None
    draws: Array | None
    iteration: int
    total: int


@dataclass(frozen=True)
class Part:
    """Some of the receivers, all with the same number of usable models.

    `order` [B, M] says where the models stood, usable ones first (None: all in place); `usable` and
    `refusals` [B, M] tell the others and why they are left out.
    """

    inbox: Inbox
    task: Task
    order: Array | None = None
    usable: Array | None = None
    refusals: Array | None = None


@dataclass
class Call:
    """A checked call, flattened to one batch axis."""

    batch: tuple[int, ...]
    own: Array
    classes: int
    received: Array | SharedHeads
    index: Array | None
    usable: Array | None
    refusals: Array | None
    task: Task
    models_shape: tuple[int, ...]
    _undo: Array | None = None

    @classmethod
    def check(
        cls,
        own: Array,
        received: Array | Pool,
        *,
        mask: Array | None,
        evaluation: Evaluation | None,
        claims: Array | None,
        context: Context | None,
    ) -> Call:
        """Check everything that the caller gave; a mistake is a ValueError that says what to change."""
        heads = received.heads if isinstance(received, Pool) else received
        xp = _same_library(own, heads)
        _check_floats(xp, own, heads)
        if own.ndim < 2 or 0 in own.shape[-2:]:
            raise ValueError(f"own must be [..., classes, features], not {tuple(own.shape)}")
        batch, (classes, depth) = tuple(own.shape[:-2]), own.shape[-2:]
        size, width = prod(batch), classes * depth
        flat_own = xp.reshape(own, (size, width))
        index = None
        if isinstance(received, Pool):
            models = _check_pool(xp, received, batch, (classes, depth))
            index = xp.reshape(received.index, (size, models))
            flat = xp.reshape(heads, (heads.shape[0], width))
        else:
            models = _check_array(received, batch, (classes, depth))
            flat = xp.reshape(received, (size, models, width))
        with np.errstate(over="ignore", invalid="ignore"):
            own_fits = squared_norms(xp, flat_own) <= LARGEST_NORM**2
            heads_fit = squared_norms(xp, flat) <= LARGEST_NORM**2
        if not bool(xp.all(own_fits)):
            raise ValueError("own holds values that are not finite or beyond 1e15; restore it before aggregating")
        fits = heads_fit if index is None else _take_flags(xp, heads_fit, index)
        usable, refusals = _refusals(xp, fits, mask, flat, heads_fit, index, (*batch, models))
        everyone: Array | SharedHeads = flat
        if index is not None:
            everyone = SharedHeads(flat if refusals is None else _zeroed(xp, flat, heads_fit), _centre(xp, flat_own))
        task = _task(xp, (batch, models, classes, depth), own, evaluation, claims, context or Context())
        return cls(batch, flat_own, classes, everyone, index, usable, refusals, task, (*batch, models))

    def parts(self, draws: Array | None) -> Iterator[Part]:
        """Cut the call: receivers with equally many usable models together, in blocks that fit in memory."""
        xp, models = namespace(self.own), self.models_shape[-1]
        if draws is not None:
            draws = xp.reshape(draws, (self.own.shape[0], models))
        if self.usable is None:
            yield from self._blocks(None, models, draws)
            return
        counts = to_numpy(xp.sum(xp.astype(self.usable, xp.int64), axis=-1))
        groups = [(int(count), np.flatnonzero(counts == count)) for count in np.unique(counts)]
        rows = np.concatenate([rows for _, rows in groups]) if groups else np.arange(0)
        self._undo = None if len(groups) == 1 else xp.asarray(np.argsort(rows), device=self.own.device)
        for count, members in groups:
            yield from self._blocks(
                None if len(groups) == 1 else xp.asarray(members, device=self.own.device), count, draws
            )

    def restore(self, parts: list[Array], shape: tuple[int, ...] | None = None) -> Array:
        """Put the parts' answers [B, ...] together in the order and batch shape of the call."""
        xp = namespace(self.own)
        whole = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
        if self._undo is not None:
            whole = xp.take(whole, self._undo, axis=0)
        return xp.reshape(whole, (*self.batch, *(whole.shape[1:] if shape is None else shape)))

    def _blocks(self, rows: Array | None, count: int, draws: Array | None) -> Iterator[Part]:
        xp = namespace(self.own)
        size = self.own.shape[0] if rows is None else rows.shape[0]
        itemsize = 8 if self.own.dtype == xp.float64 else 4
        per_receiver = (count + 1) * max(self.own.shape[1], count + 1) * itemsize
        step = max(1, block_bytes(self.own) // per_receiver)
        for start in range(0, max(size, 1), step):
            stop = min(start + step, size)
            members = _Members(xp, slice(start, stop) if rows is None else rows[start:stop], size == stop - start)
            yield self._part(members, count, draws)

    def _part(self, members: _Members, count: int, draws: Array | None) -> Part:
        xp, usable = members.xp, members(self.usable)
        order = None if usable is None else argsort(xp, xp.astype(~usable, xp.int8))
        first = None if order is None else order[:, :count]

        def models_of(values: Array | None) -> Array | None:
            values = members(values)
            return values if values is None or first is None else take_rows(xp, values, first)

        own = members(self.own)
        inbox: Inbox
        if self.index is None:
            inbox = ArrayInbox(own, self.classes, models_of(self.received))
        else:
            assert isinstance(self.received, SharedHeads)
            inbox = PoolInbox(own, self.classes, self.received, models_of(self.index))
            # Products over the whole pool pay off while receivers hear a good part of it.
            inbox = inbox if self.received.heads.shape[0] <= 8 * (count + 1) else inbox.gathered()
        held = self.task.evaluation
        task = Task(
            evaluation=held and Evaluation(members(held.features), members(held.labels)),
            claims=models_of(self.task.claims),
            previous=members(self.task.previous),
            senders=models_of(self.task.senders),
            draws=models_of(draws),
            iteration=self.task.iteration,
            total=self.task.total,
        )
        return Part(inbox, task, order, usable, members(self.refusals))


@dataclass(frozen=True)
class _Members:
    """Picks the receivers of one part out of what is kept for all of them."""

    xp: Any
    rows: Any
    everyone: bool

    def __call__(self, values: Array | None) -> Array | None:
        if values is None or (self.everyone and isinstance(self.rows, slice)):
            return values
        return values[self.rows, ...] if isinstance(self.rows, slice) else self.xp.take(values, self.rows, axis=0)


def _same_library(own: Array, heads: Array) -> Any:
    for name, array in (("own", own), ("received", heads)):
        if not is_array(array):
            raise ValueError(
                f"{name} must be an array (NumPy, torch, ...), not {type(array).__name__}; "
                "strangers' arrays go through rules.stack(own, heads) first"
            )
    try:
        return namespace(own, heads)
    except TypeError:
        raise ValueError(
            f"own and received must come from one array library, not {type(own).__name__} and {type(heads).__name__}"
        ) from None


def _check_floats(xp: Any, own: Array, heads: Array) -> None:
    if own.dtype not in (xp.float32, xp.float64):
        raise ValueError(f"own must be of type float32 or float64, not {own.dtype}; convert it first")
    if heads.dtype != own.dtype:
        raise ValueError(f"received is of type {heads.dtype}, own of type {own.dtype}; convert one of them")


def _check_array(received: Array, batch: tuple[int, ...], head: tuple[int, int]) -> int:
    shape = tuple(received.shape)
    if len(shape) != len(batch) + 3 or shape[: len(batch)] != batch or shape[-2:] != tuple(head):
        expected = ", ".join(map(str, (*batch, "models", *head)))
        raise ValueError(f"received has shape {shape}, but own calls for ({expected})")
    return int(shape[-3])


def _check_pool(xp: Any, pool: Pool, batch: tuple[int, ...], head: tuple[int, int]) -> int:
    if pool.heads.ndim != 3 or tuple(pool.heads.shape[1:]) != tuple(head):
        expected = ", ".join(map(str, ("heads", *head)))
        raise ValueError(f"the pool's heads have shape {tuple(pool.heads.shape)}, but own calls for ({expected})")
    index = pool.index
    if not is_array(index) or not xp.isdtype(index.dtype, "integral"):
        raise ValueError("the pool's index must be an array of integers, of the same library as its heads")
    if tuple(index.shape[:-1]) != batch or index.ndim == 0:
        raise ValueError(f"the pool's index has shape {tuple(index.shape)}, but own calls for {(*batch, 'models')}")
    if prod(index.shape) and not bool(xp.all((index >= 0) & (index < pool.heads.shape[0]))):
        raise ValueError(f"the pool's index points outside its {pool.heads.shape[0]} heads; mask absent models")
    return int(index.shape[-1])


def _take_flags(xp: Any, flags: Array, index: Array) -> Array:
    return xp.reshape(xp.take(flags, xp.reshape(index, (-1,)), axis=0), index.shape)


def _centre(xp: Any, own: Array) -> Array:
    """Return the point about which a pool's inner products are taken: an own head, never a stranger's.

    About a mean over strangers, one huge head would cost the others all their digits.
    """
    return own[0, :] if own.shape[0] else xp.zeros((own.shape[1],), dtype=own.dtype, device=own.device)


def _zeroed(xp: Any, heads: Array, fits: Array) -> Array:
    """Replace heads that are unfit by zeros, since even with weight 0 a NaN would spread in a product."""
    return xp.where(fits[:, None], heads, xp.zeros_like(heads))


def _refusals(
    xp: Any,
    fits: Array,
    mask: Array | None,
    flat: Array,
    heads_fit: Array,
    index: Array | None,
    shape: tuple[int, ...],
) -> tuple[Array | None, Array | None]:
    """Return which models are usable [B, M] and the reasons for the others, or None where all are."""
    if mask is not None:
        if not is_array(mask) or mask.dtype != xp.bool or tuple(mask.shape) != shape:
            found = tuple(mask.shape) if is_array(mask) else type(mask).__name__
            raise ValueError(f"mask must be a boolean array of shape {shape}, not {found}")
        mask = xp.reshape(mask, fits.shape)
        usable = fits & mask
    else:
        usable = fits
    if bool(xp.all(usable)):
        return None, None
    finite = heads_fit if bool(xp.all(heads_fit)) else xp.all(xp.isfinite(flat), axis=-1)
    if index is not None:
        finite = _take_flags(xp, finite, index)

    def code(reason: Reason) -> Array:
        return xp.asarray(int(reason), dtype=xp.int8, device=fits.device)

    refusals = xp.where(finite, code(Reason.TOO_LARGE), code(Reason.NOT_FINITE))
    return usable, refusals if mask is None else xp.where(mask, refusals, code(Reason.ABSENT))


def _task(
    xp: Any,
    sizes: tuple[tuple[int, ...], int, int, int],
    own: Array,
    evaluation: Evaluation | None,
    claims: Array | None,
    context: Context,
) -> Task:
    batch, models, classes, depth = sizes
    size = prod(batch)

    def flat(name: str, values: Array | None, tail: tuple[int, ...]) -> Array | None:
        if values is None:
            return None
        if not is_array(values) or tuple(values.shape) != (*batch, *tail):
            found = tuple(values.shape) if is_array(values) else type(values).__name__
            raise ValueError(f"{name} must be an array of shape {(*batch, *tail)}, not {found}")
        return xp.reshape(values, (size, prod(tail) if name == "context.previous" else tail[0], *tail[1:]))

    return Task(
        evaluation=None if evaluation is None else _check_evaluation(xp, evaluation, batch, classes, own, depth),
        claims=flat("claims", claims, (models, classes)),
        previous=None if context.previous is None else _flat_previous(xp, context.previous, own, size),
        senders=flat("context.senders", context.senders, (models,)),
        draws=None,
        iteration=context.iteration,
        total=context.total,
    )


def _flat_previous(xp: Any, previous: Array, own: Array, size: int) -> Array:
    if not is_array(previous) or tuple(previous.shape) != tuple(own.shape) or previous.dtype != own.dtype:
        raise ValueError(f"context.previous must be an array like own, {tuple(own.shape)} of type {own.dtype}")
    previous = xp.reshape(previous, (size, own.shape[-2] * own.shape[-1]))
    if not bool(xp.all(squared_norms(xp, previous) <= LARGEST_NORM**2)):
        raise ValueError("context.previous holds values that are not finite or beyond 1e15")
    return previous


def _check_evaluation(
    xp: Any, evaluation: Evaluation, batch: tuple[int, ...], classes: int, own: Array, depth: int
) -> Evaluation:
    features, labels = evaluation.features, evaluation.labels
    if not is_array(features) or not is_array(labels):
        raise ValueError("evaluation needs arrays: Evaluation(features [..., T, D], labels [..., T])")
    samples = features.shape[-2] if features.ndim >= 2 else 0
    if tuple(features.shape) != (*batch, samples, depth) or tuple(labels.shape) != (*batch, samples):
        raise ValueError(
            f"evaluation holds features {tuple(features.shape)} and labels {tuple(labels.shape)}, but own calls "
            f"for {(*batch, 'samples', depth)} and {(*batch, 'samples')}"
        )
    if not xp.isdtype(labels.dtype, "integral"):
        raise ValueError(f"evaluation labels must be integers, not {labels.dtype}")
    if prod(labels.shape) and not bool(xp.all((labels >= -1) & (labels < classes))):
        raise ValueError(f"evaluation labels must lie between 0 and {classes - 1}, or be -1 for padding")
    features = xp.astype(features, own.dtype, copy=False)
    if not bool(xp.all(squared_norms(xp, features) <= LARGEST_NORM**2)):
        raise ValueError("evaluation features hold values that are not finite or beyond 1e15")
    size = prod(batch)
    return Evaluation(xp.reshape(features, (size, samples, depth)), xp.reshape(labels, (size, samples)))
