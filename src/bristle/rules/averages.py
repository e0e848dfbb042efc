"""The two ends of trust: believe nobody, believe everybody."""

from __future__ import annotations

from dataclasses import dataclass

from bristle._core import Array
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox
from bristle.rules.rule import Rule, Verdict, same_reason, stay


@dataclass(frozen=True, kw_only=True)
class Local(Rule):
    r"""x' = x_own: never integrates. The line that says whether learning together is worth it.

    Assumes nothing: no f, no data, no history. Costs nothing.
    """

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Keep the own head."""
        return stay(inbox, Reason.NOT_USED)


@dataclass(frozen=True, kw_only=True)
class FedAvg(Rule):
    r"""x' = (1/n) Σ_j x_j, the own head included.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017.
    Assumes that everyone is honest: one attacker moves the answer anywhere. Needs no f, no data, no history.
    O(n d).
    """

    @property
    def measures(self) -> Measure:
        """The mean is all that it takes."""
        return Measure.MEAN

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average all heads."""
        xp, own, count = inbox.xp, inbox.own, inbox.received + 1

        def weights() -> Array:
            return xp.full((own.shape[0], count, inbox.classes), 1 / count, dtype=own.dtype, device=own.device)

        return Verdict(inbox.mean(), weights, same_reason(inbox, Reason.KEPT))
