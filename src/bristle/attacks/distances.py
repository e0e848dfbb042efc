"""Attacks on distances: as far from the honest mean as a head can lie without standing out."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bristle._core import Array, squared_norms
from bristle.attacks.honest import AgainstHonest, Honest
from bristle.attacks.view import View
from bristle.rules.inbox import ArrayInbox

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
        """Go from the mean as far as the constraint allows."""
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
    distance. With one honest head, sends it. All attackers send the same. O(M d).

    Parameters
    ----------
    perturbation : {"std", "sign", "unit"}
        The direction p: minus the standard deviation, minus the sign, or minus the mean itself at unit
        length.
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
