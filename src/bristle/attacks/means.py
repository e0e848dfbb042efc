"""Attacks on averages: small steps from the mean of the honest heads."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from bristle._core import Array
from bristle._core.validation import check_positive
from bristle.attacks.honest import AgainstHonest, Honest
from bristle.attacks.view import View


@dataclass(frozen=True, kw_only=True)
class InnerProduct(AgainstHonest):
    r"""m = -ε μ, with μ the mean of the honest heads.

    Xie, Koyejo and Gupta, "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation",
    UAI 2019: what is aggregated gets a negative inner product with what it should be. Knows the inbox. All
    attackers send the same. O(M d).

    Parameters
    ----------
    epsilon : float
        The length ε: small to pass for an honest head, large to turn a plain mean.
    """

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Send a little of the mean's opposite."""
        return honest.mean[:, None, :] * -self.epsilon


@dataclass(frozen=True, kw_only=True)
class ALittleIsEnough(AgainstHonest):
    r"""m = μ - z σ with z = Φ⁻¹((n - f - s) / (n - f)), s = ⌊n/2⌋ + 1 - f.

    Baruch, Baruch and Goldberg, "A Little Is Enough: Circumventing Defenses For Distributed Learning",
    NeurIPS 2019 (ALIE). μ and σ are mean and standard deviation of the honest heads, coordinate by
    coordinate; s is the number of honest heads that must lie farther out for the attackers to be in the
    majority there. n counts the victim's own head, its honest heads and the f = K attackers. Attackers who
    are the majority already would get an infinite z: s is at least 1. Few attackers get a negative z, as
    the formula has it.

    Knows the inbox; assumes similar data. All attackers send the same. O(M d).

    Parameters
    ----------
    z : float, optional
        A fixed z in the place of the formula's.
    """

    z: float | None = None

    def __post_init__(self) -> None:
        if self.z is not None:
            check_positive("z", self.z)

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Step aside from the mean by as much as passes."""
        xp, heads = honest.xp, honest.heads
        attackers = view.own.shape[1]
        steps = [
            largest_step(count + 1 + attackers, attackers) if self.z is None else self.z
            for count in range(heads.shape[1] + 1)
        ]
        table = xp.asarray(steps, dtype=heads.dtype, device=heads.device)
        z = xp.take(table, xp.sum(xp.astype(honest.present, xp.int64), axis=-1), axis=0)
        return (honest.mean - z[:, None] * honest.deviation)[:, None, :]


def largest_step(n: int, f: int) -> float:
    """Return z = Φ⁻¹((n - f - s) / (n - f)) with s = max(1, ⌊n/2⌋ + 1 - f) for f attackers among n heads.

    0 where the victim is the only honest one: there is no room then.
    """
    honest = n - f
    supporters = max(1, n // 2 + 1 - f)
    return NormalDist().inv_cdf((honest - supporters) / honest) if honest > supporters else 0.0
