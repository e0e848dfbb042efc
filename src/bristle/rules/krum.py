"""Krum, Multi-Krum and Bulyan: choose the heads that are closest together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array, argsort, spread, take_rows
from bristle._core.validation import check_count
from bristle.rules.base import Rule, Verdict, combination, kept_or, per_class, stay
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.coordinatewise import Window, window_mean, window_shares
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox

# Scores within this relative distance of the best are equal: rounding must not choose the winner.
TIE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ByNeighbours(Rule):
    """A rule that scores heads by the distances of their nearest neighbours; expects f attackers."""

    f: int = 4

    measures = Measure.PRODUCTS  # Distances between all heads come from their products.

    @property
    def symmetric(self) -> bool:
        """Yes: scores count every head alike."""
        return True

    def __post_init__(self) -> None:
        check_count("f", self.f)


@dataclass(frozen=True, kw_only=True)
class Krum(ByNeighbours):
    r"""x' = x_k with k = argmin_i Σ_{j among the n-f-2 nearest of i} ‖x_i - x_j‖².

    Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NIPS 2017.
    Assumes at most f attackers, 2f + 2 < n for its guarantee; works from n ≥ f + 3, else the own head stays.
    No data, no history. Among equally good heads the one nearest to the own head wins. O(n² d).

    Parameters
    ----------
    f : int
        Number of attackers to expect.
    with_own : bool
        Return the mean of the chosen head and the own one, as the Bristle paper's author did.
    """

    with_own: bool = False

    @property
    def symmetric(self) -> bool:
        """Whether the own head counts like any other: not `with_own`, where it makes up half of the result."""
        return not self.with_own

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Choose the head with the lowest score."""
        count = inbox.received + 1
        if count - self.f - 2 < 1:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        xp, squared = inbox.xp, inbox.squared_distances()
        scores = _scores(xp, squared, count - self.f - 2)
        chosen = _winner(xp, scores, squared[:, 0, :])
        everyone = xp.arange(count, dtype=chosen.dtype, device=chosen.device)
        is_chosen = chosen[:, None] == everyone
        head, weights = inbox.pick(chosen), xp.astype(is_chosen, scores.dtype)
        if self.with_own:
            head, weights = (head + inbox.own) / 2, (weights + xp.astype(everyone == 0, scores.dtype)) / 2
        reasons = kept_or(xp, is_chosen[:, 1:], Reason.NOT_CHOSEN)
        return Verdict(head, lambda: per_class(inbox, weights), reasons)


@dataclass(frozen=True, kw_only=True)
class MultiKrum(ByNeighbours):
    r"""x' = mean of the m heads with the lowest Krum scores.

    Blanchard et al., NIPS 2017. Assumes at most f attackers; works from n ≥ f + 3. No data, no history. O(n² d).

    Parameters
    ----------
    f : int
        Number of attackers to expect.
    m : int, optional
        Number of heads to average, at most all; n - f by default.
    """

    m: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.m is not None:
            check_count("m", self.m, least=1)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average the heads with the lowest scores."""
        count = inbox.received + 1
        if count - self.f - 2 < 1:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        xp, squared = inbox.xp, inbox.squared_distances()
        scores = _scores(xp, squared, count - self.f - 2)
        # By score; ties, such as two heads that are each other's only neighbour, by distance from the own head.
        nearest_first = argsort(xp, squared[:, 0, :])
        by_score = argsort(xp, take_rows(xp, scores, nearest_first))
        rank = argsort(xp, take_rows(xp, nearest_first, by_score))
        how_many = count - self.f if self.m is None else min(self.m, count)
        kept = rank < how_many
        weights = xp.astype(kept, scores.dtype) / how_many
        return combination(inbox, weights, kept_or(xp, kept[:, 1:], Reason.NOT_CHOSEN))


@dataclass(frozen=True, kw_only=True)
class Bulyan(ByNeighbours):
    r"""Choose θ = n - 2f heads by Krum, one after another; return per coordinate the mean of the θ - 2f values
    nearest to their median.

    El Mhamdi, Guerraoui and Rouault, "The Hidden Vulnerability of Distributed Learning in Byzantium", ICML 2018.
    Assumes at most f attackers, n ≥ 4f + 3 for its guarantee; works from n > 4f, else the own head stays. No data,
    no history. O(n² d + n³ log n).
    """  # noqa: D205 - the formula is the summary

    f: int = 2

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Choose by Krum, then average around the median."""
        count = inbox.received + 1
        chosen_count = count - 2 * self.f
        window = Window(length=chosen_count - 2 * self.f, nearest=True)
        if window.length < 1:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        xp, own = inbox.xp, inbox.own
        chosen = self._choose(xp, inbox.squared_distances(), chosen_count)
        order = argsort(xp, xp.astype(~chosen, xp.int8))
        # The chosen heads become an inbox of their own, with the first of them in place of the own head.
        identity = xp.eye(count, dtype=own.dtype, device=own.device)
        matrix = take_rows(xp, xp.broadcast_to(identity, (own.shape[0], count, count)), order[:, :chosen_count])
        selection = inbox.mixed(matrix)
        return Verdict(
            window_mean(selection, window),
            lambda: spread(xp, window_shares(selection, window), order, 0),
            kept_or(xp, chosen[:, 1:], Reason.NOT_CHOSEN),
        )

    def _choose(self, xp: Any, squared: Array, how_many: int) -> Array:
        batch, count = squared.shape[:2]
        everyone = xp.arange(count, dtype=xp.int64, device=squared.device)
        chosen = xp.zeros((batch, count), dtype=xp.bool, device=squared.device)
        far = xp.full_like(squared, xp.inf)
        for taken in range(how_many):
            among = xp.where(chosen[:, None, :], far, squared)
            scores = _scores(xp, among, max(1, count - taken - self.f - 2))
            scores = xp.where(chosen, far[:, 0, :], scores)
            from_own = xp.where(chosen, far[:, 0, :], squared[:, 0, :])
            chosen = chosen | (_winner(xp, scores, from_own)[:, None] == everyone)
        return chosen


def _scores(xp: Any, squared: Array, neighbours: int) -> Array:
    """Sum of the squared distances to the nearest neighbours [B, n], each head's zero to itself left out."""
    ordered = xp.sort(squared, axis=-1)
    return xp.sum(ordered[:, :, 1 : neighbours + 1], axis=-1)


def _winner(xp: Any, scores: Array, from_own: Array) -> Array:
    """Return the head with the lowest score [B]; ties go to the one nearest to the own head."""
    equal = scores <= xp.min(scores, axis=-1, keepdims=True) * (1 + TIE)
    return xp.argmin(xp.where(equal, from_own, xp.full_like(scores, xp.inf)), axis=-1)
