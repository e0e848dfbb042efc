"""Bristle's second stage: test each model class by class, and take in only the rows that help."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

from bristle._core import Array, argsort
from bristle._core.validation import check_count, check_positive
from bristle.learning.metrics import f1_scores, samples_per_class
from bristle.rules.call import Task
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox
from bristle.rules.rule import Rule, Verdict, stay

Score = Literal["split", "literal", "leave-out", "author", "cubic"]


@dataclass(frozen=True, kw_only=True)
class Integrator(Rule):
    r"""row_c' = (own_c + Σ_m w_mc m_c) / (1 + Σ_m w_mc), w_mc = max(0, ω₁/(1 + e^(-s/100)) - ω₂) r_m.

    Verbraeken, de Vos and Pouwelse, "Bristle", 2021, section 3.3 (the performance-based integrator). F1 per familiar
    class decides: r_m, the certainty, is max(0, mean - std) of the φ best F1 of model m; s, the F1-discrepancy, is
    (η (F1 - F1_own))³ where the model is not worse. Foreign classes take the same function of the summed scores.
    Assumes that samples of a class are alike among peers. Needs data: at least κ held-out samples of one class,
    else the own head stays. No f, no history. O(n T d).

    Parameters
    ----------
    phi : int
        How many of a model's best classes count for its certainty; capped at one less than can be tested.
    kappa : int
        Held-out samples that make a class familiar.
    eta : float
        How strongly a better F1 counts.
    familiar, foreign : (float, float)
        ω₁ and ω₂ for classes that can be tested and for those that cannot.
    score : str
        What a class counts on which the model is worse. `split` (default): weight 0 if familiar, and
        -(η |ΔF1|)³ in the sum over the φ best for the foreign ones. `literal`: -∞, everywhere. `leave-out`: -∞, but not
        summed. `cubic`: -(η |ΔF1|)³ everywhere, sum over the φ best. `author`: like cubic with the powers
        4 + F1_own where worse and 3 + F1_own where better.
    """

    phi: int = 3
    kappa: int = 10
    eta: float = 10
    familiar: tuple[float, float] = (10, 4)
    foreign: tuple[float, float] = (10, 4)
    score: Score = "split"

    def __post_init__(self) -> None:
        check_integration(self.phi, self.kappa, self.eta, self.familiar, self.foreign, self.score)

    @property
    def consolidates(self) -> bool:
        """Rows of classes that a peer does not train must only change by integration."""
        return True

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Test every model on the held-out samples and mix in, row by row, what helps."""
        xp, own, evaluation = inbox.xp, inbox.own, task.evaluation
        if evaluation is None or evaluation.labels.shape[1] == 0:
            return stay(inbox, Reason.NOTHING_TO_TEST_ON)
        counts = samples_per_class(evaluation.labels, inbox.classes, own.dtype)
        known = counts >= self.kappa
        predictions = inbox.predictions(evaluation.features)
        f1 = f1_scores(predictions, evaluation.labels[:, None, :], inbox.classes, own.dtype)
        weights, certainty = self.weigh(xp, f1, known)
        shares = weights / (1 + xp.sum(weights, axis=1, keepdims=True))
        everything = xp.concat([1 - xp.sum(shares, axis=1, keepdims=True), shares], axis=1)
        testable = xp.any(known, axis=-1)[:, None]
        reasons = self._reasons(xp, weights, certainty, testable)
        return Verdict(inbox.combine_rows(everything), lambda: everything, reasons, ~testable[:, 0])

    def weigh(self, xp: Any, f1: Array, known: Array) -> tuple[Array, Array]:
        """Return the weights [B, M, C] against 1 for the own head, and the certainty [B, M] of each model.

        `f1` [B, 1 + M, C] with the own head first; `known` [B, C] tells the familiar classes.
        """
        own, models = f1[:, :1, :], f1[:, 1:, :]
        best = _best(xp, models, known, self.phi)
        certainty = _certainty(xp, models, best)
        worse = models < own
        difference = xp.abs(models - own) * self.eta
        minus_infinity = xp.full_like(models, -xp.inf)
        if self.score == "author":
            scores = xp.where(worse, -(difference ** (4 + own)), difference ** (3 + own))
        else:
            cubes = difference**3
            scores = xp.where(worse, -cubes, cubes)
        strict = xp.where(worse, minus_infinity, scores)
        summed = known[:, None, :] if self.score in ("literal", "leave-out") else best
        if self.score == "leave-out":
            summed = summed & ~worse
        foreign_scores = strict if self.score == "literal" else scores
        total = xp.sum(xp.where(summed, foreign_scores, xp.zeros_like(scores)), axis=-1)
        # A model for which no class speaks gets no say on the foreign ones either.
        total = xp.where(xp.any(summed, axis=-1), total, minus_infinity[:, :, 0])
        familiar_scores = scores if self.score in ("author", "cubic") else strict
        weights = xp.where(
            known[:, None, :],
            weight_of(xp, familiar_scores, *self.familiar),
            weight_of(xp, total, *self.foreign)[:, :, None],
        )
        weights = weights * certainty[:, :, None]
        return xp.where(xp.any(known, axis=-1)[:, None, None], weights, xp.zeros_like(weights)), certainty

    def _reasons(self, xp: Any, weights: Array, certainty: Array, testable: Array) -> Array:
        def code(reason: Reason) -> Array:
            return xp.asarray(int(reason), dtype=xp.int8, device=weights.device)

        rejected = xp.where(certainty > 0, code(Reason.WORSE_EVERYWHERE), code(Reason.UNCERTAIN))
        tested = xp.where(xp.any(weights > 0, axis=-1), code(Reason.KEPT), rejected)
        return xp.where(testable, tested, code(Reason.NOTHING_TO_TEST_ON))


def check_integration(
    phi: int, kappa: int, eta: float, familiar: tuple[float, float], foreign: tuple[float, float], score: str
) -> None:
    """Insist on parameters that make sense."""
    check_count("phi", phi, least=1)
    check_count("kappa", kappa, least=1)
    check_positive("eta", eta, most=1e6)
    for name, pair in (("familiar", familiar), ("foreign", foreign)):
        sensible = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(w, Real) for w in pair)
        if not (sensible and all(0 <= w <= 1e6 for w in pair)):
            raise ValueError(f"{name} must be a pair (w1, w2) of numbers from 0 to 1e6, not {pair!r}")
    if score not in get_args(Score):
        raise ValueError(f"score must be one of {', '.join(get_args(Score))}, not {score!r}")


def _best(xp: Any, f1: Array, known: Array, phi: int) -> Array:
    """Mark each model's φ best familiar classes [B, M, C]; φ at most one less than familiar, at least 1."""
    candidates = xp.where(known[:, None, :], f1, xp.full_like(f1, -1))
    rank = argsort(xp, argsort(xp, -candidates))
    familiar = xp.sum(xp.astype(known, xp.int64), axis=-1)
    cap = xp.where(familiar > 2, familiar - 1, xp.ones_like(familiar))
    cap = xp.where(cap < phi, cap, xp.full_like(cap, phi))
    return (rank < cap[:, None, None]) & known[:, None, :]


def _certainty(xp: Any, f1: Array, best: Array) -> Array:
    """max(0, mean - population standard deviation) of each model's best F1 [B, M]."""
    chosen = xp.astype(best, f1.dtype)
    count = xp.sum(chosen, axis=-1)
    count = xp.where(count > 0, count, xp.ones_like(count))
    mean = xp.sum(f1 * chosen, axis=-1) / count
    deviation = (f1 - mean[:, :, None]) * chosen
    spread = xp.sqrt(xp.sum(deviation * deviation, axis=-1) / count)
    certainty = mean - spread
    return xp.where(certainty > 0, certainty, xp.zeros_like(certainty))


def weight_of(xp: Any, score: Array, w1: float, w2: float) -> Array:
    """max(0, w1 / (1 + exp(-s / 100)) - w2), for any s from minus infinity on, without overflow."""
    decay = xp.exp(-xp.abs(score) / 100)
    rise = xp.where(score >= 0, 1 / (1 + decay), decay / (1 + decay))
    weight = w1 * rise - w2
    return xp.where(weight > 0, weight, xp.zeros_like(weight))
