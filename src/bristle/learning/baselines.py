"""Baselines, and accuracy on a test set.

The oracle is trained on all samples: an upper bound of what learning together can reach. A local-only head is trained
on the samples of one peer: learning together should beat it.
"""

from __future__ import annotations

from typing import Any

from bristle._core import Array, block_bytes, namespace
from bristle.learning.metrics import accuracy
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.training import DEFAULTS, full_step, train

ITERATIONS = 300


def train_oracle(
    features: Array,
    labels: Array,
    classes: int,
    *,
    steps: int = ITERATIONS,
    settings: TrainingSettings = DEFAULTS,
) -> Array:
    """Return the head [..., C, D] after `steps` steps of Adam from zero, each over all pooled samples.

    `features` [..., S, D] and `labels` [..., S] (-1 = padding) are the pooled samples of all honest peers.
    """
    state = HeadState.zeros((*labels.shape[:-1], classes, features.shape[-1]), like=features)
    for _ in range(steps):
        state = full_step(state, features, labels, settings=settings, donate=True)
    return state.head


def train_alone(
    features: Array,
    labels: Array,
    classes: int,
    *,
    seed: int,
    steps: int = ITERATIONS,
    index: Array | None = None,
    settings: TrainingSettings = DEFAULTS,
) -> Array:
    """Return the heads [..., C, D] of peers that never integrate, after `steps` mini-batches each from zero.

    `features` [..., S, D] and `labels` [..., S] (-1 = padding), or a table [N, D] and the `index` [..., S] of each
    peer's samples. Draws are keyed by (seed, peer, iteration) as in `train`.
    """
    state = HeadState.zeros((*labels.shape[:-1], classes, features.shape[-1]), like=features)
    return train(state, features, labels, steps=steps, seed=seed, index=index, settings=settings).head


def accuracy_on(heads: Array, features: Array, labels: Array) -> Array:
    """Return the accuracy [...] of `heads` [..., C, D] on one test set: `features` [T, D], `labels` [T].

    Works in blocks of heads and samples, to limit memory for outputs.
    """
    xp = namespace(heads, features)
    if heads.ndim < 2 or features.ndim != 2 or heads.shape[-1] != features.shape[1]:
        raise ValueError(
            f"heads {list(heads.shape)} and features {list(features.shape)} do not fit: "
            "give heads [..., classes, features] and a test set [samples, features]"
        )
    if tuple(labels.shape) != (features.shape[0],):
        raise ValueError(f"labels have the shape {list(labels.shape)}, but there are {features.shape[0]} samples")
    batch, (classes, depth) = tuple(heads.shape[:-2]), heads.shape[-2:]
    flat = xp.reshape(heads, (-1, classes, depth))
    # Outputs, what they are compared with and intermediate results: some four arrays of 8 bytes a number.
    room = block_bytes(heads) // (4 * 8 * classes)
    samples = max(1, min(features.shape[0], room))
    size = max(1, room // samples)
    parts = [
        _accuracy(xp, flat[start : min(start + size, flat.shape[0]), ...], features, labels, samples)
        for start in range(0, flat.shape[0], size)
    ]
    return xp.reshape(xp.concat(parts, axis=0) if parts else flat[:, 0, 0], batch)


def _accuracy(xp: Any, heads: Array, features: Array, labels: Array, samples: int) -> Array:
    """Return the accuracy [B] of heads [B, C, D], `samples` samples at a time."""
    count, classes, depth = heads.shape
    rows = xp.reshape(heads, (count * classes, depth))
    hits = xp.zeros((count,), dtype=heads.dtype, device=heads.device)
    total = 0
    for start in range(0, features.shape[0], samples):
        part = slice(start, min(start + samples, labels.shape[0]))
        some = labels[part]
        # One product for all heads is several times faster than one per head.
        logits = xp.reshape(features[part, :] @ rows.T, (some.shape[0], count, classes))
        real = int(xp.sum(xp.astype(some >= 0, xp.int64)))
        hits = hits + accuracy(xp.permute_dims(logits, (1, 0, 2)), some) * real
        total += real
    return hits / max(total, 1)
