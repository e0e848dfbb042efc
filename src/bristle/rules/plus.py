"""Bristle beyond the paper: what cannot be tested is taken from those who claim to know it, and who agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array
from bristle.learning.metrics import f1_scores, samples_per_class
from bristle.rules.bristle import Bristle
from bristle.rules.call import Task
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox
from bristle.rules.integrator import Integrator, weight_of
from bristle.rules.plus_rows import Rows, majority, volume
from bristle.rules.rule import Verdict, stay


@dataclass(frozen=True, kw_only=True)
class PlusIntegrator(Integrator):
    r"""row_c' = (own_c + Σ_m w_mc a_mc m_c) / (1 + Σ_m w_mc): the paper's w_mc where c can be tested, else a vote's.

    Familiar rows are weighed as in `Integrator`. For a foreign class c, `claims` tell whose row is first-hand. A sender
    that claims classes which the receiver can test and is far behind on them (the paper's foreign weight, over them,
    is 0) is refused. First-hand rows of all others have weight max(w_mc, 1), if they are with the majority of those
    who should know (`majority`); rows of senders that claim nothing count as in the paper, if they are with it too, and
    those of classes that their sender does not claim only for want of others. a_mc ≤ 1 keeps received rows from being
    louder than the own ones (`volume`).

    Assumes that the honest owners of a class whom the receiver hears outnumber those who lie about it. Without claims
    it is the paper's rule with a vote among all senders that do well. No f, no history. O(n T d + n² d).
    """

    @property
    def heeds_claims(self) -> bool:
        """Claims tell first-hand rows from hearsay."""
        return True

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Test every model, let the rows of foreign classes vote, and mix in what agrees."""
        xp, own, evaluation = inbox.xp, inbox.own, task.evaluation
        if evaluation is None or evaluation.labels.shape[1] == 0:
            return stay(inbox, Reason.NOTHING_TO_TEST_ON)
        known = samples_per_class(evaluation.labels, inbox.classes, own.dtype) >= self.kappa
        predictions = inbox.predictions(evaluation.features)
        f1 = f1_scores(predictions, evaluation.labels[:, None, :], inbox.classes, own.dtype)
        tested, certainty = self.weigh(xp, f1, known)
        claims = xp.zeros(tested.shape, dtype=xp.bool, device=own.device) if task.claims is None else task.claims
        behind = (f1[:, :1, :] - f1[:, 1:, :]) * self.eta
        behind = xp.where((behind > 0) & known[:, None, :], behind**3, xp.zeros_like(behind))
        refused = self._too_much(xp, xp.where(claims, behind, xp.zeros_like(behind)))
        rows = Rows.of(inbox)
        factors = xp.permute_dims(volume(xp, rows, known), (0, 2, 1))
        first_hand = claims & ~refused[:, :, None]
        # Hearsay counts from those whose hearsay can be checked and is right; who claims nothing may speak first-hand.
        reliable = xp.any(known[:, None, :] & ~claims, axis=-1) & ~self._too_much(xp, behind)
        silent = ~xp.any(claims, axis=-1)
        reliable = reliable | silent
        second_hand = (tested > 0) & ~first_hand & reliable[:, :, None]
        agreeing = _with_majority(xp, rows, first_hand, second_hand)
        weights = xp.where(known[:, None, :], tested, _foreign_weights(xp, tested, first_hand, silent, agreeing))
        testable = xp.any(known, axis=-1)
        weights = xp.where(testable[:, None, None], weights, xp.zeros_like(weights))
        shares = weights / (1 + xp.sum(weights, axis=1, keepdims=True))
        everything = xp.concat([1 - xp.sum(shares, axis=1, keepdims=True), shares], axis=1)
        reasons = self._reasons(xp, weights, certainty, testable[:, None])
        rejected = (reasons != int(Reason.KEPT)) & testable[:, None]
        outvoted = xp.any(first_hand & ~known[:, None, :], axis=-1)
        for case, reason in ((outvoted, Reason.OUTVOTED), (refused, Reason.BROKEN_CLAIM)):
            reasons = xp.where(rejected & case, xp.asarray(int(reason), dtype=xp.int8, device=own.device), reasons)
        return Verdict(inbox.combine_rows(everything * factors), lambda: everything, reasons, ~testable)

    def _too_much(self, xp: Any, behind: Array) -> Array:
        """Tell for whom [B, M] the sum of (η |ΔF1|)³ [B, M, C] is so large that the paper's foreign weight is 0."""
        return ~(weight_of(xp, -xp.sum(behind, axis=-1), *self.foreign) > 0)


@dataclass(frozen=True, kw_only=True)
class BristlePlus(Bristle):
    r"""x' = integrate(own, prioritise(received), claims): `Bristle` with foreign rows from first hand, by majority.

    The stages of Verbraeken, de Vos and Pouwelse, "Bristle", 2021, with `PlusIntegrator` as the second. Needs data, as
    `Bristle` does; `claims` say which classes each sender trains and tests itself, and who will not say so
    has half a vote on foreign classes. Any number of attackers that can be told by testing; of those that
    cannot, fewer than honest owners of each class. O(n d) for the distances, O(β T d + β² d) for the rest.

    Parameters
    ----------
    alpha, beta
        See `Prioritiser`.
    phi, kappa, eta, familiar, foreign, score
        See `Integrator`.
    """

    @property
    def heeds_claims(self) -> bool:
        """Claims tell first-hand rows from hearsay."""
        return True

    @property
    def integrator(self) -> PlusIntegrator:
        """The second stage."""
        return PlusIntegrator(
            phi=self.phi,
            kappa=self.kappa,
            eta=self.eta,
            familiar=self.familiar,
            foreign=self.foreign,
            score=self.score,
        )


def _with_majority(xp: Any, rows: Rows, first_hand: Array, second_hand: Array) -> Array:
    """Tell which received rows are with the majority [B, M, C]; the own row has the say of a second-hand one."""
    own = xp.zeros_like(first_hand[:, :1, :])
    voters = xp.permute_dims(xp.concat([own, first_hand], axis=1), (0, 2, 1))
    echoes = xp.permute_dims(xp.concat([~own, second_hand], axis=1), (0, 2, 1))
    return xp.permute_dims(majority(xp, rows, voters, echoes), (0, 2, 1))[:, 1:, :]


def _foreign_weights(xp: Any, tested: Array, first_hand: Array, silent: Array, agreeing: Array) -> Array:
    """Weigh rows of foreign classes that agree [B, M, C]: first-hand and silent senders', for want of them all."""
    nothing = xp.zeros_like(tested)
    heard = first_hand | silent[:, :, None]
    enough = xp.any(heard & agreeing & (first_hand | (tested > 0)), axis=1, keepdims=True)
    at_least = xp.where(tested > 1, tested, xp.ones_like(tested))
    weights = xp.where(first_hand, at_least, xp.where(heard | ~enough, tested, nothing))
    return xp.where(agreeing, weights, nothing)
