"""Made-up people for tests of evidence: Gaussian classes that overlap a little, and statements about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Claims, EvidenceDecision, Statement, state

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Town:
    """Classes around centres [C, D], with a scatter that they have in common: noise @ mixing."""

    centres: Floats
    mixing: Floats

    @classmethod
    def of(cls, seed: int, *, classes: int = 6, features: int = 20, apart: float = 1.2) -> Town:
        """Return a town whose features are correlated."""
        rng = np.random.default_rng(seed)
        mixing = np.eye(features) + 0.4 * rng.standard_normal((features, features)) / np.sqrt(features)
        return cls(apart * rng.standard_normal((classes, features)), mixing)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.centres)

    def samples(self, seed: int, held: list[int], count: int = 12) -> Evaluation:
        """Return `count` samples of each class that somebody holds."""
        rng = np.random.default_rng([9, seed])
        labels = np.repeat(held, count)
        noise = rng.standard_normal((len(labels), self.centres.shape[1]))
        return Evaluation(self.centres[labels] + noise @ self.mixing, labels)

    def people(self, seed: int, count: int, *, each: int = 3, samples: int = 12) -> list[Evaluation]:
        """Return the samples of people who hold `each` consecutive classes."""
        held = [[(who + step) % self.classes for step in range(each)] for who in range(count)]
        return [self.samples(1000 * seed + who, some, samples) for who, some in enumerate(held)]

    def accuracy(self, decision: EvidenceDecision) -> float:
        """Return the share of fresh samples of all classes that a decision tells right."""
        fresh = self.samples(77, list(range(self.classes)), 100)
        scores = fresh.features @ np.asarray(decision.head).T + np.asarray(decision.bias)
        return float((scores.argmax(axis=1) == fresh.labels).mean())


def stated(samples: list[Evaluation], classes: int) -> list[Statement]:
    """Return everybody's statement."""
    return [state(one, classes) for one in samples]


def factors_of(statement: Statement) -> Floats:
    """Return the factors of a statement that has some."""
    return np.asarray(statement.factors)


def claims_of(means: Floats, label: list[int], count: list[int] | int, *, own: bool = False) -> Claims:
    """Return claims about means [N, D] in a space that is white already; the first is the receiver's if `own`."""
    number = len(means)
    counts = np.full(number, float(count)) if isinstance(count, int) else np.array(count, dtype=float)
    owner = np.arange(number) if own else np.arange(1, number + 1)
    return Claims(owner, np.array(label), counts, means @ means.T, max(label) + 1)
