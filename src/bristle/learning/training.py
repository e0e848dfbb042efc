"""Training heads: softmax regression on frozen features, for one peer or any batch of peers at once.

A step is a function of a state and samples that returns the next state. Peers never mix: a batch gives each
of them what it would get alone, so that a world can be cut into any blocks.
"""

from __future__ import annotations

from math import prod
from typing import Any

import array_api_compat
import numpy as np

from bristle._core import Array, argsort, keyed_uniforms, namespace, take_rows
from bristle._core.arrays import from_numpy
from bristle.learning.adam import HeadState, TrainingSettings
from bristle.learning.head_step import Batch, head_step
from bristle.learning.metrics import samples_per_class

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
    Non-I.I.D. Batches", CVPR Workshops 2020) only rows of classes that the peer has samples of change: the
    local softmax pushes all others down, which says nothing about them. Their moments stay as well, so that
    a class whose first sample comes late does not start with the momentum of pushes that never took place.

    Parameters
    ----------
    state : HeadState [..., C, D]
        The heads before.
    features : array [..., S, D], or [N, D] with `index`
        The peers' samples, or one table of samples for all of them.
    labels : integer array [..., S]
        Their classes; -1 is padding.
    draws : array [..., S]
        Uniforms: a mini-batch consists of the samples with the smallest ones. For results that repeat,
        `keyed_uniforms(seed, peers, iteration, S)`.
    index : integer array [..., S], optional
        Which rows of the table each peer holds, as in `Partition.padded().train`.
    consolidate : bool
        Whether the rule consolidates.
    settings : TrainingSettings
        Optimiser and size of the mini-batch.
    donate : bool
        The caller gives `state` up: NumPy then writes the result into its arrays, which saves memory and time.

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
    """Like `train_step`, but the batch is all samples: `features` [..., S, D], `labels` [..., S].

    `trained` [..., C] consolidates: only these rows change.
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
    """Pick a mini-batch for each peer, as rows of a table; None where there are no peers or no samples.

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
        # Where samples are too few a real one stands in, labelled as padding: padding itself may hold anything.
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
    fewer real samples. Among equal draws the first sample wins, in every library.
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
    # Linear in S, and the ascending order comes by itself.
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
    """Tell which classes each peer has samples of: [..., C] from `labels` [..., S], -1 = padding."""
    return samples_per_class(labels, classes, namespace(labels).float32) > 0


def mean_shift(head: Array) -> Array:
    """W_c - mean(W_c): subtract from each row of `head` [..., C, D] its own mean, as CWR* does.

    It brings rows that were trained apart to one level. Applied after integration, where the rule consolidates.
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
        raise ValueError(
            f"{name} has the shape {list(values.shape)}: {list(shape)} goes with the heads and labels given"
        )


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
    shape = (*batch, *state.head.shape[-2:])
    return HeadState(
        xp.reshape(state.head, shape),
        xp.reshape(state.first, shape),
        xp.reshape(state.second, shape),
        xp.reshape(state.steps, batch),
    )


def _last(values: Array) -> int:
    return int(values.shape[-1]) if values.ndim else 0
