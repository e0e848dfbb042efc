"""The suite for rules that share evidence: ours passes, and broken ones are told what they break."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Evidence, Statement
from bristle.rules.evidence.decision import Weighed
from bristle.testing import check_evidence, check_rule

VARIANTS = [Evidence(), Evidence(cautious=True), Evidence(rank=1, cap=10), Evidence(held_out=False, quorum=2)]

Draws = np.random.Generator | None


@pytest.mark.parametrize("rule", VARIANTS, ids=repr)
def test_variants_conform(rule: Evidence) -> None:
    check_rule(rule, seed=2)


@dataclass(frozen=True, kw_only=True)
class InOrder(Evidence):
    """Believes whoever comes first a little more."""

    def weigh(
        self,
        own: Statement,
        theirs: Sequence[Statement | None],
        samples: Evaluation,
        rng: Draws = None,
        voices: Sequence[Hashable] | None = None,
    ) -> Weighed:
        found = super().weigh(own, theirs, samples, rng, voices)
        head = found.answer.head.copy()
        if theirs and isinstance(theirs[0], Statement):
            head[0, 0] += float(np.nan_to_num(np.asarray(theirs[0].rows)[1, 0]))
        return replace(found, answer=replace(found.answer, head=head))


@dataclass(frozen=True, kw_only=True)
class Scribbles(Evidence):
    """Writes into what it was given."""

    def weigh(
        self,
        own: Statement,
        theirs: Sequence[Statement | None],
        samples: Evaluation,
        rng: Draws = None,
        voices: Sequence[Hashable] | None = None,
    ) -> Weighed:
        found = super().weigh(own, theirs, samples, rng, voices)
        if theirs and theirs[0] is not None:
            theirs[0].rows[0, 0] += 1
        return found


@dataclass(frozen=True, kw_only=True)
class Credulous(Evidence):
    """Takes statements by their first rows."""

    def weigh(
        self,
        own: Statement,
        theirs: Sequence[Statement | None],
        samples: Evaluation,
        rng: Draws = None,
        voices: Sequence[Hashable] | None = None,
    ) -> Weighed:
        for one in theirs:
            if one is not None:
                np.asarray(one.rows).sum()
        return super().weigh(own, theirs, samples, rng, voices)


@dataclass(frozen=True, kw_only=True)
class Greedy(Evidence):
    """Gives weights that are no shares."""

    def weigh(
        self,
        own: Statement,
        theirs: Sequence[Statement | None],
        samples: Evaluation,
        rng: Draws = None,
        voices: Sequence[Hashable] | None = None,
    ) -> Weighed:
        found = super().weigh(own, theirs, samples, rng, voices)
        return replace(found, weights=found.weights * 40)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (InOrder(), "order of senders"),
        (Scribbles(), "other bits again|changed an input"),
        (Credulous(), "instead of a reason"),
        (Greedy(), "sum to more than 1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Evidence) else "",
)
def test_broken_rules_are_told_what_they_break(rule: Evidence, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_evidence(rule)
