"""Attacks on evidence: what attackers who know the rule know, and how their statements are put together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bristle._core import Array, to_numpy
from bristle._core.validation import check_count, check_positive
from bristle.attacks.base import Attack, check_number
from bristle.attacks.view import Knowledge, View
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Statement

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Lies = Mapping[int, Floats]
SEEN = 1500
"""From so many samples attackers estimate the scatter."""


@dataclass(frozen=True, eq=False)
class Scene:
    """What the strongest attackers know: every honest statement, every victim's samples, and their own statements."""

    statements: Sequence[Statement]
    samples: Sequence[Evaluation]
    attackers: Sequence[Statement]
    classes: int

    @cached_property
    def ground(self) -> Ground:
        """What they make of it, once for all victims."""
        return Ground(self)


class Ground:
    """Where all classes are, how much samples scatter, and how far classes are apart, by all that is honest.

    Attributes
    ----------
    counts, rows : array [N, C], [N, C, D]
        What the honest peers state.
    known : integer array
        The classes that somebody holds.
    count : float
        The usual number n of samples behind a mean.
    means : array [C, D]
        The mean of each class over all owners.
    inverse : array [D, D]
        The inverse of the scatter within classes, shrunk a little.
    apart : array [C, C]
        Squared Mahalanobis distances between classes; infinite where one is not known, and on the diagonal.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        plain = [one.numpy() for one in scene.statements]
        self.counts: Floats = np.stack([np.asarray(one.counts) for one in plain])
        self.rows: Floats = np.stack([np.asarray(one.rows) for one in plain])
        total = self.counts.sum(axis=0)
        self.known: Integers = np.flatnonzero(total > 0)
        self.count = float(np.median(self.counts[self.counts > 0])) if len(self.known) else 1.0
        self.means: Floats = np.einsum("kc,kcd->cd", self.counts, self.rows) / np.maximum(total, 1)[:, None]
        self.features: Floats = np.concatenate([to_numpy(one.features) for one in scene.samples]).astype(np.float64)
        self.labels: Integers = np.concatenate([to_numpy(one.labels) for one in scene.samples]).astype(np.int64)
        chosen = np.random.default_rng(0).permutation(len(self.labels))[:SEEN]
        self.rest: Floats = self.features[chosen] - self.means[self.labels[chosen]]
        scatter = self.rest.T @ self.rest / max(len(self.rest), 1)
        scatter = 0.8 * scatter + 0.2 * np.diag(np.diag(scatter) + 1e-3 * np.trace(scatter) / len(scatter) + 1e-12)
        self.inverse: Floats = np.linalg.inv(scatter)
        inner = self.means @ self.inverse @ self.means.T
        squares = np.diag(inner)
        self.apart: Floats = np.full_like(inner, np.inf)
        pairs = np.ix_(self.known, self.known)
        self.apart[pairs] = np.maximum(squares[:, None] + squares[None] - 2 * inner, 1e-9)[pairs]
        np.fill_diagonal(self.apart, np.inf)

    def own(self, victim: int) -> Integers:
        """Return the classes that a victim holds."""
        return np.flatnonzero(self.counts[victim] > 0)

    def foreign(self, victim: int) -> Integers:
        """Return the known classes that it does not hold."""
        return np.setdiff1d(self.known, self.own(victim))

    def owners(self, label: int, victim: int) -> Integers:
        """Return the honest owners of a class other than the victim."""
        found: Integers = np.flatnonzero(self.counts[:, label] > 0)
        others: Integers = found[found != victim]
        return others

    def noise(self, rng: np.random.Generator, rows: int) -> Floats:
        """Draw the error [rows, D] that means of n samples have."""
        drawn = rng.normal(size=(rows, len(self.rest)))
        found: Floats = drawn @ self.rest / np.sqrt(max(len(self.rest), 1) * self.count)
        return found

    def nearest(self, label: int, among: Integers) -> int | None:
        """Return the nearest other class among some."""
        others = among[among != label]
        return int(others[self.apart[label, others].argmin()]) if len(others) else None

    def pushed(self, label: int, towards: Floats, size: float) -> Floats:
        """Return the mean of a class, moved towards a point by `size` standard errors of a mean of n samples."""
        way = towards - self.means[label]
        length = np.sqrt(max(float(way @ self.inverse @ way), 1e-12))
        found: Floats = self.means[label] + size / np.sqrt(self.count) / length * way
        return found


@dataclass(frozen=True)
class StatementAttack(Attack):
    """An attack that crafts statements, for worlds whose peers exchange evidence.

    To write one, subclass and implement `state`; `bristle.testing.check_attack` checks whether it keeps the rules. Most
    subclass `Liars`, which puts statements together and asks for the lies alone.
    """

    @property
    def knows(self) -> Knowledge:
        """Everything: honest statements and the victim's samples."""
        return Knowledge.EVERYTHING

    @abstractmethod
    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        """Return what each attacker states to a victim."""

    def craft(self, view: View, draws: Array | None) -> Array:
        """Refuse worlds of heads."""
        raise ValueError(f"{type(self).__name__} crafts statements: use it with the rule evidence")


@dataclass(frozen=True, kw_only=True)
class Liars(StatementAttack):
    """m_k,c = lie_k,c + e_k,c: statements like those of honest owners of all classes, apart from some lies.

    Parameters
    ----------
    noise : float
        The size of the error e of lies, in standard errors of an honest mean: with none, liars who say the same are
        too alike.
    together : bool
        Whether all draw the same errors.
    count : float, optional
        How many samples they claim of each class; by default as many as honest owners.
    everybody : int
        0: to every victim a statement of its own, with lies about what it cannot test. Otherwise one statement for
        all, with lies about so many classes, those that are most alike.
    foreign_only : bool
        Whether they claim nothing but the classes that they lie about, so that there is nothing to test.
    classes_each : int
        0: they claim all these classes. Otherwise each claims only so many of them, the next ones in turn, so that no
        class has conspicuously many owners.
    """

    noise: float = 1.0
    together: bool = False
    count: float | None = None
    everybody: int = 0
    foreign_only: bool = False
    classes_each: int = 0

    def __post_init__(self) -> None:
        check_number("noise", self.noise, least=0)
        check_count("everybody", self.everybody)
        check_count("classes_each", self.classes_each)
        if self.count is not None:
            check_positive("count", self.count)

    @abstractmethod
    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Return the false means of some classes by the attacker at `place`."""

    def claim(self, ground: Ground, target: Target, place: int) -> float:
        """Return how many samples the attacker at `place` claims of each class."""
        return ground.count if self.count is None else self.count

    def scatter(self, ground: Ground, target: Target, base: Statement, place: int) -> tuple[Floats, Floats]:
        """Return factors and diagonal of the attacker at `place`, given those of an honest peer."""
        return np.asarray(base.factors), np.asarray(base.diagonal)

    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        """Put the statements together."""
        ground = scene.ground
        target = Target.of(ground, victim, self.everybody)
        if self.everybody:
            rng = np.random.default_rng(len(scene.attackers))
        shared = ground.noise(rng, scene.classes)
        found = []
        for place in range(len(scene.attackers)):
            lies = self.lies(ground, target, place, rng)
            rows = ground.means + ground.noise(rng, scene.classes)
            errors = shared if self.together else ground.noise(rng, scene.classes)
            for label, lie in lies.items():
                rows[label] = lie + self.noise * errors[label]
            counts = np.zeros(scene.classes)
            stated = np.array(sorted(lies) if self.foreign_only and lies else ground.known, dtype=np.int64)
            if self.classes_each:
                stated = np.roll(stated, -place * self.classes_each)[: self.classes_each]
            counts[stated] = self.claim(ground, target, place)
            base = scene.statements[int(rng.integers(len(scene.statements)))].numpy()
            factors, diagonal = self.scatter(ground, target, base, place)
            parts = (rows * (counts > 0)[:, None], counts, factors, diagonal)
            found.append(Statement(*(part.astype(np.float32) for part in parts)))
        return found


@dataclass(frozen=True, eq=False)
class Target:
    """A victim: the classes that it can test, and those that it cannot."""

    victim: int
    own: Integers
    foreign: Integers

    @classmethod
    def of(cls, ground: Ground, victim: int, everybody: int) -> Target:
        """Return a victim, or everybody, who are lied to about so many classes."""
        if not everybody:
            return cls(victim, ground.own(victim), ground.foreign(victim))
        order = ground.known[np.argsort(ground.apart[ground.known].min(axis=1), kind="stable")]
        return cls(victim, np.sort(order[everybody:]), np.sort(order[:everybody]))
