"""Attacks made from the mean and spread of honest heads: ALIE, inner product, min-max, min-sum."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, get_args

from bristle._core import Array, namespace, squared_norms
from bristle._core.validation import check_positive
from bristle.attacks.base import Attack, required
from bristle.attacks.view import Knowledge, View, flatten
from bristle.rules.inbox import ArrayInbox


@dataclass
class Honest:
    """Honest heads [B, M, F] as vectors, and which of them are there [B, M]; absent ones are zero."""

    heads: Array
    present: Array

    @property
    def xp(self) -> Any:
        """The array namespace."""
        return namespace(self.heads)

    @cached_property
    def count(self) -> Array:
        """How many heads are there [B], as a float."""
        return self.xp.sum(self.xp.astype(self.present, self.heads.dtype), axis=-1)

    @cached_property
    def mean(self) -> Array:
        """Mean [B, F]; zero where there are no heads."""
        return self._average(self.heads)

    @cached_property
    def deviation(self) -> Array:
        """Standard deviation [B, F] of the population, coordinate by coordinate."""
        difference = self.heads - self.mean[:, None, :]
        return self.xp.sqrt(self._average(difference * difference))

    def about(self, point: Array) -> Array:
        """Return the heads as seen from `point` [B, F]: [B, M, F], zero where they are absent."""
        xp, offsets = self.xp, self.heads - point[:, None, :]
        return offsets if self._complete else xp.where(self.present[:, :, None], offsets, xp.zeros_like(offsets))

    def mean_with(self, head: Array) -> Array:
        """Return the mean [B, F] of these heads and one more [B, F]."""
        count = self.count[:, None]
        return self.mean * (count / (count + 1)) + head / (count + 1)

    def extremes(self) -> tuple[Array, Array]:
        """Return the smallest and the largest value of each coordinate [B, F]; zero where there are no heads."""
        xp = self.xp
        if self._complete:
            return xp.min(self.heads, axis=1), xp.max(self.heads, axis=1)
        there = (self.present | (self.count == 0)[:, None])[:, :, None]
        far = xp.full_like(self.heads, xp.inf)
        return xp.min(xp.where(there, self.heads, far), axis=1), xp.max(xp.where(there, self.heads, -far), axis=1)

    @cached_property
    def _complete(self) -> bool:
        return bool(self.xp.all(self.present))

    def _average(self, values: Array) -> Array:
        xp, count = self.xp, self.count[:, None]
        weights = xp.astype(self.present, values.dtype) / xp.where(count > 0, count, xp.ones_like(count))
        return (weights[:, None, :] @ values)[:, 0, :]


@dataclass(frozen=True)
class AgainstHonest(Attack):
    """An attack made from the honest heads in the inbox; a victim that receives none gets the own heads, untrained."""

    knows = Knowledge.INBOX  # The honest heads that the victim receives.
    trains = False  # What is sent is made from the heads of others.

    @abstractmethod
    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Return what to send as vectors [B, K, F], or [B, 1, F] if all attackers send the same."""

    def craft(self, view: View, draws: Array | None) -> Array:
        """Work from the honest heads where there are any, else send the own ones."""
        xp, own = namespace(view.own), view.own
        inbox = required(view.inbox, "inbox", self)
        if inbox.shape[1] == 0:
            return own
        honest = Honest(flatten(xp, inbox), required(view.inbox_mask, "inbox_mask", self))
        heads = self.against(honest, view, draws)
        heads = xp.reshape(heads, (*heads.shape[:2], *own.shape[2:]))
        return xp.where((honest.count > 0)[:, None, None, None], heads, own)


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
        """Send a small negative multiple of the mean."""
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
        """Send the mean minus z standard deviations."""
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


Perturbation = Literal["std", "sign", "unit"]


@dataclass(frozen=True, kw_only=True)
class WithinReach(AgainstHonest):
    """m = μ + γ p with the largest γ that keeps m within reach of the honest heads."""

    perturbation: Perturbation = "std"

    def __post_init__(self) -> None:
        if self.perturbation not in get_args(Perturbation):
            raise ValueError(
                f"perturbation must be one of {', '.join(get_args(Perturbation))}, not {self.perturbation!r}"
            )

    @abstractmethod
    def reach(self, honest: Honest, direction: Array, view: View) -> Array:
        """Return how far [B] the attackers may go from the mean along the unit vectors `direction` [B, F]."""

    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Move from the mean as far as the constraint allows."""
        direction = self._direction(honest)
        heads = honest.mean + self.reach(honest, direction, view)[:, None] * direction
        return heads[:, None, :]

    def _direction(self, honest: Honest) -> Array:
        """Return p at unit length [B, F], zero where it is zero; γ p is the same for p of any length."""
        xp, mean = honest.xp, honest.mean
        if self.perturbation == "std":
            p = -honest.deviation
        elif self.perturbation == "sign":
            p = -xp.sign(mean)
        else:
            p = -mean
        length = xp.sqrt(squared_norms(xp, p))[:, None]
        return p / xp.where(length > 0, length, xp.ones_like(length))


@dataclass(frozen=True, kw_only=True)
class MinMax(WithinReach):
    r"""m = μ + γ p with the largest γ for which max_i ‖m - x_i‖ ≤ max_ij ‖x_i - x_j‖.

    Shejwalkar and Houmansadr, "Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses
    for Federated Learning", NDSS 2021. No honest head sees the attackers farther off than honest heads see
    each other. Each constraint is a quadratic in γ whose interval holds 0, so that the largest γ is the
    smallest of the positive roots: no search. Knows the inbox; assumes that the victim judges by distance.
    With one honest head, sends it. All attackers send the same. O(M² d).

    Parameters
    ----------
    perturbation : {"std", "sign", "unit"}
        The direction p: minus the standard deviation, minus the sign, or minus the mean itself at unit
        length.
    """

    def reach(self, honest: Honest, direction: Array, view: View) -> Array:
        """Return the smallest positive root over the honest heads."""
        xp, mean = honest.xp, honest.mean
        # An absent head at the mean never has the say: some head there is lies behind it, seen from m.
        heads = xp.where(honest.present[:, :, None], honest.heads, mean[:, None, :])
        inbox = ArrayInbox(mean, view.own.shape[2], heads)
        squared = inbox.squared_distances()
        slack = xp.max(squared, axis=(1, 2))[:, None] - squared[:, 0, 1:]
        return xp.min(_positive_root(xp, -inbox.project(direction), slack), axis=-1)


@dataclass(frozen=True, kw_only=True)
class MinSum(WithinReach):
    r"""m = μ + γ p with the largest γ for which Σ_i ‖m - x_i‖² ≤ max_i Σ_j ‖x_i - x_j‖².

    Shejwalkar and Houmansadr, NDSS 2021 (see `MinMax`). About the mean both sides come apart: M ‖γ p‖² +
    Σ_i ‖x_i - μ‖² on the left, M max_i ‖x_i - μ‖² + Σ_j ‖x_j - μ‖² on the right. So m lies as far from the
    mean as the farthest honest head: no search. Knows the inbox; assumes that the victim judges by
    distance. With one honest head, sends it. All attackers send the same. O(M d). Parameters as for `MinMax`.
    """

    def reach(self, honest: Honest, direction: Array, view: View) -> Array:
        """Return the distance of the farthest honest head from the mean."""
        xp = honest.xp
        squared = squared_norms(xp, honest.heads - honest.mean[:, None, :])
        return xp.sqrt(xp.max(xp.where(honest.present, squared, xp.zeros_like(squared)), axis=-1))


def _positive_root(xp: Any, half_slope: Array, slack: Array) -> Array:
    """Return the larger root of γ² + 2bγ - c = 0, b = `half_slope`, c = `slack` ≥ 0, without cancellation."""
    slack = xp.where(slack > 0, slack, xp.zeros_like(slack))
    root = xp.sqrt(half_slope * half_slope + slack)
    rising = half_slope > 0
    total = xp.where(rising, half_slope + root, xp.ones_like(root))
    return xp.where(rising, slack / total, root - half_slope)
