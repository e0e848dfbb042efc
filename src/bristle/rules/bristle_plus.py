"""Bristle-plus: rows that cannot be tested are taken from senders that claim the class and agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array
from bristle.learning.metrics import f1_scores, samples_per_class
from bristle.rules.base import Verdict, stay
from bristle.rules.bristle import Bristle, Integrator, weight_of
from bristle.rules.call import Task
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox

SAME_CLASS = 0.4
"""The cosine from which two rows are taken to mean the same class: early rows of different owners reach it, rows of
different classes seldom do."""
CLOSE = 0.75
"""The cosine that rows are asked for in the end, when their owners agree closely."""
ECHO = 0.5
"""What the own row and each row that is passed on second-hand count, as a share of an owner's vote."""
LOUDEST = 2.0
"""How many times the size of the own rows a foreign row may have."""
TIE = 1e-5


@dataclass(frozen=True)
class Rows:
    """The rows of all heads of an inbox, class by class, the own head first.

    Parameters
    ----------
    cosines : array [B, C, n, n]
        Between the rows of a class, each about its own mean; 0 for rows that are zero.
    norms : array [B, C, n]
        Their lengths.
    """

    cosines: Array
    norms: Array

    @classmethod
    def of(cls, inbox: Inbox) -> Rows:
        """Measure the rows of an inbox."""
        xp = inbox.xp
        products = inbox.row_products()
        products = (products + xp.matrix_transpose(products)) / 2
        squares = xp.linalg.diagonal(products)
        norms = xp.sqrt(xp.where(squares > 0, squares, xp.zeros_like(squares)))
        known = xp.where(norms > 0, norms, xp.ones_like(norms))
        return cls(products / known[..., :, None] / known[..., None, :], norms)

    def sizes(self, xp: Any, which: Array) -> Array:
        """Return the root mean square length [B, n] of the rows at `which` [B, C, n] of each head; none: 0."""
        chosen = xp.astype(which, self.norms.dtype)
        count = xp.sum(chosen, axis=1)
        total = xp.sum(self.norms * self.norms * chosen, axis=1)
        return xp.sqrt(total / xp.where(count > 0, count, xp.ones_like(count)))


def volume(xp: Any, rows: Rows, known: Array) -> Array:
    r"""Return the factors [B, C, n] that keep received rows from being louder than the own ones.

    Only the direction of a head decides what it predicts, so a head may be scaled down as a whole: its familiar
    rows to the size of the own familiar rows, the others such that all its rows have the size of all own ones; then
    no foreign row may exceed `LOUDEST` times that. Without a bound, those who overshoot make the rows of
    everybody grow without end, until training no longer moves them. A receiver without any row of its own goes
    by the middle one of the others.
    """
    familiar = xp.broadcast_to(known[:, :, None], rows.norms.shape)
    tested, everything = rows.sizes(xp, familiar), rows.sizes(xp, rows.norms > 0)
    own = xp.where(everything[:, :1] > 0, everything[:, :1], _lower_median(xp, everything[:, 1:])[:, None])
    own_tested = xp.where(tested[:, :1] > 0, tested[:, :1], own)
    factors = xp.where(
        familiar, _at_most(xp, own_tested, tested)[:, None, :], _at_most(xp, own, everything)[:, None, :]
    )
    capped = factors * _at_most(xp, LOUDEST * own[:, None, :], rows.norms * factors)
    factors = xp.where(familiar, factors, capped)
    return xp.concat([xp.ones_like(factors[..., :1]), factors[..., 1:]], axis=-1)


def majority(xp: Any, rows: Rows, first_hand: Array, second_hand: Array) -> Array:
    r"""Return which rows [B, C, n] mean what most of those who should know mean by each class.

    Every first-hand row has a vote, the own row and every second-hand one `ECHO` of one. A row has the support of the
    votes within a cosine of `SAME_CLASS`. The row with the most support (then with the largest sum of cosines, the
    largest cosine with the own row, the largest size) speaks for the class, if more than half of all votes support
    it; else nobody does, and the own row stays. With it are all rows whose cosine with it is at least
    1 - 2 (1 - the median cosine of its first-hand voters), between `SAME_CLASS` and `CLOSE`: a bound that grows
    stricter as owners come to agree, but that attackers who are all alike cannot make too strict for honest rows.

    Parameters
    ----------
    first_hand, second_hand : boolean arrays [B, C, n]
        Who has a vote, and who has an echo, the own head first; rows that are zero have neither.
    """
    there, dtype = rows.norms > 0, rows.norms.dtype
    first, second = xp.astype(first_hand & there, dtype), xp.astype(second_hand & there, dtype)
    nobody = xp.sum(first, axis=-1, keepdims=True) == 0
    votes = first + ECHO * second

    def backing(agreement: Array) -> Array:
        return (agreement @ votes[..., None])[..., 0]

    support = backing(xp.astype(rows.cosines >= SAME_CLASS, dtype))
    speaker = _first_of_best(xp, votes > 0, (support, backing(rows.cosines), rows.cosines[..., 0], rows.norms))
    likeness = (speaker[..., None, :] @ rows.cosines)[..., 0, :]
    voters = (xp.where(nobody, second, first) > 0) & (likeness >= SAME_CLASS)
    typical = _lower_median(xp, xp.where(voters, likeness, xp.full_like(likeness, xp.inf)), voters)
    strict = 1 - 2 * (1 - typical)
    strict = xp.where(strict < CLOSE, strict, xp.full_like(strict, CLOSE))
    strict = xp.where(strict > SAME_CLASS, strict, xp.full_like(strict, SAME_CLASS))
    elected = xp.sum(speaker * support, axis=-1) > xp.sum(votes, axis=-1) / 2
    return (likeness >= strict[..., None]) & elected[..., None]


def _first_of_best(xp: Any, among: Array, keys: tuple[Array, ...]) -> Array:
    """Mark [..., n], as a float, the one of those `among` with the largest first key, then the second, ..."""
    for key in keys:
        values = xp.where(among, key, xp.full_like(key, -xp.inf))
        best = xp.max(values, axis=-1, keepdims=True)
        # What differs by rounding alone is equal, or the order of senders would decide.
        among = among & (values >= best - TIE * xp.where(best > 1, best, xp.ones_like(best)))
    first = xp.argmax(xp.astype(among, xp.int8), axis=-1)
    places = xp.arange(among.shape[-1], dtype=first.dtype, device=first.device)
    return xp.astype(places == first[..., None], keys[0].dtype)


def _lower_median(xp: Any, values: Array, counted: Array | None = None) -> Array:
    """Return the lower median [...] of `values` [..., n]; those not `counted` must be infinite. None: 0."""
    if not values.shape[-1]:
        return xp.zeros(values.shape[:-1], dtype=values.dtype, device=values.device)
    count = values.shape[-1] if counted is None else xp.sum(xp.astype(counted, xp.int64), axis=-1)
    places = xp.arange(values.shape[-1], dtype=xp.int64, device=values.device)
    middle = (count - 1) // 2
    at = places == (middle if counted is None else middle[..., None])
    ordered = xp.sort(values, axis=-1)
    return xp.sum(xp.where(at & (ordered < xp.inf), ordered, xp.zeros_like(ordered)), axis=-1)


def _at_most(xp: Any, bound: Array, values: Array) -> Array:
    """Return the factors that bring values down to a bound: min(1, bound / value)."""
    return xp.where(values > bound, bound / xp.where(values > 0, values, xp.ones_like(values)), xp.ones_like(values))


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

    uses_claims = True  # Claims tell first-hand rows from hearsay.

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
        """Return for whom [B, M] the sum of (η |ΔF1|)³ [B, M, C] is so large that the paper's foreign weight is 0."""
        return ~(weight_of(xp, -xp.sum(behind, axis=-1), *self.foreign) > 0)


@dataclass(frozen=True, kw_only=True)
class BristlePlus(Bristle):
    r"""x' = integrate(own, prioritise(received), claims): `Bristle` with foreign rows from first hand, by majority.

    The stages of Verbraeken, de Vos and Pouwelse, "Bristle", 2021, with `PlusIntegrator` as the second. Needs data, as
    `Bristle` does; `claims` say which classes each sender trains and tests itself, and who will not say so
    has half a vote on foreign classes. Any number of attackers that testing exposes; of those that
    cannot, fewer than honest owners of each class. O(n d) for the distances, O(β T d + β² d) for the rest.

    Parameters
    ----------
    alpha, beta
        See `Prioritiser`.
    phi, kappa, eta, familiar, foreign, score
        See `Integrator`.
    """

    uses_claims = True  # Claims tell first-hand rows from hearsay.

    @property
    def integrator(self) -> PlusIntegrator:
        """The second stage: which rows are mixed in."""
        return PlusIntegrator(
            phi=self.phi,
            kappa=self.kappa,
            eta=self.eta,
            familiar=self.familiar,
            foreign=self.foreign,
            score=self.score,
        )


def _with_majority(xp: Any, rows: Rows, first_hand: Array, second_hand: Array) -> Array:
    """Return which received rows are with the majority [B, M, C]; the own row has the say of a second-hand one."""
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
