"""Steps before a rule: each replaces the heads by mixtures of them, and any rule may follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bristle._core import Array, Pool, argsort, take_rows
from bristle._core.linear_algebra import Pull, pull_in
from bristle._core.validation import check_count, check_positive
from bristle.rules.base import Rule, Verdict, kept_or, stay
from bristle.rules.call import Call, Draw, State, Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import ArrayInbox, Inbox
from bristle.rules.short_call import NOTHING, short_call


@dataclass(frozen=True)
class Step(ABC):
    """A transformation of the heads before a rule; `chain(step, ..., rule)` combines them."""

    @property
    def stochastic(self) -> bool:
        """Whether the step draws random numbers."""
        return False

    @property
    def symmetric(self) -> bool:
        """Whether the own head counts like any other, as for rules."""
        return False

    @property
    def measures(self) -> Measure:
        """What the step measures of the models, as for rules."""
        return Measure.NORMS

    @property
    def pull(self) -> Pull | None:
        """How models are moved, if the step does nothing but clip them about the own head."""
        return None

    @abstractmethod
    def matrix(self, inbox: Inbox, task: Task) -> Array:
        """Return the matrix of the mixtures [B, n', n]: each row sums to 1, row 0 is the new own head."""

    def mixtures(self, inbox: Inbox, task: Task) -> Array:
        """Return the mixtures [B, n', F]."""
        return inbox.mixtures(self.matrix(inbox, task))

    def __call__(self, own: Array, received: Array | Pool, *, mask: Array | None = None, rng: Any = None) -> Array:
        """Return the mixtures [..., n', C, D], the new own head first.

        For using the step alone; a chain does not compute the mixtures.
        """
        if mask is None and not self.stochastic:
            short = short_call(own, received, self.measures, self.pull)
            if short is not None:
                mixed = self.mixtures(short.inbox, NOTHING)
                return short.restore(mixed, (int(mixed.shape[1]), own.shape[-2], own.shape[-1]))
        draw = Draw(rng) if self.stochastic else None
        call = Call.check(own, received, mask=mask, measure=self.measures, pull=self.pull, draw=draw)
        parts = [self.mixtures(part.inbox, part.task) for part in call.parts()]
        if len({part.shape[1] for part in parts}) > 1:
            raise ValueError("receivers with different numbers of usable models; call the step for each, or use chain")
        return call.restore(parts, (int(parts[0].shape[1]), own.shape[-2], own.shape[-1]))


@dataclass(frozen=True, kw_only=True)
class NearestNeighbourMixing(Step):
    r"""y_i = mean of the n - f heads nearest to x_i, itself included.

    Allouah et al., "Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity", AISTATS 2023 (NNM).
    Assumes at most f attackers. With n ≤ f heads nothing is mixed. O(n² d).
    """

    f: int = 4

    measures = Measure.PRODUCTS  # Distances between all heads come from their products.
    symmetric = True

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def matrix(self, inbox: Inbox, task: Task) -> Array:
        """Return each head's mean with its nearest neighbours."""
        xp = inbox.xp
        keep = max(1, inbox.received + 1 - self.f)
        squared = inbox.squared_distances()
        # A head is its own nearest, even if a copy ties at distance 0.
        own_place = xp.eye(squared.shape[-1], dtype=squared.dtype, device=squared.device)
        near = argsort(xp, argsort(xp, squared - own_place)) < keep
        return xp.astype(near, squared.dtype) / keep


@dataclass(frozen=True, kw_only=True)
class Bucketing(Step):
    r"""y_b = mean of the heads in bucket b; the heads fall into ⌈n/s⌉ random buckets of s.

    Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022.
    The bucket of the own head replaces it in the rule that follows. Draws random numbers. O(n d).
    """

    s: int = 2

    stochastic = True  # Bucketing draws a permutation.
    symmetric = True

    def __post_init__(self) -> None:
        check_count("s", self.s, least=1)

    def matrix(self, inbox: Inbox, task: Task) -> Array:
        """Return the means of random buckets."""
        xp, count = inbox.xp, inbox.received + 1
        assert task.draws is not None
        own = xp.full((inbox.own.shape[0], 1), -1, dtype=task.draws.dtype, device=task.draws.device)
        place = argsort(xp, argsort(xp, xp.concat([own, task.draws], axis=1)))
        buckets = -(-count // self.s)
        members = place[:, None, :] // self.s == xp.arange(buckets, device=place.device)[None, :, None]
        members = xp.astype(members, inbox.own.dtype)
        return members / xp.sum(members, axis=-1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class Clipping(Step):
    r"""y_j = x_own + (x_j - x_own) min(1, τ / ‖x_j - x_own‖).

    With a number `tau`, static clipping. With `f`, adaptive clipping (ARC): τ is the largest norm after removing the
    ⌊2 (f/n) (n - f)⌋ largest. Allouah et al., "Adaptive Gradient Clipping for Robust Federated Learning", ICLR 2025.
    Both are for gradients; heads are clipped about the own head, whose difference is 0. O(n d).

    Parameters
    ----------
    tau : float, optional
        Static radius.
    f : int, optional
        Number of attackers to expect, for the adaptive radius.
    """

    tau: float | None = None
    f: int | None = None

    measures = Measure.DISTANCES  # Distances from the own head.

    def __post_init__(self) -> None:
        if (self.tau is None) == (self.f is None):
            raise ValueError("clipping takes either tau=, a fixed radius, or f=, for the adaptive one (ARC)")
        if self.tau is not None:
            check_positive("tau", self.tau)
        if self.f is not None:
            check_count("f", self.f)

    @property
    def pull(self) -> Pull:
        """How models are moved; only the static radius is known before all distances."""
        return Pull(lambda squared: self._shrink(np, squared), alone=self.tau is not None)

    def matrix(self, inbox: Inbox, task: Task) -> Array:
        """Return each head pulled towards the own one."""
        xp, own = inbox.xp, inbox.own
        shrink = self._shrink(xp, inbox.distances())
        scale = xp.concat([xp.ones((own.shape[0], 1), dtype=own.dtype, device=own.device), shrink], axis=1)
        eye = xp.eye(scale.shape[1], dtype=own.dtype, device=own.device)
        return scale[:, :, None] * eye + (1 - scale)[:, :, None] * eye[:1, :]

    def mixtures(self, inbox: Inbox, task: Task) -> Array:
        """Return the clipped heads, without the matrix, which is mostly zero."""
        if isinstance(inbox, ArrayInbox):
            if inbox.clipped is not None:
                return inbox.clipped
            return pull_in(inbox.xp, inbox.own, inbox.models, self._shrink(inbox.xp, inbox.distances()))
        return super().mixtures(inbox, task)

    def _shrink(self, xp: Any, squared: Array) -> Array:
        """Return the factors [..., k] for models at these squared distances from the own head."""
        distance = xp.sqrt(squared)
        radius = self._radius(xp, distance)
        outside = distance > radius
        if xp is np:
            return np.divide(radius, distance, out=np.ones(distance.shape, distance.dtype), where=outside)
        one = xp.ones_like(distance)
        return xp.where(outside, radius / xp.where(outside, distance, one), one)

    def _radius(self, xp: Any, distance: Array) -> Any:
        if self.tau is not None:
            return self.tau
        assert self.f is not None
        received = int(distance.shape[-1])
        clipped = int(2 * self.f * max(0, received + 1 - self.f) / (received + 1))
        # The own difference, 0, is one of the n norms: with all others removed the radius is 0.
        if clipped >= received:
            return 0.0
        return xp.sort(distance, axis=-1)[..., received - 1 - clipped, None]


@dataclass(frozen=True)
class Chain(Rule):
    """Steps and the rule that follows them; made by `chain`."""

    steps: tuple[Step, ...]
    rule: Rule

    @property
    def consolidates(self) -> bool:
        """Whether the rule consolidates."""
        return self.rule.consolidates

    @property
    def test_samples(self) -> int:
        """Held-out samples of a class that the rule needs."""
        return self.rule.test_samples

    @property
    def stochastic(self) -> bool:
        """Whether the rule or a step draws random numbers."""
        return self.rule.stochastic or any(step.stochastic for step in self.steps)

    @property
    def symmetric(self) -> bool:
        """Whether the rule and all steps are."""
        return self.rule.symmetric and all(step.symmetric for step in self.steps)

    @property
    def measures(self) -> Measure:
        """The most expensive measure of any part."""
        if not self.steps:
            return self.rule.measures
        most = max(self.rule.measures, *(step.measures for step in self.steps))
        return Measure.NORMS if most is Measure.MEAN else most  # The mean of the mixtures is none of the models.

    def initial_state(self, own: Array) -> State | None:
        """Return the initial state of the rule; steps have none."""
        return self.rule.initial_state(own)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Apply the steps in turn, then the rule, and trace its result back to the received models."""
        if not self.steps:
            return self.rule.decide(inbox, task)
        xp, received, total = inbox.xp, inbox, None
        for step in self.steps:
            matrix = step.matrix(inbox, task)
            inbox = inbox.mixed(matrix)
            total = matrix if total is None else matrix @ total
            # A mixture has no sender and no claims.
            task = replace(task, claims=None, senders=None, draws=_fresh(xp, task.draws, inbox.received))
        verdict = self.rule.decide(inbox, task) if inbox.received else stay(inbox, Reason.TOO_FEW_MODELS)
        answer = Verdict(
            verdict.head,
            lambda: xp.matrix_transpose(total) @ verdict.weights(),
            _traced_back(xp, total, verdict),
            state=verdict.state,
        )
        return answer if verdict.stays is None else _without_mixing(received, answer, verdict)


def _fresh(xp: Any, draws: Array | None, count: int) -> Array | None:
    """Derive new uniforms from those that a step has used, so that the next order is another."""
    if draws is None:
        return None
    shuffled = draws[:, :count] * 1021.7
    return shuffled - xp.floor(shuffled)


def _without_mixing(received: Inbox, answer: Verdict, verdict: Verdict) -> Verdict:
    """If the rule could not work, keep the own head itself, not a mixture with untested models."""
    xp, stays = received.xp, verdict.stays
    assert stays is not None
    plain = stay(received, Reason.NOT_USED)
    why = verdict.reasons[:, :1] if verdict.reasons.shape[1] else xp.zeros_like(plain.reasons[:, :1])
    why = xp.where(why == int(Reason.KEPT), xp.full_like(why, int(Reason.TOO_FEW_MODELS)), why)
    return Verdict(
        xp.where(stays[:, None], received.own, answer.head),
        lambda: xp.where(stays[:, None, None], plain.weights(), answer.weights()),
        xp.where(stays[:, None], xp.broadcast_to(why, answer.reasons.shape), answer.reasons),
        stays,
        verdict.state,
    )


def chain(*parts: Step | Rule) -> Rule:
    """Put steps before a rule: `chain(NearestNeighbourMixing(f=4), Krum(f=4))`.

    Steps apply in the given order; the last part is the rule. For rules that need distances only, the mixtures are
    never computed, so a chain costs little more than its rule.
    """
    *steps, rule = parts or (None,)
    if not isinstance(rule, Rule) or not all(isinstance(step, Step) for step in steps):
        raise ValueError("chain takes steps and then one rule, e.g. chain(NearestNeighbourMixing(f=4), Krum(f=4))")
    if steps and rule.shares != "heads":
        raise ValueError(
            f"steps mix heads, and peers that use {type(rule).__name__} exchange {rule.shares}: leave the steps out, "
            "or put them before a rule that exchanges heads, e.g. krum"
        )
    if rule.shares == "heads" and type(rule).__call__ is not Rule.__call__:
        raise ValueError(f"{type(rule).__name__} overrides __call__, which a chain does not use: override decide")
    return Chain(tuple(step for step in steps if isinstance(step, Step)), rule)


def _traced_back(xp: Any, matrix: Array, verdict: Verdict) -> Array:
    """Return for each received model the reason of a mixture that contains it, preferably of a kept one."""
    reasons = verdict.reasons
    used = xp.ones((reasons.shape[0], 1), dtype=xp.bool, device=reasons.device)
    if not bool(xp.all(reasons == int(Reason.KEPT))):
        used = xp.any(verdict.weights()[:, 0, :] > 0, axis=-1)[:, None]
    everyone = xp.concat([kept_or(xp, used, Reason.NOT_CHOSEN), reasons], axis=1)
    part_of = matrix[:, :, 1:] > 0
    kept = xp.any(part_of & (everyone == int(Reason.KEPT))[:, :, None], axis=1)
    elsewhere = take_rows(xp, everyone, xp.argmax(matrix[:, :, 1:], axis=1))
    return xp.where(kept, xp.zeros_like(elsewhere), elsewhere)
