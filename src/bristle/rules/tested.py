"""Rules that compare received heads with test samples or with the own update."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bristle._core import argsort, spread, squared_norms
from bristle._core.validation import check_share
from bristle.learning.metrics import log_likelihood_loss
from bristle.rules.base import Rule, Verdict, kept_or, mean_with_own, per_class, stay
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox


def learns_alone(rule: Rule, held_out: Any) -> str | None:
    """Return a sentence that says which peers learn alone for lack of held-out samples; None if all can test.

    Parameters
    ----------
    rule : Rule
        The rule of these peers.
    held_out : integer array [C] or [peers, C]
        Held-out samples of each class: of one peer, or of several.
    """
    needed, counts = rule.test_samples, np.asarray(held_out)
    alone = ~np.any(np.atleast_2d(counts) >= needed, axis=-1)
    if needed == 0 or not alone.any():
        return None
    samples = f"{needed} held-out sample{'' if needed == 1 else 's'}"
    most = f"the most of any class is {int(np.atleast_2d(counts)[alone].max(initial=0))}"
    why = f"too few held-out samples to test received heads: the rule needs {samples} of a class, {most}"
    if counts.ndim == 1:
        return f"this peer learns alone until it has more data; {why}"
    whose = "all peers learn" if alone.all() else f"{int(alone.sum()):,} of {len(alone):,} peers learn"
    return f"{whose} alone; {why}"


@dataclass(frozen=True, kw_only=True)
class Mozi(Rule):
    r"""Of the ⌈ρ m⌉ heads nearest to the own one, average those with L(x_j) ≤ L(x_own); x' = s x_own + (1 - s) mean.

    Guo et al., "Byzantine-resilient Decentralized Stochastic Gradient Descent", IEEE TCSVT 2021 (Mozi, UBAR).
    Assumes that at least a share ρ of the neighbours is honest, and test samples that speak for everyone's data:
    heads trained on other classes fail the test. Needs data; no f, no history. With `context.previous` the yardstick
    is the own head before its latest training. If none is left, the own head stays. O(m d + ρ m T d).

    Parameters
    ----------
    rho : float
        Share of the received heads that passes the distance filter.
    own_share : float
        s, the weight of the own head.
    """

    rho: float = 0.5
    own_share: float = 0.5

    measures = Measure.DISTANCES  # Distances from the own head.

    def __post_init__(self) -> None:
        check_share("rho", self.rho)
        check_share("own_share", self.own_share)

    @property
    def test_samples(self) -> int:
        """Held-out samples of a class that are needed: one."""
        return 1

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Filter by distance, then by loss."""
        xp, evaluation = inbox.xp, task.evaluation
        if evaluation is None or evaluation.labels.shape[1] == 0:
            return stay(inbox, Reason.NOTHING_TO_TEST_ON)
        near_count = math.ceil(round(self.rho * inbox.received, 9))  # 0.07 * 100 is 7, not a little more
        order = argsort(xp, inbox.distances())
        tested = inbox.take(order[:, :near_count])
        losses = log_likelihood_loss(tested.logits(evaluation.features), evaluation.labels[:, None, :])
        yardstick = losses[:, :1]
        if task.previous is not None:
            heads = xp.reshape(task.previous, (task.previous.shape[0], inbox.classes, -1))
            outputs = evaluation.features @ xp.matrix_transpose(heads)
            yardstick = log_likelihood_loss(outputs, evaluation.labels)[:, None]
        testable = xp.any(evaluation.labels >= 0, axis=-1)[:, None]
        no_worse = (losses[:, 1:] <= yardstick) & testable
        near, passed = (spread(xp, some, order, False) for some in (xp.ones_like(no_worse), no_worse))
        reasons = xp.where(near, kept_or(xp, passed, Reason.HIGHER_LOSS), kept_or(xp, near, Reason.TOO_FAR))
        reasons = xp.where(testable, reasons, kept_or(xp, xp.zeros_like(near), Reason.NOTHING_TO_TEST_ON))
        return replace(mean_with_own(inbox, near & passed, self.own_share, reasons), stays=~testable[:, 0])


@dataclass(frozen=True, kw_only=True)
class FLTrust(Rule):
    r"""x' = x_prev + Σ_j w_j g_j ‖g_own‖/‖g_j‖ / Σ_j w_j, g_j = x_j - x_prev, w_j = max(0, cos(g_j, g_own)).

    Cao et al., "FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping", NDSS 2021, in its local
    form: the own update is the root of trust, and takes part with weight 1. Assumes that honest updates point the same
    way. Needs `context.previous`, the own head before its latest training (without it, the zero head, where all
    start); no f, no data. O(n d).
    """

    measures = Measure.DISTANCES  # Distances from the own head.

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Weigh each update by its agreement with the own one."""
        xp, own = inbox.xp, inbox.own
        previous = xp.zeros_like(own) if task.previous is None else task.previous
        update = own - previous
        own_norm2 = squared_norms(xp, update)[:, None]
        along = inbox.project(update)
        dots = along + own_norm2
        norm2 = inbox.distances() + 2 * along + own_norm2
        norm2 = xp.where(norm2 > 0, norm2, xp.zeros_like(norm2))
        known = (norm2 > 0) & (own_norm2 > 0)
        one = xp.ones_like(norm2)
        cosine = dots / xp.where(known, xp.sqrt(norm2) * xp.sqrt(own_norm2), one)
        cosine = xp.where(cosine < 1, cosine, one)  # Rounding knows no bounds.
        trust = xp.where(known & (cosine > 0), cosine, xp.zeros_like(cosine))
        rescale = xp.sqrt(own_norm2) / xp.sqrt(xp.where(known, norm2, one))
        total = 1 + xp.sum(trust, axis=-1, keepdims=True)
        models = trust * rescale / total
        # The sum of the updates is laid out over heads: what is left of 1 stays with the previous head.
        own_weight = 1 / total
        rest = 1 - own_weight - xp.sum(models, axis=-1, keepdims=True)
        head = inbox.combine(xp.concat([own_weight, models], axis=1)) + rest * previous
        # Shares count trust, not the rescaled coefficients, so that they sum to 1 and never exceed it.
        shares = xp.concat([own_weight, trust / total], axis=1)
        return Verdict(head, lambda: per_class(inbox, shares), kept_or(xp, trust > 0, Reason.OPPOSED))
