"""What is measured of a world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import block_bytes, namespace, to_numpy
from bristle.simulation.guesses import Guesses
from bristle.simulation.world import Round, World

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Measurement:
    """How the benign peers of a world do, on the whole test set.

    Parameters
    ----------
    accuracy : array [peers]
        Share of all test samples whose class is predicted.
    class_accuracy : array [peers, C]
        The same for the samples of each class; NaN for a class without any.
    f1 : array [peers, C]
        F1 of each class, one against the rest, with 0/0 = 0.
    weight_benign, weight_malicious : float
        Share of a row of a head that came from other benign peers and from attackers in the latest iteration, on
        average over the peers that acted and the classes. The rest is the own head's.
    bytes_sent : integer array [peers]
        What each peer sent from the beginning.
    """

    accuracy: Floats
    class_accuracy: Floats
    f1: Floats
    weight_benign: float
    weight_malicious: float
    bytes_sent: np.ndarray[Any, np.dtype[np.int64]]


def guesses_for(world: World) -> Guesses | None:
    """Return what speeds up the measurements of a world, if there is something: give it to each of them."""
    test = world.data.test
    return Guesses(test) if isinstance(test, np.ndarray) and test.dtype == np.float32 else None


def measure(world: World, latest: Round, *, guesses: Guesses | None = None) -> Measurement:
    """Measure a world after an iteration."""
    hits, predicted, real = _counts(world) if guesses is None else _counted(world, guesses)
    both = predicted + real
    benign, malicious = _weights(world, latest)
    return Measurement(
        accuracy=hits.sum(axis=1) / max(1, int(real.sum())),
        class_accuracy=np.where(real > 0, hits / np.maximum(real, 1), np.nan),
        f1=2 * hits / np.maximum(both, 1),
        weight_benign=benign,
        weight_malicious=malicious,
        bytes_sent=world.bytes_sent,
    )


def _weights(world: World, latest: Round) -> tuple[float, float]:
    weights = to_numpy(latest.decision.weights)
    receivers, _, classes = weights.shape
    if not receivers:
        return 0.0, 0.0
    shares = weights.sum(axis=2, dtype=np.float64)
    malicious = float(shares[latest.senders >= world.scenario.peers].sum())
    total = receivers * classes
    return (float(shares.sum()) - malicious) / total, malicious / total


def _counted(world: World, guesses: Guesses) -> tuple[Any, Any, Any]:
    """Return what `_counts` does, from predictions."""
    heads, labels = to_numpy(world.heads), to_numpy(world.data.test_labels)
    count, classes, _ = heads.shape
    hits = np.zeros((count, classes), dtype=np.int64)
    predicted = np.zeros((count, classes), dtype=np.int64)
    for peers, guess in guesses.blocks(heads):
        alike = labels.astype(guess.dtype)
        for peer, guessed in zip(peers, guess, strict=True):
            predicted[peer] = np.bincount(guessed, minlength=classes)
            hits[peer] = np.bincount(guessed[guessed == alike], minlength=classes)
    return hits, predicted, np.bincount(labels, minlength=classes)


def _counts(world: World) -> tuple[Any, Any, Any]:
    """Count hits and predictions of each peer and class [peers, C], and the samples of each class [C]."""
    heads, test, labels = world.heads, world.data.test, to_numpy(world.data.test_labels)
    xp, (peers, classes, depth) = namespace(heads), heads.shape
    hits = np.zeros((peers, classes), dtype=np.int64)
    predicted = np.zeros((peers, classes), dtype=np.int64)
    # In blocks of heads and samples, so that the outputs for all of them never lie in memory at once.
    room = max(1, block_bytes(heads) // (16 * classes))
    samples = max(1, min(len(labels), room))
    size = max(1, room // samples)
    for start in range(0, peers, size):
        some = heads[start : start + size, ...]
        rows = xp.reshape(some, (-1, depth))
        count = int(some.shape[0])
        cells = (np.arange(count) * classes)[None, :]
        for first in range(0, len(labels), samples):
            outputs = test[first : first + samples, :] @ xp.matrix_transpose(rows)
            guess = to_numpy(xp.argmax(xp.reshape(outputs, (-1, count, classes)), axis=-1))
            cell = guess + cells
            right = cell[guess == labels[first : first + samples, None]]
            for counted, into in ((cell.ravel(), predicted), (right, hits)):
                into[start : start + count] += np.bincount(counted, minlength=count * classes).reshape(count, classes)
    return hits, predicted, np.bincount(labels, minlength=classes)
