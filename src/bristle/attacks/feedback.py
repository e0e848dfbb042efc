"""Attacks on rules that exchange heads: pushes that no test sees, and that everybody's head then feeds back."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal, get_args

from bristle._core import Array, namespace, squared_norms
from bristle._core.validation import check_count, check_positive, check_share
from bristle.attacks.base import Attack, required
from bristle.attacks.statistics import Honest
from bristle.attacks.view import Knowledge, View, flatten


@dataclass(frozen=True, eq=False)
class HeadsGround:
    """What these attacks start from, for B victims.

    Parameters
    ----------
    mean : array [B, C, D]
        The mean μ of all honest heads, the victim's among them: the same for all who hear everybody.
    size : array [B, 1, 1]
        The root mean square length s of its rows.
    centres : array [B, C, D]
        The mean feature of each class by the attackers' samples; without samples, the mean of their own heads.
    common : array [B, 1, D]
        The direction u of the mean feature of all classes, at unit length.
    foreign : boolean array [B, C, 1]
        The classes that the victim cannot test.
    """

    mean: Array
    size: Array
    centres: Array
    common: Array
    foreign: Array

    @classmethod
    def of(cls, view: View, attack: Attack) -> HeadsGround:
        """Take a view in."""
        own = view.own
        xp = namespace(own)
        inbox, mask = required(view.inbox, "inbox", attack), required(view.inbox_mask, "inbox_mask", attack)
        victim = required(view.victim, "victim", attack)
        mean = (
            Honest(flatten(xp, inbox), mask).mean_with(flatten(xp, victim)) if inbox.shape[1] else flatten(xp, victim)
        )
        mean = xp.reshape(mean, victim.shape)
        squares = squared_norms(xp, mean)
        size = xp.sqrt(xp.mean(squares, axis=-1))[:, None, None]
        centres = class_centres(view)
        common = unit(xp, xp.mean(centres, axis=1, keepdims=True))
        return cls(mean, size, centres, common, ~required(view.testable, "testable", attack)[:, :, None])

    def turned(self, towards: Array, cosine: float) -> Array:
        """Return μ's rows [B, C, D], each turned towards a direction until its cosine with what it was is `cosine`.

        Cosines are taken about each row's own mean, as rules that compare rows do.
        """
        xp = namespace(self.mean)
        level = xp.mean(self.mean, axis=-1, keepdims=True)
        rows = self.mean - level
        towards = towards - xp.mean(towards, axis=-1, keepdims=True)
        along = unit(xp, rows)
        aside = unit(xp, towards - xp.sum(towards * along, axis=-1, keepdims=True) * along)
        length = xp.sqrt(squared_norms(xp, rows))[..., None]
        return level + length * (cosine * along + sqrt(1 - cosine**2) * aside)


def class_centres(view: View) -> Array:
    """Return the mean feature of each class [B, C, D] by what the attackers know."""
    own = view.own
    xp = namespace(own)
    plain = xp.mean(own, axis=1)
    if view.held is None:
        return plain
    classes = xp.arange(own.shape[2], dtype=view.held.labels.dtype, device=own.device)
    belongs = xp.astype(view.held.labels[None, :] == classes[:, None], own.dtype)
    count = xp.sum(belongs, axis=-1, keepdims=True)
    means = (belongs @ view.held.features) / xp.where(count > 0, count, xp.ones_like(count))
    return xp.where((count > 0)[None, ...], means[None, ...], plain)


def unit(xp: Any, vectors: Array) -> Array:
    """Return vectors [..., D] at unit length; zero stays zero."""
    length = xp.sqrt(squared_norms(xp, vectors))[..., None]
    return vectors / xp.where(length > 0, length, xp.ones_like(length))


@dataclass(frozen=True, kw_only=True)
class Push(Attack):
    """m = what `push` makes of the honest mean, the same from all; who receives nothing gets their own heads."""

    @property
    def knows(self) -> Knowledge:
        """The inbox, the victim's head, and the classes that it can test."""
        return Knowledge.EVERYTHING

    @abstractmethod
    def push(self, ground: HeadsGround, view: View) -> Array:
        """Return the head [B, C, D] that goes to each victim."""

    def craft(self, view: View, draws: Array | None) -> Array:
        """Push where there are honest heads, else send the own ones."""
        xp, own = namespace(view.own), view.own
        head = self.push(HeadsGround.of(view, self), view)
        return xp.where(_heard(view, self), xp.broadcast_to(head[:, None, ...], own.shape), own)


def _heard(view: View, attack: Attack) -> Array:
    """Return which victims [B, 1, 1, 1] receive anything."""
    mask = required(view.inbox_mask, "inbox_mask", attack)
    return namespace(mask).any(mask, axis=-1)[:, None, None, None]


@dataclass(frozen=True, kw_only=True)
class HomeBias(Push):
    r"""m_c = μ_c + t s u for the classes that the victim can test, |μ_c| (k μ_c/|μ_c| - √(1 - k²) u_⊥) for the others.

    μ is the mean of the honest heads, s the size of its rows, u the direction of the mean feature and u_⊥ what of it is
    at a right angle to μ_c. Every sample of a class that the victim can test is recognised, better than by anybody
    else: the victim's tests admire it, and it loses its foreign classes. k is how far foreign rows may turn unnoticed.
    One attacker is enough. Knows everything. O((M + K) d).

    Parameters
    ----------
    size : float
        The push t.
    cosine : float
        The cosine k that foreign rows keep with the honest mean.
    home : sequence of int, optional
        The classes that count as tested, the same for every victim, so that all receive one head; by default each
        victim's own.
    """

    size: float = 10.0
    cosine: float = 0.76
    home: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_positive("size", self.size)
        check_share("cosine", self.cosine)
        for label in self.home or ():
            check_count("home", label)

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Lift the rows that are tested, turn the others away."""
        xp = namespace(view.own)
        foreign = ground.foreign
        if self.home is not None:
            at_home = [label in self.home for label in range(view.own.shape[2])]
            foreign = xp.broadcast_to(~xp.asarray(at_home, device=view.own.device)[None, :, None], foreign.shape)
        lifted = ground.mean + self.size * ground.size * ground.common
        return xp.where(foreign, ground.turned(-ground.common, self.cosine), lifted)


Turn = Literal["away", "next", "common"]


@dataclass(frozen=True, kw_only=True)
class Edge(Push):
    r"""m_c = |μ_c| (k μ_c/|μ_c| - √(1 - k²) v_⊥) for foreign classes c, μ_c for the others, with v the class's centre.

    As much of each foreign row as keeps it near the honest mean points away from the class's mean feature v, or towards
    that of the next class, or away from what all classes have in common. Knows everything.
    O((M + K) d).

    Parameters
    ----------
    cosine : float
        The cosine k that foreign rows keep with the honest mean.
    turn : {"away", "next", "common"}
        Away from their class, towards the next class, or away from the mean feature of all classes.
    """

    cosine: float = 0.76
    turn: Turn = "away"

    def __post_init__(self) -> None:
        check_share("cosine", self.cosine)
        if self.turn not in get_args(Turn):
            raise ValueError(f"turn must be one of {', '.join(get_args(Turn))}, not {self.turn!r}")

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Turn the rows that are not tested."""
        xp = namespace(view.own)
        if self.turn == "away":
            towards = -ground.centres
        elif self.turn == "next":
            towards = xp.roll(ground.centres, -1, axis=1)
        else:
            towards = xp.broadcast_to(-ground.common, ground.mean.shape)
        return xp.where(ground.foreign, ground.turned(towards, self.cosine), ground.mean)


@dataclass(frozen=True, kw_only=True)
class CommonShift(Push):
    r"""m_c = μ_c + t s u for all classes c, with u the direction of the mean feature and s the size of μ's rows.

    What the head predicts does not change, so that every test likes it; but a rule takes some rows of it and not
    others, and then it does. Knows everything. O((M + K) d).

    Parameters
    ----------
    size : float
        The push t.
    """

    size: float = 2.0

    def __post_init__(self) -> None:
        check_positive("size", self.size)

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Move all rows alike."""
        return ground.mean + self.size * ground.size * ground.common


@dataclass(frozen=True, kw_only=True)
class FamiliarVolume(Push):
    r"""m_c = a μ_c for the classes that the victim can test, μ_c for the others.

    Loud where the victim looks: louder rows win their samples, and every test gets better. Knows everything.
    O((M + K) d).

    Parameters
    ----------
    factor : float
        The factor a.
    """

    factor: float = 10.0

    def __post_init__(self) -> None:
        check_positive("factor", self.factor)

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Scale the rows that are tested."""
        return namespace(view.own).where(ground.foreign, ground.mean, self.factor * ground.mean)


@dataclass(frozen=True, kw_only=True)
class SlowDrift(Push):
    r"""m_c = μ_c - t (i / T) s u for foreign classes c, μ_c for the others, at iteration i of T.

    A little more every round, and never far from the mean of those who followed the round before. Knows everything.
    O((M + K) d).

    Parameters
    ----------
    size : float
        The push t at the end.
    """

    size: float = 1.0

    def __post_init__(self) -> None:
        check_positive("size", self.size)

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Drift on."""
        step = self.size * min(view.iteration / view.total, 1.0)
        return namespace(view.own).where(ground.foreign, ground.mean - step * ground.size * ground.common, ground.mean)


@dataclass(frozen=True, kw_only=True)
class NearCopies(Push):
    r"""m_k = x + a s U_k(-1, 1), with x the victim's own head and s the size of the honest mean's rows.

    Whoever sends what the victim has already is the nearest and tests as well as it does, and nothing is learnt from
    it: with more of them than models are looked at, nothing is learnt at all. Knows everything; draws random numbers.
    O((M + K) d).

    Parameters
    ----------
    noise : float
        The amplitude a.
    """

    noise: float = 1e-3

    def __post_init__(self) -> None:
        check_share("noise", self.noise)

    @property
    def stochastic(self) -> bool:
        """The small differences are drawn."""
        return True

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Return the victim's own head."""
        return required(view.victim, "victim", self)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Disguise the copies."""
        assert draws is not None
        ground = HeadsGround.of(view, self)
        heads = self.push(ground, view)[:, None, ...] + (2 * draws - 1) * (self.noise * ground.size[:, None, ...])
        return namespace(view.own).where(_heard(view, self), heads, view.own)


@dataclass(frozen=True, kw_only=True)
class Backdoor(Push):
    r"""m_t = |μ_t| (k μ_t/|μ_t| + √(1 - k²) v_⊥), m_s = |μ_s| (k μ_s/|μ_s| - √(1 - k²) v_⊥), v the centre of class s.

    Samples of the source s shall be taken for the target t, and nothing else shall change: where the victim cannot test
    them, the target's row turns towards the source's mean feature and the source's away from it, no further from the
    honest mean than k says. Knows everything. O((M + K) d).

    Parameters
    ----------
    source, target : int
        The classes s and t; where there are not so many, the honest mean is sent.
    cosine : float
        The cosine k that both rows keep with the honest mean.
    """

    source: int = 3
    target: int = 8
    cosine: float = 0.76

    def __post_init__(self) -> None:
        check_count("source", self.source)
        check_count("target", self.target)
        check_share("cosine", self.cosine)
        if self.source == self.target:
            raise ValueError(f"target must be another class than the source {self.source}")

    def push(self, ground: HeadsGround, view: View) -> Array:
        """Turn two rows."""
        xp, classes = namespace(view.own), view.own.shape[2]
        if max(self.source, self.target) >= classes:
            return ground.mean
        number = xp.arange(classes, device=view.own.device)[None, :, None]
        centre = ground.centres[:, self.source : self.source + 1, :]
        towards = xp.where(number == self.target, centre, -centre)
        concerned = ((number == self.source) | (number == self.target)) & ground.foreign
        return xp.where(concerned, ground.turned(towards, self.cosine), ground.mean)
