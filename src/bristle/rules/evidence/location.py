"""Where the classes are: robust means of what owners claim, judged in the space where a head decides.

All claims are numbered: claim j is the mean of class `label[j]` by sender `owner[j]` (0: the receiver) from `count[j]`
samples. Everything here is a linear combination of claims, so that inner products u' S^-1 v are all that is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle.rules.evidence.scatter import geometric_median
from bristle.rules.evidence.statement import Floats

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Claims:
    """The claims of one decision.

    Parameters
    ----------
    owner, label : integer array [N]
        Who claims, and which class.
    count : array [N]
        From how many samples.
    products : array [N, N]
        Inner products of the claimed means with respect to S^-1.
    classes : int
    """

    owner: Integers
    label: Integers
    count: Floats
    products: Floats
    classes: int

    def only(self, kept: Booleans) -> Claims:
        """Return some of the claims."""
        rows = np.flatnonzero(kept)
        return Claims(
            self.owner[rows], self.label[rows], self.count[rows], self.products[np.ix_(rows, rows)], self.classes
        )

    @property
    def known(self) -> Integers:
        """The classes that somebody claims."""
        return np.unique(self.label)

    def capped(self) -> Floats:
        """Return the counts [N], none above the (lower) median of its class: a count is a claim too."""
        found = self.count.copy()
        for number in self.known:
            those = self.label == number
            ordered = np.sort(self.count[those])
            found[those] = np.minimum(found[those], ordered[(len(ordered) - 1) // 2])
        return found


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Return the weighted median of each column of values [K, J], the mean of the lower and the upper one."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    sums = np.cumsum(weights[order], axis=0)
    half = sums[-1:] / 2
    lower = (sums < half - 1e-9).sum(axis=0)
    upper = np.minimum((sums < half + 1e-9).sum(axis=0), len(values) - 1)
    columns = np.arange(values.shape[1])
    found: Floats = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return found


def independent(claims: Claims, spread: float, *, alike: float = 0.1) -> Floats:
    """Return the weight [N] of every claim: 1, shared among claims of a class that are too alike to be independent.

    Independent means of n samples are about sqrt(2 tr(S) / n) apart. Two claims are too alike where their squared
    distance is below `alike` times that, at the larger of both counts: who says fewer samples cannot make honest
    owners look like copies of itself, and who says more only hides its own copies. No bridge between two independent
    claims is that close to both. `spread` is the mean squared distance of a sample from its class mean.
    """
    weights = np.ones(len(claims.label))
    squares = np.diag(claims.products)
    counts = claims.capped()
    for number in claims.known:
        those = np.flatnonzero(claims.label == number)
        apart = squares[those][:, None] + squares[those][None] - 2 * claims.products[np.ix_(those, those)]
        larger = np.maximum(counts[those][:, None], counts[those][None])
        close = (apart < alike * spread * 2 / larger) | np.eye(len(those), dtype=bool)
        weights[those] = 1 / close.sum(axis=1)
    return weights


@dataclass(frozen=True, eq=False)
class Located:
    """Where classes are: location c is `mixture[c]` @ claims.

    Parameters
    ----------
    mixture : array [C, N]
    shares : array [C, N]
        The part of each claim in the location apart from corrections along discriminants: not negative, sums to 1.
    projected : array [C, N]
        Inner products of locations and claims.
    products : array [C, C]
        Inner products of locations.
    """

    mixture: Floats
    shares: Floats
    projected: Floats
    products: Floats


def robust_means(
    claims: Claims, weights: Floats, *, far: float = 1.5, near_own: float = 6.0, rounds: int = 2
) -> Located:
    """Return the locations of all claimed classes.

    Along the discriminants S^-1 (m_c - m_o) of class c against every other class o, which are all that a linear head
    sees, the location is the weighted median of the owners' claims: a minority of liars moves it no further than to
    the outermost honest claim. In the rest of the space it is a mean clipped at the median distance, without claims
    beyond `far` times that. The location of a class that the receiver holds stays within `near_own` standard errors
    of its own mean.

    Parameters
    ----------
    claims : Claims
    weights : array [N]
        How much each claim counts; see `independent`.
    far, near_own : float
    rounds : int
        Discriminants depend on locations: so often they are taken anew.
    """
    products, counts = claims.products, claims.capped()
    strength = np.sqrt(counts) * weights
    known = claims.known
    mixture = np.zeros((claims.classes, len(claims.label)))
    for number in known:
        those = np.flatnonzero(claims.label == number)
        mixture[number, those] = geometric_median(products[np.ix_(those, those)], strength[those])
    shares = mixture.copy()
    for _ in range(rounds):
        projected = mixture @ products
        inner = projected @ mixture.T
        new = np.zeros_like(mixture)
        for number in known:
            those = np.flatnonzero(claims.label == number)
            others = known[known != number]
            share = _clipped_mean(
                products[np.ix_(those, those)],
                shares[number, those],
                counts[those],
                weights[those],
                strength[those],
                far,
            )
            shares[number] = 0
            new[number, those] = shares[number, those] = share
            if len(others) == 0:
                continue
            along = projected[number][those][:, None] - projected[others][:, those].T
            place = weighted_median(along, strength[those])
            mine = np.flatnonzero(claims.owner[those] == 0)
            if len(mine):
                apart = np.maximum(inner[number, number] - 2 * inner[number, others] + inner[others, others], 1e-9)
                reach = near_own * np.sqrt(apart / claims.count[those[mine[0]]])
                place = np.clip(place, along[mine[0]] - reach, along[mine[0]] + reach)
            gram = (
                inner[number, number]
                - inner[number, others][None, :]
                - inner[others, number][:, None]
                + inner[np.ix_(others, others)]
            )
            moves = np.linalg.lstsq(gram, place - share @ along, rcond=1e-3)[0]
            new[number] += moves.sum() * mixture[number] - moves @ mixture[others]
        mixture = new
    projected = mixture @ products
    return Located(mixture, shares, projected, projected @ mixture.T)


def _clipped_mean(
    products: Floats, start: Floats, counts: Floats, weights: Floats, strength: Floats, far: float
) -> Floats:
    """Return the coefficients of a mean clipped at the median distance, without what is beyond `far` times that."""
    share = start
    for _ in range(4):
        squares = np.diag(products) - 2 * products @ share + share @ products @ share
        distances = np.sqrt(np.maximum(squares, 1e-12) * counts)
        median = weighted_median(distances[:, None], strength)[0]
        pull = counts * weights * np.minimum(1, median / distances) * (distances <= far * median)
        share = pull / pull.sum()
    return share


def deviations(claims: Claims, located: Located, variance: Floats) -> Floats:
    """Return how far each claim of a class that the receiver holds is from the own mean, in standard errors [N].

    The worst discriminant of the class counts; `variance` [C, C] is that of a sample along each discriminant. NaN
    where there is nothing to compare.
    """
    found = np.full(len(claims.label), np.nan)
    known = claims.known
    for number in known:
        those = np.flatnonzero(claims.label == number)
        mine = np.flatnonzero(claims.owner[those] == 0)
        others = known[known != number]
        if not len(mine) or not len(others):
            continue
        along = located.projected[number][those][:, None] - located.projected[others][:, those].T
        parts = 1 / claims.count[those] + 1 / claims.count[those[mine[0]]]
        errors = np.sqrt(variance[number, others][None] * parts[:, None])
        found[those] = (np.abs(along - along[mine[0]]) / np.maximum(errors, 1e-12)).max(axis=1)
        found[those[mine[0]]] = np.nan
    return found


def unit_of(deviations: Floats, *, typical: float = 1.7) -> float:
    """Return how much more than sampling noise honest people differ: 1, or the lower quartile over its usual value.

    People differ: where even those nearest to the receiver deviate by more than sampling noise explains, all
    deviations are judged by that much more. A quarter of the claims has to be honest for it to be right.
    """
    found = deviations[np.isfinite(deviations)]
    return max(1.0, float(np.quantile(found, 0.25)) / typical) if len(found) else 1.0


def disputes(
    claims: Claims,
    located: Located,
    weights: Floats,
    variance: Floats,
    spread: float,
    unit: float,
    *,
    dissent: float = 7.0,
    apart: float = 3.0,
) -> tuple[Floats, Floats, Floats]:
    """Return how many claims dissent from each location together [C], how many there are [C], and by how much [N].

    A claim dissents where it is more than `dissent` standard errors from the location along a discriminant, or beyond
    `apart` times the expected squared distance; dissenters count together where they are that near each other.
    """
    most, total = np.zeros(claims.classes), np.zeros(claims.classes)
    errors = np.zeros(len(claims.label))
    known, squares = claims.known, np.diag(claims.products)
    for number in known:
        those = np.flatnonzero(claims.label == number)
        others = known[known != number]
        total[number] = weights[those].sum()
        if not len(others):
            continue
        count = claims.count[those]
        along = located.projected[number][those][:, None] - located.projected[others][:, those].T
        place = located.products[number, number] - located.products[number, others]
        noise = np.maximum(variance[number, others], 1e-12)[None] * unit**2
        errors[those] = (np.abs(along - place) / np.sqrt(noise / count[:, None])).max(axis=1)
        distance = np.maximum(
            squares[those] - 2 * located.projected[number, those] + located.products[number, number], 0
        )
        away = np.flatnonzero((errors[those] > dissent) | (distance * count / (spread * unit**2) > apart))
        if not len(away):
            continue
        both = 1 / count[away][:, None] + 1 / count[away][None]
        between = np.abs(along[away][:, None] - along[away][None]) / np.sqrt(noise[None] * both[:, :, None])
        whole = squares[those[away]][:, None] + squares[those[away]][None]
        whole = whole - 2 * claims.products[np.ix_(those[away], those[away])]
        together = (between.max(axis=2) <= dissent) & (whole / (both * spread * unit**2) <= apart)
        most[number] = (together * weights[those[away]][None]).sum(axis=1).max()
    return most, total, errors
