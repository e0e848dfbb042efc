"""F1 per class, accuracy and loss, for any batch of heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array, namespace
from bristle._core.short_rows import count_values


@dataclass(frozen=True)
class Evaluation:
    """Held-out samples, on which a peer tests received heads.

    Parameters
    ----------
    features : array [..., T, D]
        Features of the samples.
    labels : integer array [..., T]
        Their classes; -1 is padding.
    """

    features: Array
    labels: Array


def predict(logits: Array) -> Array:
    """Return argmax_c of `logits` [..., C]; ties go to the lowest class."""
    return namespace(logits).argmax(logits, axis=-1)


def accuracy(logits: Array, labels: Array) -> Array:
    """Return the fraction of samples classified correctly [...].

    `logits` [..., T, C]; `labels` [..., T], -1 = padding. No samples: 0.
    """
    xp = namespace(logits, labels)
    valid = labels >= 0
    hits = xp.sum(xp.astype((predict(logits) == labels) & valid, logits.dtype), axis=-1)
    total = xp.sum(xp.astype(valid, logits.dtype), axis=-1)
    return hits / xp.where(total > 0, total, xp.ones_like(total))


def samples_per_class(labels: Array, classes: int, dtype: Any) -> Array:
    """Count the samples of each class: [..., C] from `labels` [..., T], -1 = padding."""
    return count_values(labels, classes, dtype)


def f1_scores(predictions: Array, labels: Array, classes: int, dtype: Any) -> Array:
    """Return F1_c = 2 TP_c / (2 TP_c + FP_c + FN_c) of each class, one against the rest, with 0/0 = 0.

    `predictions` and `labels` [..., T] (they broadcast); -1 in `labels` is padding. Predictions range over all
    classes, so that predicting a class that the tester does not hold is an error like any other.
    """
    xp = namespace(predictions, labels)
    predictions = xp.where(labels >= 0, predictions, xp.full_like(predictions, -1))
    hit = xp.where(predictions == labels, predictions, xp.full_like(predictions, -1))
    true_positives = samples_per_class(hit, classes, dtype)
    predicted = samples_per_class(predictions, classes, dtype)
    total = predicted + samples_per_class(labels, classes, dtype)
    return 2 * true_positives / xp.where(total > 0, total, xp.ones_like(total))


def log_likelihood_loss(logits: Array, labels: Array) -> Array:
    """Return the mean of -log softmax(logits)[label] over the samples [...]; no samples: 0.

    `logits` [..., T, C]; `labels` [..., T], -1 = padding.
    """
    xp = namespace(logits, labels)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    valid = labels >= 0
    place = xp.astype(xp.where(valid, labels, xp.zeros_like(labels)), xp.int64, copy=False)
    target = xp.take_along_axis(shifted, xp.broadcast_to(place, shifted.shape[:-1])[..., None], axis=-1)[..., 0]
    losses = xp.log(xp.sum(xp.exp(shifted), axis=-1)) - target
    total = xp.sum(xp.astype(valid, logits.dtype), axis=-1)
    summed = xp.sum(xp.where(valid, losses, xp.zeros_like(losses)), axis=-1)
    return summed / xp.where(total > 0, total, xp.ones_like(total))
