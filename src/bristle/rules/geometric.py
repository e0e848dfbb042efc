"""Rules that iterate towards a robust centre.

Each step moves to a weighted mean of the heads, so the iteration works on the weights alone: distances from the
current point follow from one matrix of inner products, and the heads are read once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, argsort, take_rows
from bristle._core.arrays import at_least, diagonals, row_sums
from bristle._core.validation import check_count, check_positive
from bristle.rules.base import Rule, Verdict, combination, kept_or, same_reason
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Rule):
    r"""x' ≈ argmin_z Σ_j ‖z - x_j‖, by smoothed Weiszfeld steps z ← Σ β_j x_j / Σ β_j, β_j = 1 / max(ν, ‖z - x_j‖).

    Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", IEEE TSP 2022 (RFA).
    Assumes an honest majority. Needs no f, no data, no history. Starts at the mean of the half nearest to the medoid:
    the steps stall at a head, and converge slowly from a far start. O(n² d).

    Parameters
    ----------
    nu : float
        Smoothing: lower bound of distances.
    iterations : int
        Number of steps.
    """

    nu: float = 0.1
    iterations: int = 8

    measures = Measure.PRODUCTS  # Distances from any mixture come from the products.
    symmetric = True

    def __post_init__(self) -> None:
        check_positive("nu", self.nu, least=1e-12)
        check_count("iterations", self.iterations, least=1)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Iterate towards the geometric median."""
        xp, gram = inbox.xp, inbox.gram
        weights, norms = _central_half(xp, inbox), diagonals(xp, gram)
        for _ in range(self.iterations):
            inverse = 1 / at_least(xp, _distances_from(xp, gram, norms, weights), self.nu)
            weights = inverse / row_sums(xp, inverse)
        return combination(inbox, weights, same_reason(inbox, Reason.KEPT))


@dataclass(frozen=True, kw_only=True)
class CenteredClipping(Rule):
    r"""v ← v + (1/n) Σ_j (x_j - v) min(1, τ / ‖x_j - v‖), a few times, from v = x_own.

    Karimireddy, He and Jaggi, "Learning from History for Byzantine Robust Optimization", ICML 2021.
    Assumes an honest majority within τ of each other. Needs no f, no data; the own head is its history. O(n² d).

    Parameters
    ----------
    tau : float, optional
        Radius. None takes, in each step, the median distance of the n heads from v.
    iterations : int
        Number of steps.
    """

    tau: float | None = None
    iterations: int = 3

    measures = Measure.PRODUCTS  # Distances from any mixture come from the products.

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_positive("tau", self.tau)
        check_count("iterations", self.iterations, least=1)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Iterate towards the clipped mean."""
        xp, gram, count = inbox.xp, inbox.gram, inbox.received + 1
        weights, norms = _at_own(xp, inbox), diagonals(xp, gram)
        scale = xp.ones_like(weights)
        for _ in range(self.iterations):
            distance = _distances_from(xp, gram, norms, weights)
            scale = _shrink(xp, distance, self.tau) / count
            weights = weights * (1 - row_sums(xp, scale)) + scale
        whole = scale[:, 1:] * count >= 1
        return combination(inbox, weights, kept_or(xp, whole, Reason.CLIPPED))


@dataclass(frozen=True, kw_only=True)
class SelfCenteredClipping(Rule):
    r"""x' = Σ_j W_j (x_own + clip(x_j - x_own, τ)), W_j = 1/n.

    He, Karimireddy and Jaggi, "Byzantine-Robust Decentralized Learning via ClippedGossip", arXiv 2202.01545.
    Assumes that honest neighbours lie within τ of the own head. Needs no f, no data, no history. O(n d).

    Parameters
    ----------
    tau : float, optional
        Radius. None takes the median distance of the received heads from the own one.
    """

    tau: float | None = None

    measures = Measure.DISTANCES  # Distances from the own head.

    def __post_init__(self) -> None:
        if self.tau is not None:
            check_positive("tau", self.tau)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Pull every head into the radius, then average."""
        xp, count = inbox.xp, inbox.received + 1
        shrink = _shrink(xp, xp.sqrt(inbox.distances()), self.tau)
        models = shrink / count
        own = 1 - xp.sum(models, axis=-1, keepdims=True)
        return combination(inbox, xp.concat([own, models], axis=1), kept_or(xp, shrink >= 1, Reason.CLIPPED))


def _central_half(xp: Any, inbox: Inbox) -> Array:
    """Weights [B, n] of the mean of the ⌈n/2⌉ heads nearest to the medoid, the head with least distance to all."""
    squared = inbox.squared_distances()
    count = squared.shape[-1]
    medoid = xp.argmin(xp.sum(xp.sqrt(squared), axis=-1), axis=-1)
    from_medoid = take_rows(xp, squared, medoid[:, None])[:, 0, :]
    near = argsort(xp, argsort(xp, from_medoid)) < -(-count // 2)
    return xp.astype(near, squared.dtype) / -(-count // 2)


def _at_own(xp: Any, inbox: Inbox) -> Array:
    """Weights [B, n] of the starting point: the own head."""
    own = inbox.own
    first = xp.arange(inbox.received + 1, device=own.device) == 0
    return xp.broadcast_to(xp.astype(first, own.dtype)[None, :], (own.shape[0], inbox.received + 1))


def _distances_from(xp: Any, gram: Array, norms: Array, weights: Array) -> Array:
    """Distance [B, n] of each head from the point Σ_j weights_j x_j: ‖x_i - z‖² = G_ii - 2 (G w)_i + w·G w.

    `norms` is the diagonal of G.
    """
    toward = (gram @ weights[:, :, None])[:, :, 0]
    return xp.sqrt(at_least(xp, norms - 2 * toward + row_sums(xp, weights * toward), 0))


def _shrink(xp: Any, distance: Array, tau: float | None) -> Array:
    """Factors min(1, τ / distance) [B, n]."""
    if tau is None:
        ordered = xp.sort(distance, axis=-1)
        size = distance.shape[-1]
        radius = (ordered[:, (size - 1) // 2, None] + ordered[:, size // 2, None]) / 2
    else:
        radius = xp.full_like(distance[:, :1], tau)
    outside = distance > radius
    if xp is np:
        return np.divide(radius, distance, out=np.ones_like(distance), where=outside)
    return xp.where(outside, radius / xp.where(outside, distance, xp.ones_like(distance)), xp.ones_like(distance))
