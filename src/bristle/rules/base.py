"""The base class of all rules: one checked call, for one receiver or any batch of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bristle._core import Array, Pool, namespace, spread
from bristle.learning.metrics import Evaluation
from bristle.rules.call import Call, Context, Draw, Part, State, Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Decision, Reason
from bristle.rules.inbox import Inbox
from bristle.rules.short_call import NOTHING, short_call, short_pool_call


@dataclass(frozen=True)
class Verdict:
    """The result of `decide` for one inbox: head [B, F], weights [B, n, C] on demand, reasons [B, received].

    These weights have the own head first; those of a `Decision` leave it out.
    """

    head: Array
    weights: Callable[[], Array]
    reasons: Array
    stays: Array | None = None
    """Mask of the receivers [B] for which the rule could not work and kept the own head; None: for none."""
    state: State | None = None
    """The new state, arrays [B, ...] as in `task.state`; None: unchanged."""


@dataclass(frozen=True)
class Rule(ABC):
    """A rule for aggregating heads: `rule(own, received)` returns a `Decision`.

    A rule is a value: parameters are stored unchanged, calls have no side effects and no hidden state.
    To write one, subclass and implement `decide` for receivers that all hold the same number of usable models; masks,
    refusals, batches, pools and checks are handled before that. A rule with state between calls also implements
    `initial_state`.
    """

    @property
    def shares(self) -> str:
        """What peers with this rule exchange: `heads`, or `evidence` (see `bristle.rules.evidence`)."""
        return "heads"

    @property
    def consolidates(self) -> bool:
        """Whether peers with this rule train with consolidation (CWR*): foreign rows change only by integration."""
        return False

    @property
    def stochastic(self) -> bool:
        """Whether the rule draws random numbers."""
        return False

    @property
    def symmetric(self) -> bool:
        """Whether the own head counts like any other, except for breaking ties.

        Servers, which have no head of their own, can then aggregate those of clients alone.
        """
        return False

    @property
    def uses_claims(self) -> bool:
        """Whether the rule uses claims: the classes that senders say they train and test."""
        return False

    @property
    def test_samples(self) -> int:
        """Held-out samples of a class that the rule needs to test heads on that class; 0: it tests nothing."""
        return 0

    @property
    def measures(self) -> Measure:
        """What `decide` measures of the models; the check for unfit models reuses these numbers."""
        return Measure.NORMS

    @property
    def max_candidates(self) -> int | None:
        """Largest number of models, drawn at random, that are examined; None: all. Only for stochastic rules."""
        return None

    def __call__(
        self,
        own: Array,
        received: Array | Pool,
        *,
        mask: Array | None = None,
        evaluation: Evaluation | None = None,
        claims: Array | None = None,
        context: Context | None = None,
        rng: Any = None,
    ) -> Decision:
        """Aggregate the received heads with the own one.

        Parameters
        ----------
        own : array [..., C, D]
            The receiver's own head.
        received : array [..., M, C, D] or Pool
            The received heads. Those that are not finite or out of range are refused, with a reason.
        mask : boolean array [..., M], optional
            False where a model is absent.
        evaluation : Evaluation, optional
            Held-out samples, for rules that test. Without them such a rule keeps the own head.
        claims : boolean array [..., M, C], optional
            The classes that each sender says it trains and tests, for rules that use claims.
        context : Context, optional
            Position of this call in the run, for rules with history.
        rng : numpy.random.Generator or array [..., M], optional
            Randomness, for rules that sample: a generator, or uniforms already drawn. None means a fixed seed:
            fine for a single call, but repeated calls without it sample the same positions each time.

        Raises
        ------
        ValueError
            For invalid arguments: shapes that do not match, an own head that is not finite, ...
        """
        if mask is None and evaluation is None and claims is None and context is None:
            decision = self._short_answer(own, received)
            if decision is not None:
                return decision
        call = Call.check(
            own,
            received,
            mask=mask,
            evaluation=evaluation,
            claims=claims,
            context=context,
            measure=self.measures,
            draw=Draw(rng, self.max_candidates) if self.stochastic else None,
        )
        return self._answer(call)

    def initial_state(self, own: Array) -> State | None:
        """Return the state before the first call, for own heads [..., C, D]; None: the rule has no state.

        Arrays by name, each [..., *] with the axes of the receivers first. `decide` gets them in `task.state` as
        [B, *] and may return new ones of the same shape and type in `Verdict.state`. Peers and simulated worlds pass
        them from iteration to iteration, and stores and checkpoints keep them.
        """
        return None

    def _short_answer(self, own: Array, received: Array | Pool) -> Decision | None:
        """Decide a simple call directly; return None if it needs `Call`."""
        if self.stochastic or type(self).initial_state is not Rule.initial_state:
            return None
        pooled = isinstance(received, Pool)
        short = short_pool_call(own, received) if pooled else short_call(own, received, self.measures)
        if short is None:
            return None
        verdict = self._verdict(short.inbox, NOTHING)
        head = tuple(own.shape)
        models = (*head[:-2], short.inbox.received)
        return Decision(
            head=short.restore(verdict.head, head),
            weights=lambda: short.restore(verdict.weights()[:, 1:, :], (*models, head[-2])),
            reasons=short.restore(verdict.reasons, models),
        )

    def _answer(self, call: Call) -> Decision:
        initial = None
        if type(self).initial_state is not Rule.initial_state:  # Most rules have no state: save the work.
            initial = self.initial_state(namespace(call.own).reshape(call.own, (-1, *call.head_shape)))
        if initial is not None:
            call.task = replace(call.task, state=self._checked_state(call.task.state or initial, initial))
        if not call.own.shape[0]:
            return call.nobody()
        parts = [(part, self._verdict(part.inbox, part.task)) for part in call.parts()]
        return Decision(
            head=call.restore([verdict.head for _, verdict in parts], call.head_shape),
            weights=lambda: call.restore([_weights(part, verdict) for part, verdict in parts]),
            reasons=call.restore([_reasons(part, verdict) for part, verdict in parts]),
            state=None if initial is None else call.restore_state([self._next_state(*each) for each in parts]),
        )

    @abstractmethod
    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Return the verdict for receivers that each hold at least one usable model."""

    def _next_state(self, part: Part, verdict: Verdict) -> State:
        before = part.task.state
        assert before is not None
        return before if verdict.state is None else self._checked_state(verdict.state, before)

    def _checked_state(self, found: State, expected: State) -> State:
        """Return the new state; raise if its names, shapes or types differ from those of the old one."""
        forms = [{name: (tuple(v.shape), v.dtype) for name, v in state.items()} for state in (found, expected)]
        if forms[0] != forms[1]:
            raise ValueError(f"{type(self).__name__} has the state {forms[1]}, not {forms[0]}")
        return found

    def _verdict(self, inbox: Inbox, task: Task) -> Verdict:
        verdict = self.decide(inbox, task) if inbox.received else stay(inbox, Reason.ABSENT)
        if not isinstance(verdict, Verdict):
            raise TypeError(
                f"{type(self).__name__}.decide must return a Verdict, e.g. by combination() or stay(), "
                f"not {type(verdict).__name__}"
            )
        return verdict


def stay(inbox: Inbox, reason: Reason) -> Verdict:
    """Return the verdict that keeps the own head, with the same `reason` for every model."""
    xp, own = inbox.xp, inbox.own
    stays = xp.ones((own.shape[0],), dtype=xp.bool, device=own.device)
    # A copy, so that writing to the result does not change the own head.
    return Verdict(xp.asarray(own, copy=True), lambda: _only_own(inbox), same_reason(inbox, reason), stays)


def same_reason(inbox: Inbox, reason: Reason) -> Array:
    """Return the same reason code for every model [B, received]."""
    shape = (inbox.own.shape[0], inbox.received)
    return inbox.xp.full(shape, int(reason), dtype=inbox.xp.int8, device=inbox.own.device)


def combination(inbox: Inbox, weights: Array, reasons: Array) -> Verdict:
    """Return the verdict with a weighted sum of whole heads; `weights` [B, n] sum to 1."""
    return Verdict(inbox.combine(weights), lambda: per_class(inbox, weights), reasons)


def per_class(inbox: Inbox, weights: Array) -> Array:
    """Repeat the weights [B, n] of whole heads for every class: [B, n, C]."""
    return inbox.xp.broadcast_to(weights[:, :, None], (*weights.shape, inbox.classes))


def mean_with_own(inbox: Inbox, accepted: Array, own_share: float, reasons: Array) -> Verdict:
    """Return the verdict own_share * own + (1 - own_share) * mean(accepted [B, received]); none: the own head."""
    xp = inbox.xp
    models = xp.astype(accepted, inbox.own.dtype)
    total = xp.sum(models, axis=-1, keepdims=True)
    models = models * (1 - own_share) / xp.where(total > 0, total, xp.ones_like(total))
    own = xp.where(total > 0, xp.full_like(total, own_share), xp.ones_like(total))
    return combination(inbox, xp.concat([own, models], axis=1), reasons)


def kept_or(xp: Any, kept: Array, reason: Reason) -> Array:
    """Return reason codes: KEPT where `kept`, else `reason`."""
    return xp.astype(kept, xp.int8) * (int(Reason.KEPT) - int(reason)) + xp.asarray(int(reason), dtype=xp.int8)


def _only_own(inbox: Inbox) -> Array:
    xp, own = inbox.xp, inbox.own
    first = xp.astype(xp.arange(inbox.received + 1, device=own.device) == 0, own.dtype)
    return per_class(inbox, xp.broadcast_to(first, (own.shape[0], inbox.received + 1)))


def _weights(part: Part, verdict: Verdict) -> Array:
    weights = verdict.weights()[:, 1:, :]
    return weights if part.order is None else spread(part.inbox.xp, weights, part.order, 0)


def _reasons(part: Part, verdict: Verdict) -> Array:
    if part.order is None:
        return verdict.reasons
    xp = part.inbox.xp
    spread_out = spread(xp, verdict.reasons, part.order, 0)
    return xp.where(part.usable, spread_out, part.refusals)
