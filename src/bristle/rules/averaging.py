"""Averages: of all heads, of none, of those nearest to the own head, and of those with the smallest updates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bristle._core import Array, argsort, squared_norms
from bristle._core.validation import check_count, check_positive, check_share
from bristle.rules.base import Rule, Verdict, combination, kept_or, mean_with_own, same_reason, stay
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox


@dataclass(frozen=True, kw_only=True)
class Local(Rule):
    r"""x' = x_own: never integrates. The baseline that learning together must beat.

    Assumes nothing: no f, no data, no history. Costs nothing.
    """

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Keep the own head."""
        return stay(inbox, Reason.NOT_USED)


@dataclass(frozen=True, kw_only=True)
class FedAvg(Rule):
    r"""x' = (1/n) Σ_j x_j, the own head included.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
    Assumes that everyone is honest: one attacker can move the result anywhere. Needs no f, no data, no history.
    O(n d).
    """

    measures = Measure.MEAN
    symmetric = True

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average all heads."""
        xp, own, count = inbox.xp, inbox.own, inbox.received + 1

        def weights() -> Array:
            return xp.full((own.shape[0], count, inbox.classes), 1 / count, dtype=own.dtype, device=own.device)

        return Verdict(inbox.mean(), weights, same_reason(inbox, Reason.KEPT))


@dataclass(frozen=True, kw_only=True)
class NearestNeighbourAveraging(Rule):
    r"""x' = mean of the n - f heads nearest to the own one, itself included.

    Farhadkhani et al., "Robust Collaborative Learning with Linear Gradient Overhead", ICML 2023 (MoNNA, NNA).
    Assumes at most f attackers; needs n > f. No data, no history. O(n d).
    """

    f: int = 4

    measures = Measure.DISTANCES  # Distances from the own head.

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average the nearest."""
        keep = inbox.received + 1 - self.f
        if keep < 1:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        xp, own = inbox.xp, inbox.own
        near = argsort(xp, argsort(xp, inbox.distances())) < keep - 1
        models = xp.astype(near, own.dtype) / keep
        first = xp.full((own.shape[0], 1), 1 / keep, dtype=own.dtype, device=own.device)
        return combination(inbox, xp.concat([first, models], axis=1), kept_or(xp, near, Reason.TOO_FAR))


@dataclass(frozen=True, kw_only=True)
class CGE(Rule):
    r"""x' = mean of the n - f heads with the smallest updates ‖x_j - x_prev‖ (comparative gradient elimination).

    Gupta, Liu and Vaidya, "Byzantine Fault-Tolerant Distributed Machine Learning using D-SGD and Norm-Based Comparative
    Gradient Elimination (CGE)", DSN-W 2021. Where gradients are aggregated the norm is theirs; a head's update is
    measured from `context.previous`, the own head before its latest training (without it, from zero).
    Assumes at most f attackers, with large updates; needs n > f, else the own head stays. No data. O(n d).
    """

    f: int = 4

    measures = Measure.DISTANCES  # Distances from the own head, from which norms follow.
    symmetric = True

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average those with the smallest norms."""
        keep = inbox.received + 1 - self.f
        if keep < 1:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        xp, own = inbox.xp, inbox.own
        update = own if task.previous is None else own - task.previous
        square = squared_norms(xp, update)[:, None]
        norms = xp.concat([square, inbox.distances() + 2 * inbox.project(update) + square], axis=1)
        small = argsort(xp, argsort(xp, norms)) < keep
        weights = xp.astype(small, own.dtype) / keep
        return combination(inbox, weights, kept_or(xp, small[:, 1:], Reason.LARGE_UPDATE))


@dataclass(frozen=True, kw_only=True)
class Balance(Rule):
    r"""Accept j if ‖x_own - x_j‖ ≤ γ exp(-κ t/T) ‖x_own‖; x' = s x_own + (1 - s) mean(accepted).

    Fang et al., "Byzantine-Robust Decentralized Federated Learning", CCS 2024 (BALANCE).
    Assumes that honest heads converge. Needs no f and no data, only the iteration: t of T have passed (`context`;
    without it, none). O(n d).

    Parameters
    ----------
    gamma, kappa : float
        Width of the acceptance at the start, and rate at which it narrows.
    own_share : float
        s, the weight of the own head.
    """

    gamma: float = 0.3
    kappa: float = 1.0
    own_share: float = 0.5

    measures = Measure.DISTANCES  # Distances from the own head.

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma)
        check_positive("kappa", self.kappa)
        check_share("own_share", self.own_share)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average the accepted heads with the own one."""
        xp, own = inbox.xp, inbox.own
        progress = min(1.0, max(0.0, (task.iteration - 1) / task.total))
        reach = self.gamma * math.exp(-self.kappa * progress)
        norm = xp.linalg.vector_norm(own, axis=-1, keepdims=True)
        accepted = xp.sqrt(inbox.distances()) <= reach * norm
        return mean_with_own(inbox, accepted, self.own_share, kept_or(xp, accepted, Reason.TOO_FAR))
