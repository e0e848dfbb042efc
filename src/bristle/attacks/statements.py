"""Attacks on evidence: what attackers who know the rule state to a victim."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from bristle._core import Array
from bristle.attacks.base import Attack
from bristle.attacks.view import Knowledge, View
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Statement

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scene:
    """What the strongest attackers know: every honest statement, every victim's samples, and their own statements."""

    statements: Sequence[Statement]
    samples: Sequence[Evaluation]
    attackers: Sequence[Statement]
    classes: int


@dataclass(frozen=True)
class StatementAttack(Attack):
    """An attack that crafts statements, for worlds whose peers exchange evidence."""

    @property
    def knows(self) -> Knowledge:
        """Everything: honest statements and the victim's samples."""
        return Knowledge.EVERYTHING

    @abstractmethod
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        """Return what each attacker states to a victim."""

    def craft(self, view: View, draws: Array | None) -> NoReturn:
        """Refuse worlds of heads."""
        raise ValueError(f"{type(self).__name__} crafts statements: use it with the rule evidence")
