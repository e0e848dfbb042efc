"""Head training: softmax regression on frozen features, for one peer or any batch of peers at once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from typing import Any

import array_api_compat
import numpy as np

from bristle._core import Array, argsort, block_bytes, keyed_uniforms, namespace, take_rows
from bristle._core.arrays import from_numpy
from bristle.learning.metrics import samples_per_class
from bristle.learning.optimiser import Arrays, HeadState, TrainingSettings, adam_pass, adam_update, paces

# Parameters in a block of NumPy work, which fits the cache.
BLOCK = 1 << 17
# Up to this many samples per peer, NumPy's vecdot is faster than BLAS, which has overhead per peer.
SMALL_BATCH = 16


@dataclass(frozen=True)
class Batch:
    """Mini-batches of B peers.

    Parameters
    ----------
    labels : integer array [B, b]
        Classes; -1 is padding.
    features : array [B, b, D] or [N, D]
        The samples, or a table that holds them.
    rows : integer array [B, b], optional
        Their rows in the table.
    """

    labels: Array
    features: Array
    rows: Array | None = None


def head_step(
    state: HeadState, batch: Batch, trained: Array | None, settings: TrainingSettings, *, donate: bool
) -> HeadState:
    """Return the state after a step from `state` [B, C, D]; only rows `trained` [B, C] (None: all) change."""
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
    return HeadState(*(xp.concat(parts, axis=0) for parts in zip(*(block.arrays for block in blocks), strict=True)))


def _any_library_step(
    xp: Any, state: HeadState, batch: Batch, rows: Array, settings: TrainingSettings, part: slice
) -> HeadState:
    block = HeadState(*(values[part, ...] for values in state.arrays))
    labels = batch.labels[part, :]
    if batch.rows is None:
        features = batch.features[part, ...]
    else:
        taken = xp.take(batch.features, xp.reshape(batch.rows[part, :], (-1,)), axis=0)
        features = xp.reshape(taken, (*labels.shape, taken.shape[-1]))
    pull = _pull(xp, features @ xp.matrix_transpose(block.head), labels)
    return adam_update(block, xp.matrix_transpose(pull) @ features, settings, rows=rows[part, :])


def _pull(xp: Any, logits: Array, labels: Array) -> Array:
    """Return d loss / d logits [B, b, C]: (softmax - one-hot) / number of real samples; 0 for padding."""
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
    source = state.arrays[:3]
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
            Batch(batch.labels[part], batch.features[part])
            if batch.rows is None
            else Batch(batch.labels[part], batch.features, batch.rows[part]),
            None if everything else np.flatnonzero(rows[part]),
            (rate[part], epsilon[part]),
            settings,
        )
    return HeadState(*target, steps)


def _numpy_block(
    source: Arrays,
    target: Arrays,
    batch: Batch,
    chosen: np.ndarray[Any, Any] | None,
    pace: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    settings: TrainingSettings,
) -> None:
    """Step from `source` [k, C, D] to `target`; only `chosen` rows of k * C change (None: all)."""
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
    size = (len(chosen), depth)
    work = [
        np.take(values.reshape(-1, depth), chosen, axis=0, out=_ROOM.take(name, size, head.dtype), mode="clip")
        for name, values in zip(("head", "first", "second", "rows"), (*source, gradient), strict=True)
    ]
    state, spare = (work[0], work[1], work[2]), _ROOM.take("spare", size, head.dtype)
    owner = chosen // classes
    adam_pass(state, state, (work[3], spare), (rate[owner, None], epsilon[owner, None]), settings)
    for old, new, changed in zip(source, target, state, strict=True):
        if new is not old:
            np.copyto(new, old)
        new.reshape(-1, depth)[chosen] = changed


class _Room(threading.local):
    """Buffers for blocks, reused by each thread: allocating them would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, np.dtype[Any]], np.ndarray[Any, Any]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an uninitialised array, valid until the next call with this name."""
        size = prod(shape)
        if size > BLOCK:
            return np.empty(shape, dtype)
        kept = self._kept.get((name, dtype))
        if kept is None:
            kept = self._kept[name, dtype] = np.empty(BLOCK, dtype)
        return kept[:size].reshape(shape)


_ROOM = _Room()


DEFAULTS = TrainingSettings()


def train_step(
    state: HeadState,
    features: Array,
    labels: Array,
    draws: Array,
    *,
    index: Array | None = None,
    consolidate: bool = False,
    settings: TrainingSettings = DEFAULTS,
    donate: bool = False,
) -> HeadState:
    """W' = Adam(W, ∂/∂W mean_i -log softmax(W x_i)[y_i]) over one mini-batch of each peer's own samples.

    A peer with fewer samples than a mini-batch uses all of them. One without samples keeps its head, and the
    step does not count.

    With consolidation (CWR*: Lomonaco, Maltoni and Pellegrini, "Rehearsal-Free Continual Learning over Small
    Non-I.I.D. Batches", CVPR Workshops 2020) only rows of classes with samples change: the local softmax would push
    down all others without evidence. Their moments stay as well, so that a class whose first sample comes late starts
    without momentum.

    Parameters
    ----------
    state : HeadState [..., C, D]
        The heads before.
    features : array [..., S, D], or [N, D] with `index`
        The peers' samples, or one table of samples for all of them.
    labels : integer array [..., S]
        Their classes; -1 is padding.
    draws : array [..., S]
        Uniforms: a mini-batch consists of the samples with the smallest ones. For reproducible results use
        `keyed_uniforms(seed, peers, iteration, S)`.
    index : integer array [..., S], optional
        Rows of the table that each peer holds, as in `Partition.padded().train`.
    consolidate : bool
        Whether the rule consolidates.
    settings : TrainingSettings
        Optimiser and size of the mini-batch.
    donate : bool
        Allow NumPy to write the result into the arrays of `state`, which saves memory and time.

    Returns
    -------
    HeadState [..., C, D]
        The heads after.
    """
    xp, batch, (classes, depth) = _check_state(state, features)
    _check_shape("features", features, (*features.shape[:-1], depth))
    taken = mini_batches(features, labels, draws, classes, index=index, batch=batch, size=settings.batch)
    if taken is None:
        return state
    trained = xp.reshape(trained_classes(labels, classes), (-1, classes)) if consolidate else None
    after = head_step(_reshaped(xp, state, (prod(batch),)), taken, trained, settings, donate=donate)
    return _reshaped(xp, after, batch)


def full_step(
    state: HeadState,
    features: Array,
    labels: Array,
    *,
    trained: Array | None = None,
    settings: TrainingSettings = DEFAULTS,
    donate: bool = False,
) -> HeadState:
    """Like `train_step`, with all samples as the batch: `features` [..., S, D], `labels` [..., S].

    With `trained` [..., C], only these rows change.
    """
    xp, batch, (classes, depth) = _check_state(state, features)
    peers, samples = prod(batch), _last(labels)
    _check_shape("features", features, (*batch, samples, depth))
    _check_labels(xp, labels, (*batch, samples), classes)
    if trained is not None:
        _check_shape("trained", trained, (*batch, classes))
        trained = xp.reshape(trained, (peers, classes))
    if not peers * samples:
        return state
    # A padded sample has no weight, but 0 * NaN is NaN.
    real = (labels >= 0)[..., None]
    features = features if bool(xp.all(real)) else xp.where(real, features, xp.zeros_like(features))
    taken = Batch(xp.reshape(labels, (peers, samples)), xp.reshape(features, (peers, samples, depth)))
    after = head_step(_reshaped(xp, state, (peers,)), taken, trained, settings, donate=donate)
    return _reshaped(xp, after, batch)


def train(
    state: HeadState,
    features: Array,
    labels: Array,
    *,
    steps: int,
    seed: int,
    index: Array | None = None,
    consolidate: bool = False,
    settings: TrainingSettings = DEFAULTS,
) -> HeadState:
    """Take `steps` steps of `train_step`. Peer p draws by the key (seed, p, iteration), iterations from 1."""
    batch, samples = tuple(state.head.shape[:-2]), _last(labels)
    peers = np.arange(prod(batch))
    for iteration in range(1, steps + 1):
        state = train_step(
            state,
            features,
            labels,
            keyed_uniforms(seed, peers, iteration, samples).reshape(*batch, samples),
            index=index,
            consolidate=consolidate,
            settings=settings,
            donate=iteration > 1,  # The first state is the caller's, the others are ours.
        )
    return state


def mini_batches(
    samples: Array,
    labels: Array,
    draws: Array,
    classes: int,
    *,
    index: Array | None,
    batch: tuple[int, ...],
    size: int,
) -> Batch | None:
    """Draw a mini-batch for each peer, as rows of a table; None if there are no peers or no samples.

    `samples` [*batch, S, ...], or a table [N, ...] with `index`; the others as in `train_step`.
    """
    xp = namespace(samples, labels)
    peers, held = prod(batch), _last(labels)
    _check_shape("draws", draws, (*batch, held))
    _check_labels(xp, labels, (*batch, held), classes)
    if index is None:
        _check_shape("features", samples, (*batch, held, *samples.shape[len(batch) + 1 :]))
        samples = xp.reshape(samples, (peers * held, *samples.shape[len(batch) + 1 :]))
    else:
        _check_index(xp, index, labels, samples)
    if not peers * held:
        return None
    labels = xp.reshape(labels, (peers, held))
    draws = from_numpy(draws, like=samples) if isinstance(draws, np.ndarray) else draws
    chosen = choose_batch(xp.reshape(draws, (peers, held)), labels, size)
    position, complete = chosen, bool(xp.all(chosen >= 0))
    if not complete:
        # Padding takes the features of a real sample, since its own may hold anything.
        stand_in = xp.max(chosen, axis=-1, keepdims=True)
        position = xp.where(chosen >= 0, chosen, xp.where(stand_in >= 0, stand_in, xp.zeros_like(stand_in)))
    picked = take_rows(xp, labels, position)
    if not complete:
        picked = xp.where(chosen >= 0, picked, xp.full_like(picked, -1))
    if index is None:
        start = xp.arange(peers, dtype=position.dtype, device=array_api_compat.device(position)) * held
        return Batch(picked, samples, position + start[:, None])
    rows = take_rows(xp, xp.reshape(index, (peers, held)), position)
    return Batch(picked, samples, rows if complete else xp.where(rows >= 0, rows, xp.zeros_like(rows)))


def choose_batch(draws: Array, labels: Array, size: int) -> Array:
    """Choose mini-batches without replacement: of each peer's real samples the `size` with the smallest draws.

    Returns positions [B, min(size, S)] in ascending order from `draws` and `labels` [B, S]; -1 where a peer has
    fewer real samples. Ties go to the first sample, in every library.
    """
    xp = namespace(draws, labels)
    peers, samples = labels.shape
    size, real = min(size, samples), labels >= 0
    complete = bool(xp.all(real))
    if size == samples:
        picked = xp.broadcast_to(xp.arange(samples, device=array_api_compat.device(labels)), (peers, samples))
    else:
        picked = _smallest(xp, draws if complete else xp.where(real, draws, xp.full_like(draws, xp.inf)), size)
    return picked if complete else xp.where(take_rows(xp, real, picked), picked, xp.full_like(picked, -1))


def _smallest(xp: Any, keys: Array, size: int) -> Array:
    """Return the positions [B, size], ascending, of the smallest `keys` [B, S]; size < S."""
    if xp is not np:
        return xp.sort(argsort(xp, keys)[:, :size], axis=-1)
    # Linear in S, and already in ascending order.
    last = np.partition(keys, size - 1, axis=-1)[:, size - 1 : size]
    chosen = keys <= last
    if np.count_nonzero(chosen) > size * len(keys):  # Several keys equal the last one: the first of them win.
        below, equal = keys < last, keys == last
        chosen = below | (equal & (np.cumsum(equal, axis=-1) <= size - below.sum(axis=-1, keepdims=True)))
    return np.nonzero(chosen)[1].reshape(len(keys), size)


def held_labels(labels: Array, index: Array) -> Array:
    """Look up the labels [..., S] of the samples that peers hold: `labels` [N] of a table, `index` [..., S], -1 too."""
    xp = namespace(labels, index)
    found = xp.take(labels, xp.reshape(xp.where(index >= 0, index, xp.zeros_like(index)), (-1,)), axis=0)
    found = xp.reshape(found, index.shape)
    return xp.where(index >= 0, found, xp.full_like(found, -1))


def trained_classes(labels: Array, classes: int) -> Array:
    """Return the mask of the classes with samples: [..., C] from `labels` [..., S], -1 = padding."""
    return samples_per_class(labels, classes, namespace(labels).float32) > 0


def mean_shift(head: Array) -> Array:
    """W_c - mean(W_c): subtract from each row of `head` [..., C, D] its own mean, as CWR* does.

    It makes rows comparable that were trained separately. Applied after integration, if the rule consolidates.
    """
    return head - namespace(head).mean(head, axis=-1, keepdims=True)


def _check_state(state: HeadState, features: Array) -> tuple[Any, tuple[int, ...], tuple[int, int]]:
    """Return the namespace, the batch shape and the shape of one head."""
    head = state.head
    xp = namespace(head, features)
    if head.ndim < 2 or 0 in head.shape[-2:]:
        raise ValueError(f"heads must be [..., classes, features], not {list(head.shape)}")
    if features.dtype != head.dtype:
        raise ValueError(f"features are {features.dtype}, but heads are {head.dtype}: convert one of them")
    batch = tuple(head.shape[:-2])
    _check_shape("state.first", state.first, tuple(head.shape))
    _check_shape("state.second", state.second, tuple(head.shape))
    _check_shape("state.steps", state.steps, batch)
    return xp, batch, (head.shape[-2], head.shape[-1])


def _check_shape(name: str, values: Array, shape: tuple[int, ...]) -> None:
    if tuple(values.shape) != shape:
        raise ValueError(f"{name} has the shape {list(values.shape)}: {list(shape)} would match the heads and labels")


def _check_labels(xp: Any, labels: Array, shape: tuple[int, ...], classes: int) -> None:
    _check_shape("labels", labels, shape)
    if not xp.isdtype(labels.dtype, "integral"):
        raise ValueError(f"labels must be integers, not {labels.dtype}")
    if 0 not in shape and int(xp.max(labels)) >= classes:
        raise ValueError(f"labels go up to {int(xp.max(labels))}, but heads have {classes} rows, for classes from 0")


def _check_index(xp: Any, index: Array, labels: Array, table: Array) -> None:
    _check_shape("index", index, tuple(labels.shape))
    if 0 in labels.shape:
        return
    if int(xp.max(index)) >= table.shape[0]:
        raise ValueError(f"index goes up to {int(xp.max(index))}, but the table has {table.shape[0]} samples")
    if bool(xp.any((index < 0) & (labels >= 0))):
        raise ValueError("index has padding where labels has none: look labels up with held_labels(labels, index)")


def _reshaped(xp: Any, state: HeadState, batch: tuple[int, ...]) -> HeadState:
    if tuple(state.steps.shape) == batch:
        return state
    return HeadState(*(xp.reshape(v, (*batch, *v.shape[state.steps.ndim :])) for v in state.arrays))


def _last(values: Array) -> int:
    return int(values.shape[-1]) if values.ndim else 0
