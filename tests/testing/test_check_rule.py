"""The suite accepts every rule of ours, and notices what it is there to notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bristle import rules
from bristle.rules import Bristle, Krum, Median, Rule, chain, create
from bristle.rules.base import Verdict, combination, kept_or, stay
from bristle.rules.call import Task
from bristle.rules.decision import Reason
from bristle.rules.inbox import ArrayInbox, Inbox
from bristle.testing import check_rule

VARIANTS: list[Rule] = [
    Bristle(beta=5),
    *(Bristle(beta=7, score=score) for score in ("literal", "leave-out", "author", "cubic")),
    rules.Integrator(),
    Krum(f=1, with_own=True),
    rules.MultiKrum(f=2, m=3),
    rules.TrimmedMean(f=0),
    chain(rules.Clipping(tau=2.0), rules.FedAvg()),
    chain(rules.Clipping(f=2), Median()),
    chain(rules.NearestNeighbourMixing(f=2), Krum(f=2)),
    chain(rules.NearestNeighbourMixing(f=2), rules.TrimmedMean(f=2)),
    chain(rules.Bucketing(s=2), Median()),
    chain(rules.Bucketing(s=3), rules.NearestNeighbourMixing(f=1), rules.GeometricMedian()),
    chain(rules.Bucketing(s=2), Bristle()),
    chain(rules.NearestNeighbourMixing(f=3), rules.Mozi()),
    chain(rules.NearestNeighbourMixing(f=3), rules.FLTrust()),
    rules.GeometricMedian(nu=0.01, iterations=30),
    rules.CenteredClipping(tau=1.5),
    rules.SelfCenteredClipping(tau=1.5),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", rules.names())
def test_every_registered_rule_conforms(name: str, seed: int) -> None:
    rule = create(name)
    check_rule(rule, seed=seed)


@pytest.mark.parametrize("rule", VARIANTS, ids=repr)
def test_variants_and_chains_conform(rule: Rule) -> None:
    check_rule(rule)


@dataclass(frozen=True)
class TakesTheFirst(Rule):
    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        xp, count = inbox.xp, inbox.received + 1
        first = xp.arange(count, device=inbox.own.device) == 1
        weights = xp.broadcast_to(xp.astype(first, inbox.own.dtype)[None, :], (inbox.own.shape[0], count))
        return combination(inbox, weights, kept_or(xp, weights[:, 1:] > 0, Reason.NOT_CHOSEN))


@dataclass(frozen=True)
class Scribbles(Rule):
    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        if isinstance(inbox, ArrayInbox) and isinstance(inbox.models, np.ndarray):
            inbox.models[...] *= 1.0000001
        return stay(inbox, Reason.NOT_USED)


@dataclass(frozen=True)
class Forgets(Rule):
    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        answer = stay(inbox, Reason.NOT_USED)
        return Verdict(answer.head + np.random.default_rng().random(), answer.weights, answer.reasons)


@dataclass(frozen=True)
class Leaks(Rule):
    f: int = 2

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        return rules.FedAvg().decide(inbox, task)


@dataclass(frozen=True)
class Overclaims(Rule):
    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        answer = rules.FedAvg().decide(inbox, task)
        return Verdict(answer.head, lambda: answer.weights() * 2, answer.reasons)


@dataclass(frozen=True)
class Accepts(Rule):
    def __call__(self, own: Any, received: Any, **options: Any) -> Any:
        try:
            return Median()(own, received, **options)
        except ValueError:
            return None

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (TakesTheFirst(), "order of senders"),
        (Scribbles(), "changed its input|other bits"),
        (Forgets(), "other bits"),
        (Leaks(), "attackers of size"),
        (Overclaims(), "more than 1"),
        (Accepts(), "no ValueError"),
    ],
    ids=repr,
)
def test_broken_rules_are_noticed(rule: Rule, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_rule(rule)
