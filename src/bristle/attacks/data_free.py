"""Attacks without knowledge of others: flipped labels, noise, invalid numbers, replays."""

from __future__ import annotations

from dataclasses import dataclass

from bristle._core import Array, namespace
from bristle._core.arrays import is_array
from bristle._core.validation import check_count, check_positive
from bristle.attacks.base import Attack
from bristle.attacks.view import View


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    r"""m_k = x_k: train honestly and send the result. The line against which attacks are measured.

    Knows nothing. Costs nothing.
    """

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send the own heads."""
        return view.own


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    r"""m_k = x_k, trained on labels (y + 1) mod C in the place of y.

    Verbraeken, de Vos and Pouwelse, "Bristle", 2021, section 5: every class is taught as its successor. The
    head is trained well, so that its shape gives nothing away. Knows nothing. Costs no more than honest
    training.

    Parameters
    ----------
    classes : int
        Number of classes C.
    """

    classes: int = 10

    flips_labels = True  # Flipping labels is the whole attack.

    def __post_init__(self) -> None:
        check_count("classes", self.classes, least=2)

    def labels(self, y: Array) -> Array:
        """Return (y + 1) mod C; padding, -1, stays."""
        if not is_array(y) or not namespace(y).isdtype(y.dtype, "integral"):
            found = y.dtype if is_array(y) else type(y).__name__
            raise ValueError(f"labels must be an array of integers, not {found}")
        xp = namespace(y)
        kind, y = y.dtype, xp.astype(y, xp.int64, copy=False)  # Unsigned types have no -1 to compare with.
        if not bool(xp.all((y >= -1) & (y < self.classes))):
            raise ValueError(
                f"labels must lie between 0 and {self.classes - 1}, or be -1 for padding; "
                "for other data give the attack its number of classes, classes=..."
            )
        flipped = xp.where(y == self.classes - 1, xp.zeros_like(y), xp.where(y < 0, y, y + xp.ones_like(y)))
        return xp.astype(flipped, kind, copy=False)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send the own heads, which learned the wrong labels."""
        return view.own


@dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    r"""m_k = -x_k.

    Li et al., "RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed Learning from
    Heterogeneous Datasets", AAAI 2019. Knows nothing; trains honestly first. O(K d).
    """

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send the own heads with the sign turned."""
        return -view.own


@dataclass(frozen=True, kw_only=True)
class AdditiveNoise(Attack):
    r"""m_k = -a U(0, 1) in the rows of the first ⌊C/2⌋ classes, +a U(0, 1) in the others.

    Verbraeken, de Vos and Pouwelse, "Bristle", 2021, section 5: noise of low variance, one half of it
    centred just below 0 and the other just above, so that its mean over a head reveals nothing. Knows nothing
    and trains nothing; draws random numbers. O(K d).

    Parameters
    ----------
    scale : float
        The amplitude a.
    """

    scale: float = 0.5

    stochastic = True  # The noise is drawn.
    trains = False  # Noise needs no training.

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send noise."""
        assert draws is not None
        xp, classes = namespace(draws), draws.shape[2]
        second_half = xp.arange(classes, device=draws.device) >= classes // 2
        sign = xp.astype(second_half, draws.dtype) * 2 - 1
        return draws * (sign * self.scale)[:, None]


@dataclass(frozen=True, kw_only=True)
class NonFinite(Attack):
    r"""m_k = NaN, ∞ or 1e38 in every coordinate, in turn over attackers and iterations.

    Numbers that poison any sum they enter: the first two at once, the third when it is squared. A receiver
    that does not check what it receives is lost to one such attacker. Knows nothing and trains nothing. O(K
    d).
    """

    trains = False  # Constants need no training.
    finite = False  # Not finite, on purpose.

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send what no head may hold."""
        xp, own = namespace(view.own), view.own
        turns = (xp.nan, xp.inf, 1e38)
        values = [turns[(view.iteration - 1 + attacker) % len(turns)] for attacker in range(own.shape[1])]
        return xp.zeros_like(own) + xp.asarray(values, dtype=own.dtype, device=own.device)[:, None, None]


@dataclass(frozen=True, kw_only=True)
class Stale(Attack):
    r"""m_k(t) = x_k(t) up to iteration T, and m_k(t) = m_k(T) from then on.

    A replay of an old head that once was honest: it holds its receivers back at what was known at T. Knows
    nothing but what it sent before, which the caller hands back as `view.sent`. Costs nothing.

    Parameters
    ----------
    last : int
        The iteration T of the last new head.
    """

    last: int = 1

    def __post_init__(self) -> None:
        check_count("last", self.last, least=1)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Send again what was sent before."""
        return view.own if view.sent is None or view.iteration <= self.last else view.sent
