"""Lies in statements: about where classes are, how many samples stand behind them, and how they scatter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from bristle._core.validation import check_count, check_positive
from bristle.attacks.base import check_number
from bristle.attacks.statements import Floats, Ground, Integers, Liars, Lies, Scene, StatementAttack, Target
from bristle.rules.evidence import Statement


def check_one_of(name: str, value: object, choices: object) -> None:
    """Raise ValueError unless a value is one of those of a Literal type."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, not {value!r}")


Towards = Literal["nearest", "foreign", "own", "farthest", "home"]
About = Literal["foreign", "own", "all", "one"]


@dataclass(frozen=True, kw_only=True)
class StatementEdge(Liars):
    r"""m_c = μ_c + (z / √n) (μ_o - μ_c) / ‖μ_o - μ_c‖_S⁻¹ + e, for the classes c that are lied about.

    At the edge of what sampling noise explains: z standard errors along the discriminant of c against another class o,
    in the whitened space where a head decides, with noise e of their own so that liars do not look alike. Knows
    everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    size : float
        The push z; below 0: away from o.
    towards : {"nearest", "foreign", "own", "farthest", "home"}
        The class o: the nearest of all, the nearest that the victim cannot test, the nearest that it holds, the
        farthest, or the middle of all that it holds.
    about : {"foreign", "own", "all", "one"}
        Which classes are lied about: those that the victim cannot test, those that it holds, all, or the one that is
        most like another.
    split : bool
        Whether every second attacker pushes the other way.
    noise, together, count, everybody, foreign_only, classes_each
        See `Liars`.
    """

    size: float = 3.0
    towards: Towards = "nearest"
    about: About = "foreign"
    split: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("size", self.size)
        check_one_of("towards", self.towards, Towards)
        check_one_of("about", self.about, About)

    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Push every class that is lied about."""
        size = -self.size if self.split and place % 2 else self.size
        found: dict[int, Floats] = {}
        for label in self._labels(ground, target):
            goal = self._goal(ground, target, int(label))
            if goal is not None:
                found[int(label)] = ground.pushed(int(label), goal, size)
        return found

    def _labels(self, ground: Ground, target: Target) -> Integers:
        if self.about == "own":
            return target.own
        if self.about == "all":
            return ground.known
        if self.about == "one" and len(target.foreign):
            return target.foreign[[int(ground.apart[target.foreign].min(axis=1).argmin())]]
        return target.foreign

    def _goal(self, ground: Ground, target: Target, label: int) -> Floats | None:
        if self.towards == "home":
            return ground.means[target.own].mean(axis=0) if len(target.own) else None
        if self.towards == "farthest":
            others = ground.known[ground.known != label]
            return ground.means[others[ground.apart[label, others].argmax()]] if len(others) else None
        among = {"nearest": ground.known, "foreign": target.foreign, "own": target.own}[self.towards]
        other = ground.nearest(label, among)
        return None if other is None else ground.means[other]


@dataclass(frozen=True, kw_only=True)
class FalseCounts(StatementEdge):
    r"""n_c = N for all classes, with the means of `StatementEdge`: few samples so that anything passes, or very many.

    Who says few is judged leniently, and everybody looks too much like it; who says many would have all the weight,
    and makes copies look independent. Knows everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    count : float
        The count N.
    low : int
        So many of the attackers say 1 instead.
    size, towards, about, split, noise, together, everybody, foreign_only
        See `StatementEdge`.
    """

    count: float | None = 1e6
    low: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("low", self.low)

    def claim(self, ground: Ground, target: Target, place: int) -> float:
        """Return `low` or `count` as the count of a class, by the attacker."""
        return 1.0 if place < self.low else super().claim(ground, target, place)


Between = Literal["middle", "pairs"]


@dataclass(frozen=True, kw_only=True)
class Bridge(StatementEdge):
    r"""m_c = the middle of honest owners' means, exactly, from `bridges` attackers; the others push.

    Bridges make independent owners look like copies, which count once: in the middle of all with a count of 1, or
    halfway between two of them, who are then both half as far from it as from each other. Knows everything. Costs
    O(D³) once, then O(K C S D).

    Parameters
    ----------
    bridges : int
        How many attackers are bridges.
    between : {"middle", "pairs"}
        Where they stand.
    bridge_claims : float, optional
        How many samples a bridge claims; by default as many as honest owners.
    size, towards, about, split, noise, together, count, everybody, foreign_only, classes_each
        See `StatementEdge`.
    """

    bridges: int = 1
    between: Between = "middle"
    bridge_claims: float | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("bridges", self.bridges)
        check_one_of("between", self.between, Between)
        if self.bridge_claims is not None:
            check_positive("bridge_claims", self.bridge_claims)

    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        """Put bridges where they belong, without noise."""
        found = super().state(scene, victim, rng)
        ground = scene.ground
        target = Target.of(ground, victim, self.everybody)
        for place in range(min(self.bridges, len(found))):
            rows = np.array(found[place].rows)
            for label in target.foreign:
                owners = ground.owners(int(label), victim)
                if self.between == "pairs" and len(owners) > 1:
                    owners = owners[[place % len(owners), (place + 1) % len(owners)]]
                if len(owners):
                    rows[label] = ground.rows[owners, label].mean(axis=0)
            found[place] = Statement(rows, found[place].counts, found[place].factors, found[place].diagonal)
        return found

    def claim(self, ground: Ground, target: Target, place: int) -> float:
        """Return `bridge_claims` as the count of a class if the attacker is a bridge."""
        if place < self.bridges and self.bridge_claims is not None:
            return self.bridge_claims
        return super().claim(ground, target, place)


@dataclass(frozen=True, kw_only=True)
class Partisans(Liars):
    r"""m_c = the mean of that honest owner of c who is farthest towards the nearest other class, + e.

    Nothing that they say is false: they take the side of the outermost honest owner of every foreign class, as far from
    it as independent owners are, or less. A median then moves to it. Knows everything. Costs O(D³) once, then
    O(K C S D).

    Parameters
    ----------
    past : float
        How many standard errors they go beyond that owner.
    noise, together, count, everybody, foreign_only, classes_each
        See `Liars`.
    """

    noise: float = 0.7
    past: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("past", self.past)

    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Take sides."""
        found: dict[int, Floats] = {}
        for label in (int(one) for one in target.foreign):
            other, owners = ground.nearest(label, ground.known), ground.owners(label, target.victim)
            if other is None or not len(owners):
                continue
            along = ground.inverse @ (ground.means[other] - ground.means[label])
            side = owners[(ground.rows[owners, label] @ along).argmax()]
            beyond = ground.pushed(label, ground.means[other], self.past) - ground.means[label]
            found[label] = ground.rows[side, label] + beyond
        return found


Along = Literal["nearest", "pairs", "discriminants", "everything", "nothing", "huge", "tiny"]


@dataclass(frozen=True, kw_only=True)
class PoisonedScatter(StatementEdge):
    r"""S = a × what is true along the differences of foreign classes, with honest means (z = 0) or with a push.

    Where everybody is said to vary much, a head does not look: the differences between foreign classes disappear.
    Knows everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    times : float
        The factor a, of variances.
    along : {"nearest", "pairs", "discriminants", "everything", "nothing", "huge", "tiny"}
        Along differences of each foreign class and the nearest other, of all foreign pairs, or along the
        discriminants themselves; along everything; a scatter of exactly zero, or of so many times more or less than
        true.
    size, towards, about, split, noise, together, count, everybody, foreign_only, classes_each
        See `StatementEdge`.
    """

    size: float = 0.0
    times: float = 10.0
    along: Along = "discriminants"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("times", self.times)
        check_one_of("along", self.along, Along)

    def scatter(self, ground: Ground, target: Target, base: Statement, place: int) -> tuple[Floats, Floats]:
        """Claim variance where it hurts."""
        factors, diagonal = np.asarray(base.factors), np.asarray(base.diagonal)
        if self.along == "nothing":
            return factors * 0, diagonal * 0
        if self.along in ("everything", "huge"):
            return factors * np.sqrt(self.times), diagonal * self.times
        if self.along == "tiny":
            return factors / np.sqrt(self.times), diagonal / self.times
        ways = self._ways(ground, target)
        if not len(ways) or not len(factors):
            return factors, diagonal
        turned = np.linalg.svd(ways, full_matrices=False)[2][: len(factors)]
        variance = ((ground.rest @ turned.T) ** 2).mean(axis=0)
        loud = np.sqrt(self.times * variance)[:, None] * turned
        return np.concatenate([loud, factors[: len(factors) - len(loud)]]), diagonal

    def _ways(self, ground: Ground, target: Target) -> Floats:
        foreign = [int(label) for label in target.foreign]
        if self.along == "nearest":
            nearest = [(label, ground.nearest(label, ground.known)) for label in foreign]
            pairs = [(one, other) for one, other in nearest if other is not None]
        else:
            pairs = [(one, other) for one in foreign for other in foreign if one < other]
        ways = np.array([ground.means[one] - ground.means[other] for one, other in pairs])
        found: Floats = ways.reshape(-1, ground.means.shape[1])
        return found @ ground.inverse if self.along == "discriminants" else found


Order = Literal["next", "nearest", "random"]


@dataclass(frozen=True, kw_only=True)
class PermutedLabels(Liars):
    r"""m_c = μ_π(c) + e for the classes that the victim cannot test, with a permutation π of them.

    Nothing that the victim holds speaks against it. Knows everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    order : {"next", "nearest", "random"}
        Each class takes the place of the next one, of the one most like it, or of a random one, the same for all.
    noise, together, count, everybody, foreign_only, classes_each
        See `Liars`.
    """

    order: Order = "next"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of("order", self.order, Order)

    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Return the means of foreign classes, permuted."""
        foreign = target.foreign
        if len(foreign) < 2:
            return {}
        if self.order == "nearest":
            places = [ground.nearest(int(label), foreign) for label in foreign]
        elif self.order == "random":
            mixed = np.random.default_rng(target.victim).permutation(foreign)
            places = [int(mixed[(list(mixed).index(label) + 1) % len(mixed)]) for label in foreign]
        else:
            places = [int(label) for label in np.roll(foreign, -1)]
        pairs = zip(foreign, places, strict=True)
        return {int(label): ground.means[other].copy() for label, other in pairs if other is not None}


@dataclass(frozen=True, kw_only=True)
class LaidOn(Liars):
    r"""m_c = μ_c + p (μ_a - μ_c) - q (x_a - μ_a) + e for foreign classes c, with a class a that the victim holds.

    Foreign means are laid on familiar ones, so that the victim loses the samples of its own classes; x_a is the
    victim's own mean, and q > 0 leans to the other side of its sampling error. Knows everything. Costs O(D³) once,
    then O(K C S D).

    Parameters
    ----------
    part : float
        How much p of the way.
    against : float
        The lean q.
    spread : bool
        Whether foreign classes are spread over all that the victim holds; else each goes to the nearest one.
    noise, together, count, everybody, foreign_only, classes_each
        See `Liars`.
    """

    part: float = 1.0
    against: float = 0.0
    spread: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("part", self.part)
        check_number("against", self.against)

    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Lay foreign means on familiar ones."""
        found: dict[int, Floats] = {}
        for number, label in enumerate(int(one) for one in target.foreign):
            if not len(target.own):
                break
            at = int(target.own[number % len(target.own)]) if self.spread else ground.nearest(label, target.own)
            assert at is not None
            error = ground.rows[target.victim, at] - ground.means[at]
            error = error * (ground.counts[target.victim, at] > 0)
            found[label] = ground.means[label] + self.part * (ground.means[at] - ground.means[label])
            found[label] -= self.against * error
        return found


@dataclass(frozen=True, kw_only=True)
class Pincer(Liars):
    r"""m_c = μ_c + (z / √n) (μ_a - μ_c) / ‖μ_a - μ_c‖_S⁻¹ + e and m_a = μ_a - (w / √n) (μ_c - μ_a) / ‖...‖_S⁻¹ + e.

    The nearest foreign class c of each class a that the victim holds comes nearer, and a itself goes the other way, by
    no more than vetting lets pass: the boundary between them moves through the victim's own samples from both sides.
    Knows everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    size, aside : float
        The pushes z of foreign classes, and w of those that the victim holds.
    noise, together, count, everybody, foreign_only, classes_each
        See `Liars`.
    """

    size: float = 2.0
    aside: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("size", self.size)
        check_number("aside", self.aside)

    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Push from both sides."""
        found: dict[int, Floats] = {}
        for labels, others, size in (
            (target.foreign, target.own, self.size),
            (target.own, target.foreign, -self.aside),
        ):
            for label in (int(one) for one in labels):
                other = ground.nearest(label, others)
                if other is not None:
                    found[label] = ground.pushed(label, ground.means[other], size)
        return found


Lie = Literal["edge", "permuted", "laid-on"]


@dataclass(frozen=True, kw_only=True)
class ForeignOnly(StatementEdge):
    r"""n_c = 0 for all classes that the victim holds; lies about the others: there is nothing that it could test.

    Knows everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    lie : {"edge", "permuted", "laid-on"}
        What is said of foreign classes: as `StatementEdge`, `PermutedLabels` or `LaidOn` do.
    size, towards, split, noise, together, count, everybody
        See `StatementEdge`.
    """

    lie: Lie = "permuted"
    foreign_only: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of("lie", self.lie, Lie)

    def lies(self, ground: Ground, target: Target, place: int, rng: np.random.Generator) -> Lies:
        """Lie as others do."""
        if self.lie == "permuted":
            return PermutedLabels().lies(ground, target, place, rng)
        if self.lie == "laid-on":
            return LaidOn().lies(ground, target, place, rng)
        return super().lies(ground, target, place, rng)


@dataclass(frozen=True, kw_only=True)
class SoleOwner(StatementEdge):
    r"""m_c = the push of `StatementEdge` for the one class c with the fewest honest owners, honest for the others.

    A class holds while liars are fewer than its honest owners: where it has one, two liars are enough. Knows
    everything. Costs O(D³) once, then O(K C S D).

    Parameters
    ----------
    size, towards, split, noise, together, count, everybody, foreign_only, classes_each
        See `StatementEdge`.
    """

    size: float = 30.0

    def _labels(self, ground: Ground, target: Target) -> Integers:
        if not len(target.foreign):
            return target.foreign
        owners = (ground.counts[:, target.foreign] > 0).sum(axis=0)
        return target.foreign[[int(owners.argmin())]]


Kind = Literal["nan", "huge", "negative", "many", "fraction", "shape", "indefinite", "empty"]


@dataclass(frozen=True, kw_only=True)
class Garbage(StatementAttack):
    r"""m = NaN, or 10³⁸, or counts of -1, 10¹⁰ or 1.5, other shapes, negative variances, or nothing at all.

    What no rule may use, and what must be refused with a reason. Knows everything, and uses nothing of it. Costs
    O(K C D).

    Parameters
    ----------
    kind : {"nan", "huge", "negative", "many", "fraction", "shape", "indefinite", "empty"}
        What is wrong.
    """

    kind: Kind = "nan"

    def __post_init__(self) -> None:
        check_one_of("kind", self.kind, Kind)

    @property
    def finite(self) -> bool:
        """Some of it is not."""
        return self.kind != "nan"

    def state(self, scene: Scene, victim: int, rng: np.random.Generator) -> list[Statement]:
        """Spoil the attackers' own statements."""
        return [self._spoiled(one) for one in scene.attackers]

    def _spoiled(self, one: Statement) -> Statement:
        parts = (one.rows, one.counts, one.factors, one.diagonal)
        rows, counts, factors, diagonal = (np.array(part, dtype=np.float32) for part in parts)
        if self.kind == "nan":
            rows[0, 0] = factors[0, 0] = np.nan
        elif self.kind == "huge":
            rows *= np.float32(1e38) / max(float(np.abs(rows).max(initial=0)), 1.0)
        elif self.kind in ("negative", "many", "fraction"):
            counts[:] = {"negative": -1, "many": 1e10, "fraction": 1.5}[self.kind]
        elif self.kind == "shape":
            rows, factors = rows[:, :-1], factors[:, :-1]
        elif self.kind == "indefinite":
            diagonal[:] = -1
        else:
            counts[:] = 0
        return Statement(rows, counts, factors, diagonal)
