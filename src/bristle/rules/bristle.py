"""The rule of the paper: prioritise by distance, then integrate by performance on held-out samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any, Literal, get_args

from bristle._core import Array, Pool, argsort, spread
from bristle._core.short_rows import LONGEST, has_kernels
from bristle._core.validation import check_count, check_positive, check_share
from bristle.learning.metrics import samples_per_class
from bristle.rules.base import Rule, Verdict, stay
from bristle.rules.call import Call, Draw, Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox

# Of more models than these, and than this many times β, a sample is examined.
LOOK_AT, LOOK_AT_BETAS = 48, 1.5


@dataclass(frozen=True, kw_only=True)
class Prioritiser:
    r"""Sample at most β models from three tiers of distance: f_l = (1-α)², f_m = 2α(1-α), f_h = α² of β.

    Verbraeken, de Vos and Pouwelse, "Bristle", 2021, section 3.2 (the distance-based prioritiser). Received heads
    are sorted by their Euclidean distance from the own head and cut into three tiers of equal size, a
    remainder going to the lower tiers; models are drawn uniformly from each. With at most β models all pass. Quotas
    are rounded by largest remainder to sum to β; what a tier cannot fill goes to its neighbours.

    Of more than L = max(48, 1.5 β) models, L that are fit for use are drawn uniformly first, and the tiers are cut
    among these: the thirds of a uniform sample estimate the thirds of all, and the cost no longer grows with the number
    of models. The others are not examined, not even for values that are not finite: they are not sampled.

    Parameters
    ----------
    alpha : float
        Explore (1: only far models) or exploit (0: only near ones).
    beta : int
        Largest number of models that pass.
    """

    alpha: float = 0.4
    beta: int = 30

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("beta", self.beta, least=1)

    def __call__(self, own: Array, received: Array | Pool, *, mask: Array | None = None, rng: Any = None) -> Array:
        """Return the mask of the received models [..., M] that pass, for the integrator."""
        call = Call.check(own, received, mask=mask, measure=Measure.DISTANCES, draw=Draw(rng, self.max_candidates))
        passes = []
        for part in call.parts():
            xp, count = part.inbox.xp, min(self.beta, part.inbox.received)
            chosen = xp.ones((part.inbox.own.shape[0], count), dtype=xp.bool, device=own.device)
            if part.inbox.received > self.beta:
                chosen = spread(xp, chosen, self.order(part.inbox, part.task.draws), False)
            passes.append(chosen if part.order is None else spread(xp, chosen, part.order, False))
        return call.restore(passes)

    @property
    def max_candidates(self) -> int:
        """Maximum number of models that are examined."""
        return max(LOOK_AT, math.ceil(LOOK_AT_BETAS * self.beta))

    def order(self, inbox: Inbox, draws: Array) -> Array:
        """Return the models' positions [B, received], those that pass (the first β) before the others."""
        xp, received = inbox.xp, inbox.received
        tiers = tier_sizes(received)
        quotas = self.quotas(received)
        low, middle = tiers[0], tiers[0] + tiers[1]
        starts, ends = (0, low, middle), (quotas[0], low + quotas[1], middle + quotas[2])
        by_distance = argsort(xp, inbox.distances())
        rank = argsort(xp, by_distance)
        tier = xp.astype(rank >= low, draws.dtype) + xp.astype(rank >= middle, draws.dtype)
        # Sorted by tier, and by draw within it, a model passes if it is within its tier's quota.
        place = argsort(xp, argsort(xp, tier + draws))
        passes = xp.zeros(rank.shape, dtype=xp.bool, device=rank.device)
        for start, end in zip(starts, ends, strict=True):
            passes = passes | ((place >= start) & (place < end))
        return argsort(xp, xp.astype(~passes, xp.int8))

    @lru_cache(maxsize=256)  # noqa: B019 - a prioritiser is a small value
    def quotas(self, received: int) -> tuple[int, int, int]:
        """Return the numbers of `received` models drawn from the low, medium and high tier."""
        shares = ((1 - self.alpha) ** 2, 2 * self.alpha * (1 - self.alpha), self.alpha**2)
        wanted = _largest_remainder(shares, min(self.beta, received))
        low, middle, high = tier_sizes(received)
        # Unfilled places of an outer tier go to the middle; those of the middle go to both outer ones.
        low_quota, high_quota = min(wanted[0], low), min(wanted[2], high)
        open_places = min(self.beta, received) - low_quota - high_quota
        middle_quota = min(open_places, middle)
        open_places -= middle_quota
        extra_low = min(low - low_quota, open_places - open_places // 2)
        extra_high = min(high - high_quota, open_places - extra_low)
        extra_low = open_places - extra_high
        return low_quota + extra_low, middle_quota, high_quota + extra_high


def tier_sizes(count: int) -> tuple[int, int, int]:
    """Cut `count` models into three tiers; the lower ones take the remainder."""
    return (count + 2) // 3, (count + 1) // 3, count // 3


def _largest_remainder(shares: tuple[float, ...], total: int) -> list[int]:
    # Rounded, so that 0.36 * 25 = 9.000000000000002 or 8.999999999999998 both count as 9.
    exact = [round(share * total, 9) for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


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
        Number of a model's best classes that its certainty is computed from, at most one less than can be tested.
    kappa : int
        Number of held-out samples from which on a class is familiar.
    eta : float
        Factor of differences in F1.
    familiar, foreign : (float, float)
        ω₁ and ω₂ for classes that can be tested and for those that cannot.
    score : str
        Score of a class on which the model is worse. `split` (default): weight 0 if familiar, and
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

    consolidates = True  # Rows of classes that a peer does not train must only change by integration.

    def __post_init__(self) -> None:
        check_integration(self.phi, self.kappa, self.eta, self.familiar, self.foreign, self.score)

    @property
    def test_samples(self) -> int:
        """Held-out samples of a class that are needed to test it: kappa."""
        return self.kappa

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Test every model on the held-out samples and mix in the rows that help."""
        xp, own, evaluation = inbox.xp, inbox.own, task.evaluation
        if evaluation is None or evaluation.labels.shape[1] == 0:
            return stay(inbox, Reason.NOTHING_TO_TEST_ON)
        counts = samples_per_class(evaluation.labels, inbox.classes, own.dtype)
        known = counts >= self.kappa
        f1 = inbox.f1_scores(evaluation.features, evaluation.labels)
        weights, certainty = self.weigh(xp, f1, known)
        shares = weights / (1 + xp.sum(weights, axis=1, keepdims=True))
        everything = xp.concat([1 - xp.sum(shares, axis=1, keepdims=True), shares], axis=1)
        testable = xp.any(known, axis=-1)[:, None]
        reasons = self._reasons(xp, weights, certainty, testable)
        return Verdict(inbox.combine_rows(everything), lambda: everything, reasons, ~testable[:, 0])

    def weigh(self, xp: Any, f1: Array, known: Array) -> tuple[Array, Array]:
        """Return the weights [B, M, C] against 1 for the own head, and the certainty [B, M] of each model.

        `f1` [B, 1 + M, C] with the own head first; `known` [B, C] is the mask of the familiar classes.
        """
        if has_kernels(f1) and f1.dtype == xp.float32 and f1.shape[2] <= LONGEST and self.score != "author":
            from bristle.rules.bristle_kernel import weigh_on_device  # noqa: PLC0415

            return weigh_on_device(self, f1, known)
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
        # A model without any scored class gets no weight for the foreign ones either.
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
    """Raise a ValueError for parameters outside their ranges."""
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

    consolidates = True  # Rows of classes that a peer does not train must only change by integration.
    stochastic = True  # The prioritiser draws models from its tiers.
    measures = Measure.DISTANCES  # The prioritiser asks for distances from the own head.

    def __post_init__(self) -> None:
        _ = self.prioritiser, self.integrator  # Check their parameters.

    @cached_property
    def prioritiser(self) -> Prioritiser:
        """The first stage: chooses the models to test."""
        return Prioritiser(alpha=self.alpha, beta=self.beta)

    @cached_property
    def integrator(self) -> Integrator:
        """The second stage: weighs rows by tests."""
        return Integrator(**{field.name: getattr(self, field.name) for field in fields(Integrator)})

    @property
    def test_samples(self) -> int:
        """Held-out samples of a class that are needed to test it: kappa."""
        return self.kappa

    @property
    def max_candidates(self) -> int:
        """Maximum number of models that the prioritiser examines."""
        return self.prioritiser.max_candidates

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Prioritise, then integrate."""
        if inbox.received <= self.beta:
            return self.integrator.decide(inbox, task)
        xp = inbox.xp
        order = self.prioritiser.order(inbox, task.draws)
        tested = order[:, : self.beta]
        verdict = self.integrator.decide(inbox.take(tested), task)
        reasons = spread(xp, verdict.reasons, order, int(Reason.NOT_SAMPLED))

        def weights() -> Array:
            tested = verdict.weights()
            return xp.concat([tested[:, :1, :], spread(xp, tested[:, 1:, :], order, 0)], axis=1)

        return Verdict(verdict.head, weights, reasons, verdict.stays)
