"""The task that other systems get: a head on frozen features, trained by one mini-batch a round. It needs NumPy only.

Adapters run in the virtual environments of other systems, so nothing of Bristle is imported here. The step is the
same as `bristle.learning.training.train_step`, which a test holds it to.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BATCH = 5
RATE, L2, BETA1, BETA2, EPSILON = 1e-3, 5e-3, 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Task:
    """What every peer trains on, features [peers, S, D] and labels [peers, S], and what all are tested on."""

    features: Array
    labels: Array
    test: Array
    test_labels: Array
    classes: int = 10

    @classmethod
    def load(cls, path: Path) -> Task:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return cls(file["features"], file["labels"], file["test"], file["test_labels"])

    def save(self, path: Path) -> None:
        """Write it down for another environment."""
        np.savez(path, features=self.features, labels=self.labels, test=self.test, test_labels=self.test_labels)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a head: classes, features."""
        return self.classes, int(self.features.shape[-1])

    def accuracy(self, head: Array) -> float:
        """Return the share of test images that a head names rightly."""
        return float(((self.test @ head.T).argmax(axis=1) == self.test_labels).mean())


class Trainer:
    """One peer's optimiser: Adam, whose moments stay with the peer while its head is replaced."""

    def __init__(self, task: Task, peer: int) -> None:
        self.features, self.labels, self.classes = task.features[peer], task.labels[peer], task.classes
        self.first = np.zeros(task.shape, np.float32)
        self.second = np.zeros(task.shape, np.float32)
        self.steps = 0
        self._rng = np.random.default_rng(peer)

    @property
    def samples(self) -> int:
        """How many samples the peer trains on."""
        return len(self.labels)

    def step(self, head: Array) -> Array:
        """Return the head after one mini-batch drawn at random."""
        return self.step_on(head, self._rng.permutation(self.samples)[:BATCH])

    def step_on(self, head: Array, chosen: Array) -> Array:
        """Return the head after a mini-batch of the chosen samples."""
        features, labels = self.features[chosen], self.labels[chosen]
        logits = features @ head.T
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        pull = odds / odds.sum(axis=1, keepdims=True) - np.eye(self.classes, dtype=np.float32)[labels]
        gradient = pull.T @ features / len(labels) + L2 * head
        self.steps += 1
        self.first = BETA1 * self.first + (1 - BETA1) * gradient
        self.second = BETA2 * self.second + (1 - BETA2) * gradient**2
        first, second = self.first / (1 - BETA1**self.steps), self.second / (1 - BETA2**self.steps)
        return np.asarray(head - RATE * first / (np.sqrt(second) + EPSILON), np.float32)


def loopback_bytes() -> int:
    """Return how many bytes have crossed this network namespace's loopback device, headers included."""
    for line in Path("/proc/self/net/dev").read_text(encoding="utf-8").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    return 0


def say(**row: object) -> None:
    """Tell the benchmark a row."""
    print(json.dumps(row), flush=True)
