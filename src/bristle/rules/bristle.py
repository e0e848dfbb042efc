"""The rule of the paper: prioritise by distance, then integrate by performance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from bristle._core import Array, spread, take_rows
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox
from bristle.rules.integrator import Integrator, Score
from bristle.rules.prioritiser import Prioritiser
from bristle.rules.rule import Rule, Verdict


@dataclass(frozen=True, kw_only=True)
class Bristle(Rule):
    r"""x' = integrate(own, prioritise(received)): at most β models are tested, and only rows that help are mixed in.

    Verbraeken, de Vos and Pouwelse, "Bristle: Decentralized Federated Learning in Byzantine, Non-i.i.d. Environments",
    2021. Any number of attackers, no f; needs data (κ held-out samples of at least one class). Cost:
    O(min(n, max(48, 1.5 β)) d) for the distances, and O(β T d) for the tests, whatever n.

    Parameters
    ----------
    alpha, beta
        See `Prioritiser`.
    phi, kappa, eta, familiar, foreign, score
        See `Integrator`.
    """

    alpha: float = 0.4
    beta: int = 30
    phi: int = 3
    kappa: int = 10
    eta: float = 10
    familiar: tuple[float, float] = (10, 4)
    foreign: tuple[float, float] = (10, 4)
    score: Score = "split"

    def __post_init__(self) -> None:
        _ = self.prioritiser, self.integrator  # They check their parameters.

    @cached_property
    def prioritiser(self) -> Prioritiser:
        """The first stage."""
        return Prioritiser(alpha=self.alpha, beta=self.beta)

    @cached_property
    def integrator(self) -> Integrator:
        """The second stage."""
        return Integrator(
            phi=self.phi,
            kappa=self.kappa,
            eta=self.eta,
            familiar=self.familiar,
            foreign=self.foreign,
            score=self.score,
        )

    @property
    def consolidates(self) -> bool:
        """Rows of classes that a peer does not train must only change by integration."""
        return True

    @property
    def samples(self) -> bool:
        """The prioritiser draws models from its tiers."""
        return True

    @property
    def measures(self) -> Measure:
        """The prioritiser asks for distances from the own head."""
        return Measure.DISTANCES

    @property
    def looks_at(self) -> int:
        """The prioritiser looks at so many models at most."""
        return self.prioritiser.looks_at

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Prioritise, then integrate."""
        if inbox.received <= self.beta:
            return self.integrator.decide(inbox, task)
        xp = inbox.xp
        order = self.prioritiser.order(inbox, task.draws)
        tested = order[:, : self.beta]
        claims = None if task.claims is None else take_rows(xp, task.claims, tested)
        verdict = self.integrator.decide(inbox.take(tested), replace(task, claims=claims))
        reasons = spread(xp, verdict.reasons, order, int(Reason.NOT_SAMPLED))

        def weights() -> Array:
            tested = verdict.weights()
            return xp.concat([tested[:, :1, :], spread(xp, tested[:, 1:, :], order, 0)], axis=1)

        return Verdict(verdict.head, weights, reasons, verdict.stays)
