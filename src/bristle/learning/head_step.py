"""One step of softmax regression for a batch of heads, in blocks: the part that has to be fast."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from bristle._core import Array, block_bytes, namespace
from bristle.learning.adam import Arrays, HeadState, TrainingSettings, adam_pass, adam_update, paces

# Parameters in a block of NumPy work: what one pass writes is still in the cache when the next one reads it.
BLOCK = 1 << 17
# Up to this many samples a peer, NumPy's vecdot beats BLAS, which takes its time to start on every peer.
SMALL_BATCH = 16


@dataclass(frozen=True)
class Batch:
    """What each of B peers trains on in one step.

    Parameters
    ----------
    labels : integer array [B, b]
        Classes; -1 is padding.
    features : array [B, b, D] or [N, D]
        The samples, or a table that holds them.
    rows : integer array [B, b], optional
        Which rows of the table they are.
    """

    labels: Array
    features: Array
    rows: Array | None = None


def head_step(
    state: HeadState, batch: Batch, trained: Array | None, settings: TrainingSettings, *, donate: bool
) -> HeadState:
    """Step from `state` [B, C, D]; only rows `trained` [B, C] (None: all) change, and of peers with samples."""
    xp = namespace(state.head, batch.features)
    active = xp.any(batch.labels >= 0, axis=-1)
    rows = xp.broadcast_to(active[:, None], state.head.shape[:2])
    if trained is not None:
        rows = rows & trained
    if xp is np:
        return _numpy_step(state, batch, rows, settings, donate)
    peers, classes, depth = state.head.shape
    itemsize = 8 if state.head.dtype == xp.float64 else 4
    size = max(1, block_bytes(state.head) // (8 * itemsize * classes * depth))
    blocks = [
        _any_library_step(xp, state, batch, rows, settings, slice(start, min(start + size, peers)))
        for start in range(0, peers, size)
    ]
    if len(blocks) == 1:
        return blocks[0]
    return HeadState(
        xp.concat([block.head for block in blocks], axis=0),
        xp.concat([block.first for block in blocks], axis=0),
        xp.concat([block.second for block in blocks], axis=0),
        xp.concat([block.steps for block in blocks], axis=0),
    )


def _any_library_step(
    xp: Any, state: HeadState, batch: Batch, rows: Array, settings: TrainingSettings, part: slice
) -> HeadState:
    block = HeadState(state.head[part, ...], state.first[part, ...], state.second[part, ...], state.steps[part])
    labels = batch.labels[part, :]
    if batch.rows is None:
        features = batch.features[part, ...]
    else:
        taken = xp.take(batch.features, xp.reshape(batch.rows[part, :], (-1,)), axis=0)
        features = xp.reshape(taken, (*labels.shape, taken.shape[-1]))
    pull = _pull(xp, features @ xp.matrix_transpose(block.head), labels)
    return adam_update(block, xp.matrix_transpose(pull) @ features, settings, rows=rows[part, :])


def _pull(xp: Any, logits: Array, labels: Array) -> Array:
    """Return d loss / d logits [B, b, C]: (softmax - one-hot) / number of real samples; padding pulls nowhere."""
    odds = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    classes = xp.arange(logits.shape[-1], dtype=labels.dtype, device=labels.device)
    target = xp.astype(labels[:, :, None] == classes, logits.dtype)
    pull = odds / xp.sum(odds, axis=-1, keepdims=True) - target
    real = labels >= 0
    if bool(xp.all(real)):
        return pull / labels.shape[1]
    weight = xp.astype(real, logits.dtype)
    count = xp.sum(weight, axis=-1, keepdims=True)
    return pull * (weight / xp.where(count > 0, count, xp.ones_like(count)))[:, :, None]


def _numpy_step(state: HeadState, batch: Batch, rows: Array, settings: TrainingSettings, donate: bool) -> HeadState:
    peers, classes, depth = state.head.shape
    source = (state.head, state.first, state.second)
    donate = donate and all(values.flags.writeable for values in source)
    target = source if donate else (np.empty_like(source[0]), np.empty_like(source[1]), np.empty_like(source[2]))
    steps = state.steps + rows.any(axis=-1)
    # A peer that never trained is at step 0, where the bias correction would divide by 0.
    rate, epsilon = paces(np, np.maximum(steps, 1), np.float64, settings)
    rate, epsilon = rate.astype(state.head.dtype), epsilon.astype(state.head.dtype)
    everything = bool(rows.all())
    size = max(1, BLOCK // (classes * depth))
    for start in range(0, peers, size):
        part = slice(start, min(start + size, peers))
        _numpy_block(
            (source[0][part], source[1][part], source[2][part]),
            (target[0][part], target[1][part], target[2][part]),
            Batch(batch.labels[part], *_part_of_samples(batch, part)),
            None if everything else np.flatnonzero(rows[part]),
            (rate[part], epsilon[part]),
            settings,
        )
    return HeadState(*target, steps)


def _part_of_samples(batch: Batch, part: slice) -> tuple[Array, Array | None]:
    return (batch.features[part], None) if batch.rows is None else (batch.features, batch.rows[part])


def _numpy_block(
    source: Arrays,
    target: Arrays,
    batch: Batch,
    chosen: np.ndarray[Any, Any] | None,
    pace: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    settings: TrainingSettings,
) -> None:
    """Step from `source` [k, C, D] to `target`; only the rows `chosen`, counted through, change (None: all)."""
    head, (classes, depth) = source[0], source[0].shape[1:]
    gradient = _ROOM.take("gradient", head.shape, head.dtype)
    features = batch.features
    if batch.rows is not None:
        features = _ROOM.take("features", (*batch.rows.shape, depth), head.dtype)
        np.take(batch.features, batch.rows, axis=0, out=features, mode="clip")
    if features.shape[1] <= SMALL_BATCH:
        logits = np.vecdot(features[:, :, None, :], head[:, None, :, :])
    else:
        logits = features @ head.swapaxes(1, 2)
    pull = _pull(np, logits, batch.labels)
    pull *= 1 - settings.beta1
    np.matmul(pull.swapaxes(1, 2), features, out=gradient)
    rate, epsilon = pace
    if chosen is None:
        spare = _ROOM.take("spare", head.shape, head.dtype)
        adam_pass(source, target, (gradient, spare), (rate[:, None, None], epsilon[:, None, None]), settings)
        return
    work = [
        np.take(
            values.reshape(-1, depth),
            chosen,
            axis=0,
            out=_ROOM.take(name, (len(chosen), depth), head.dtype),
            mode="clip",
        )
        for name, values in zip(("head", "first", "second", "rows"), (*source, gradient), strict=True)
    ]
    state, spare = (work[0], work[1], work[2]), _ROOM.take("spare", work[0].shape, head.dtype)
    owner = chosen // classes
    adam_pass(state, state, (work[3], spare), (rate[owner, None], epsilon[owner, None]), settings)
    for old, new, changed in zip(source, target, state, strict=True):
        if new is not old:
            np.copyto(new, old)
        new.reshape(-1, depth)[chosen] = changed


class _Room(threading.local):
    """Memory for blocks, kept by each thread: fresh memory costs more than the arithmetic done in it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, np.dtype[Any]], np.ndarray[Any, Any]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an array with anything in it, for use until the next call with this name."""
        size = prod(shape)
        if size > BLOCK:
            return np.empty(shape, dtype)
        kept = self._kept.get((name, dtype))
        if kept is None:
            kept = self._kept[name, dtype] = np.empty(BLOCK, dtype)
        return kept[:size].reshape(shape)


_ROOM = _Room()
