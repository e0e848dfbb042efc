"""The local model poisoning attacks of Fang et al.: push a victim against the direction of its update."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bristle._core import Array
from bristle._core.validation import check_count, check_positive, check_share
from bristle.attacks.base import required
from bristle.attacks.statistics import AgainstHonest, Honest
from bristle.attacks.view import Knowledge, View, flatten
from bristle.rules.decision import Reason
from bristle.rules.krum import Krum

Change = Literal["training", "neighbours"]
AT_ONCE = 4
"""How many lengths Krum is asked about at once: the search seldom needs more."""


@dataclass(frozen=True, kw_only=True)
class Fang(AgainstHonest):
    """An attack along or against s = sign(where the victim would go).

    The benign heads are the victim's own and the honest ones that it receives. With a server s is the change of its
    model, which all train from; here a victim trains a head of its own, so s is the way in which that training moves it
    (the paper's "gradient direction", and its author's choice), or else the way from it to its neighbours.

    Parameters
    ----------
    change : str
        `training` (default): s = sign(the victim's latest training step). `neighbours`: s = sign(mean of the benign
        heads - the victim's), the stronger attack where peers hold different classes.
    """

    change: Change = "training"

    knows = Knowledge.EVERYTHING  # As published: also the victim's own head and how its training moves it.
    along = False  # Whether the attack overshoots along the benign change, rather than going against it.

    def __post_init__(self) -> None:
        if self.change not in get_args(Change):
            raise ValueError(f"change must be one of {', '.join(get_args(Change))}, not {self.change!r}")

    @abstractmethod
    def push(self, honest: Honest, victim: Array, change: Array, draws: Array | None, attackers: int) -> Array:
        """Return what to send [B, K, F] so as to push against the sign of `change` [B, F].

        `honest` is what the victim receives, `victim` [B, F] its own head.
        """

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Find which way the victim would go, and push the other way."""
        xp = honest.xp
        victim = flatten(xp, required(view.victim, "victim", self))
        change = flatten(xp, required(view.update, "update", self))
        if self.change == "neighbours":
            change = honest.mean_with(victim) - victim
        return self.push(honest, victim, -change if self.along else change, draws, view.own.shape[1])


@dataclass(frozen=True, kw_only=True)
class FangTrimmedMean(Fang):
    r"""m_k,i ~ U[max_i, b max_i] where coordinate i would fall, ~ U[b min_i, min_i] where it would rise.

    Fang et al., "Local Model Poisoning Attacks to Byzantine-Robust Federated Learning", USENIX Security
    2020, with full knowledge and b = 2. max and min are over the benign heads; where max < 0 the interval
    is [max, max / b], where min > 0 it is [min / b, min], so that it always lies beyond. A coordinate that
    would stay counts as rising. Knows everything; each attacker draws for itself. O((M + K) d).

    Parameters
    ----------
    b : float
        How far beyond the benign extremes to go, as a factor.
    change : str
        What s is the sign of, see `Fang`.
    """

    b: float = 2.0

    stochastic = True  # The place within the interval is drawn.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("b", self.b)
        if self.b <= 1:
            raise ValueError(f"b must be above 1 for the interval to lie beyond the benign heads, not {self.b!r}")

    def push(self, honest: Honest, victim: Array, change: Array, draws: Array | None, attackers: int) -> Array:
        """Draw beyond the benign extreme on the other side."""
        assert draws is not None
        xp = honest.xp
        smallest, largest = honest.extremes()
        smallest, largest = xp.minimum(smallest, victim), xp.maximum(largest, victim)
        falls = change < 0
        near = xp.where(falls, largest, smallest)
        outwards = (near > 0) == falls
        far = xp.where(outwards, near * self.b, near / self.b)
        return near[:, None, :] + (far - near)[:, None, :] * flatten(xp, draws)


@dataclass(frozen=True, kw_only=True)
class FangTrimmedMeanAlong(FangTrimmedMean):
    r"""m_k,i ~ U[max_i, b max_i] where coordinate i would rise, ~ U[b min_i, min_i] where it would fall.

    `FangTrimmedMean` with the sign reversed: it overshoots along the benign change, as the Bristle paper's
    author had it. Knows everything; each attacker draws for itself. O((M + K) d).

    Parameters
    ----------
    b : float
        How far beyond the benign extremes to go, as a factor.
    change : str
        What s is the sign of, see `Fang`.
    """

    along = True  # Overshoot.


@dataclass(frozen=True, kw_only=True)
class FangKrum(Fang):
    r"""m = w - λ s with the largest λ, found by halving, for which the victim's Krum would choose m.

    Fang et al., USENIX Security 2020 (see `FangTrimmedMean`), with full knowledge. s is the sign of the
    victim's change. w is there the server's model, from which all train; without a server, what the benign
    heads have in common stands for it: their mean. λ starts where Krum cannot choose m any more, which the
    triangle inequality puts at λ ‖s‖ = R (1 + 2 √((n-f-2) / q)), with R the largest distance of a benign
    head from w and q, at least 1, the number of benign heads among the n-f-2 nearest to m; it is halved
    until Krum does or λ falls below a threshold. The first attacker sends m, the others lie within a tiny
    distance of it, as supporters.

    Krum itself is asked, but it looks at distances alone, which have as many dimensions as there are heads:
    so all is turned into a space that small first. Knows everything; assumes that the victim uses Krum and
    which f. O(M² d) and O(log λ) times Krum on tiny heads.

    Parameters
    ----------
    f : int, optional
        The number of attackers that the victim's Krum expects; by default, as many as there are.
    epsilon : float
        How far the supporters lie from m, per coordinate and as a share of λ.
    threshold : float
        The λ at which the search ends.
    change : str
        What s is the sign of, see `Fang`.
    """

    f: int | None = None
    epsilon: float = 1e-3
    threshold: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.f is not None:
            check_count("f", self.f)
        check_share("epsilon", self.epsilon)
        check_positive("threshold", self.threshold)

    @property
    def stochastic(self) -> bool:
        """The supporters' places are drawn."""
        return self.epsilon > 0

    def push(self, honest: Honest, victim: Array, change: Array, draws: Array | None, attackers: int) -> Array:
        """Take the largest step for which Krum still chooses the attacker's head."""
        xp, mean = honest.xp, honest.mean_with(victim)
        direction = -xp.sign(change)
        length = self._largest(honest, victim, mean, direction, attackers)[:, None]
        chosen = (mean + length * direction)[:, None, :]
        if draws is None or attackers == 1:
            return xp.broadcast_to(chosen, (chosen.shape[0], attackers, chosen.shape[2]))
        offsets = (2 * flatten(xp, draws)[:, 1:, :] - 1) * (self.epsilon * length)[:, :, None]
        return xp.concat([chosen, chosen + offsets], axis=1)

    def _largest(self, honest: Honest, victim: Array, mean: Array, direction: Array, attackers: int) -> Array:
        """Return the largest λ [B] on the way down by halves that Krum falls for."""
        xp = honest.xp
        f = attackers if self.f is None else self.f
        products = _products(xp, honest.about(mean), victim - mean, direction)
        length = _start(xp, products, honest.count + 1, attackers, f)
        points = _coordinates(xp, products)
        heads, own, way = points[:, None, :-2, None, :], points[:, None, -2:-1, :], points[:, -1, :]
        count, models = heads.shape[0], heads.shape[2]
        steps = xp.astype(xp.arange(AT_ONCE, device=length.device), length.dtype)
        halves = xp.pow(xp.full_like(steps, 2.0), -steps)

        def every(values: Array) -> Array:
            return xp.broadcast_to(values, (count, AT_ONCE, *values.shape[2:]))

        present = every(xp.concat([honest.present, xp.ones_like(honest.present[:, :1])], axis=1)[:, None, :])
        mask = xp.concat([present[:, :, :-1], *[present[:, :, -1:]] * attackers], axis=2)

        def falls_for(lengths: Array) -> Array:
            crafted = (lengths[:, :, None] * way[:, None, :])[:, :, None, None, :]
            received = xp.concat([every(heads), *[crafted] * attackers], axis=2)
            decision = Krum(f=f)(every(own), received, mask=mask)
            return xp.any(decision.reasons[:, :, models:] == int(Reason.KEPT), axis=-1)

        while True:
            lengths = length[:, None] * halves
            ends = falls_for(lengths) | (lengths < self.threshold)
            first = xp.argmax(xp.astype(ends, xp.int64), axis=-1)
            found = xp.any(ends, axis=-1)
            length = xp.where(found, xp.take_along_axis(lengths, first[:, None], axis=1)[:, 0], length * halves[-1] / 2)
            if bool(xp.all(found)):
                return length


@dataclass(frozen=True, kw_only=True)
class FangKrumAlong(FangKrum):
    r"""m = w + λ s with the largest λ, found by halving, for which the victim's Krum would choose m.

    `FangKrum` with the sign reversed: it overshoots along the benign change, as the Bristle paper's author
    had it. Knows everything; assumes that the victim uses Krum and which f. O(M² d) and O(log λ) times Krum
    on tiny heads. Parameters as for `FangKrum`.
    """

    along = True  # Overshoot.


def _start(xp: Any, products: Array, count: Array, attackers: int, f: int) -> Array:
    """Return a λ [B] beyond which no head that K attackers send can have the best Krum score."""
    squares = xp.linalg.diagonal(products)
    radius, norm = xp.sqrt(xp.max(squares[:, :-1], axis=-1)), xp.sqrt(squares[:, -1])
    neighbours = count + (attackers - f - 2)
    others = neighbours - (attackers - 1)
    neighbours = xp.where(neighbours > 1, neighbours, xp.ones_like(neighbours))
    others = xp.where(others > 1, others, xp.ones_like(others))
    length = radius * (1 + 2 * xp.sqrt(neighbours / others))
    return xp.where(norm > 0, length / xp.where(norm > 0, norm, xp.ones_like(norm)), xp.zeros_like(norm))


def _products(xp: Any, vectors: Array, *others: Array) -> Array:
    """Return the inner products [B, n + m, n + m] of `vectors` [B, n, F] and m more [B, F], without copying the n."""
    more = xp.stack(others, axis=1)
    across = vectors @ xp.matrix_transpose(more)
    above = xp.concat([vectors @ xp.matrix_transpose(vectors), across], axis=2)
    below = xp.concat([xp.matrix_transpose(across), more @ xp.matrix_transpose(more)], axis=2)
    return xp.concat([above, below], axis=1)


def _coordinates(xp: Any, products: Array) -> Array:
    """Return points [B, n, n] whose inner products are `products` [B, n, n].

    From the eigenvectors of the matrix of cosines: vectors of very different lengths all keep their digits.
    """
    length = xp.sqrt(xp.linalg.diagonal(products))[:, :, None]
    inverse = 1 / xp.where(length > 0, length, xp.ones_like(length))
    values, axes = xp.linalg.eigh(products * inverse * xp.matrix_transpose(inverse))
    values = xp.where(values > 0, values, xp.zeros_like(values))
    return length * axes * xp.sqrt(values)[:, None, :]
