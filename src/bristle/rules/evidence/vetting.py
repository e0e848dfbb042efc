"""Who is believed about where classes are: deviations from the receiver, people's offsets, disputes, and few owners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from bristle.rules.evidence.location import FEW, Claims, Integers, Located, disagree, typical_of
from bristle.rules.evidence.statement import Floats

LENIENT = 20.0
"""Degrees of freedom at which a receiver is twice as lenient as with very many."""

MARGIN = 2.33
"""Standard deviations that a class which the receiver holds must be from a disputed one; more with few samples."""

THEFT = 0.01
"""The share of the own samples, each judged without itself, that disputed classes may take."""

EXTRA = 3.0
"""Standard errors of a claim by which foreign classes are kept from own ones where few owners are outvoted."""

SURE = 3.5
"""Standard deviations of own samples from which on a boundary is far enough from their class."""

NEAR = 1.5
"""Standard errors of the own mean within which a class that the receiver holds is kept where its owners disagree."""

DISTORTION = 1.3
"""People differ along discriminants by at most so many times what they differ by on average over all directions."""


@dataclass(frozen=True, eq=False)
class Vetted:
    """How far senders' means of common classes are from the own ones.

    Parameters
    ----------
    errors : array [N]
        In standard errors, times what people differ by; NaN where there is nothing to compare.
    unit : float
        By how much more than sampling noise people differ: 1 where they do not.
    whole : array [N]
        Squared distances from the own means over what sampling noise explains; NaN where there is nothing to compare.
    """

    errors: Floats
    unit: float
    whole: Floats


def vet(
    claims: Claims,
    located: Located,
    variance: Floats,
    spreads: Floats,
    *,
    refuse: float = 8.0,
    apart: float = 2.3,
    typical: float = 3.0,
    ordinary: float = 1.5,
) -> Vetted:
    """Compare every claim of a class that the receiver holds with its own mean.

    Two tests on one scale: the worst discriminant between classes that the receiver holds, in standard errors
    (`refuse` is too many), and the whole squared distance over the expected one (`apart` is too much). Where people
    differ, both are judged by the third smallest of the senders' worst deviations over what it usually is (`typical`,
    `ordinary`): liars, however many, can only lower it.

    Parameters
    ----------
    variance : array [C, C]
        Of a sample along the discriminant of each pair of classes.
    spreads : array [C]
        Mean squared distance of a sample from its class mean, for each class that the receiver holds.
    """
    errors, whole = (np.full(len(claims.label), np.nan) for _ in range(2))
    known, squares = claims.known, np.diag(claims.products)
    held = claims.label[claims.owner == 0]
    for number in held:
        those = np.flatnonzero(claims.label == number)
        mine = int(np.flatnonzero(claims.owner[those] == 0)[0])
        others = held[held != number] if len(held) > 1 else known[known != number]
        parts = 1 / claims.count[those] + 1 / claims.count[those[mine]]
        if len(others):
            along = located.projected[number][those][:, None] - located.projected[others][:, those].T
            noise = np.sqrt(variance[number, others][None] * parts[:, None])
            errors[those] = (np.abs(along - along[mine]) / np.maximum(noise, 1e-12)).max(axis=1)
        distance = squares[those] - 2 * claims.products[those, those[mine]] + squares[those[mine]]
        whole[those] = np.maximum(distance, 0) / (parts * spreads[number])
        errors[those[mine]] = whole[those[mine]] = np.nan
    # Distances do not depend on locations, which liars can turn so that honest errors look large.
    level = _unit(whole, claims.owner, ordinary)
    unit = min(_unit(errors, claims.owner, typical), DISTORTION * math.sqrt(level))
    return Vetted(np.fmax(errors / unit, refuse * whole / level / apart), unit, whole)


def _unit(values: Floats, owner: Integers, usual: float) -> float:
    worst = []
    for who in np.unique(owner):
        found = values[(owner == who) & np.isfinite(values)]
        if len(found):
            worst.append(float(found.max()))
    worst.sort()
    return max(1.0, worst[min(2, (len(worst) - 1) // 2)] / usual) if worst else 1.0


def personal_spread(claims: Claims, spread: float) -> float:
    """Return r, by how much more the mean deviations of people from the receiver vary than sampling noise does.

    A sender's mean deviation over the classes that both hold has the variance v = spread (1 / n + 1 / n_0) / common
    where people do not differ, and v + 2 t where each has an offset of variance t of its own. r is that of the third
    smallest deviation: liars, however many, can only lower it. 1 where people do not differ, or nothing tells.
    """
    mine = np.flatnonzero(claims.owner == 0)
    found = []
    for who in np.unique(claims.owner[claims.owner > 0]):
        theirs = np.flatnonzero((claims.owner == who) & np.isin(claims.label, claims.label[mine]))
        if not len(theirs):
            continue
        own = mine[np.searchsorted(claims.label[mine], claims.label[theirs])]
        noise = spread * (1 / claims.count[theirs] + 1 / claims.count[own]).sum() / len(theirs) ** 2
        rows = np.concatenate([theirs, own])
        signs = np.repeat([1.0, -1.0], len(theirs)) / len(theirs)
        found.append(float(signs @ claims.products[np.ix_(rows, rows)] @ signs) / noise)
    found.sort()
    return max(1.0, found[min(2, (len(found) - 1) // 2)]) if found else 1.0


def aligned(claims: Claims, ridge: float) -> Floats:
    """Return T [N, N] so that T @ claims are without the offsets in which people differ in all their classes alike.

    m_kc = mu_c + o_k + noise is solved by least squares for locations mu and offsets o, the offsets with the penalty
    `ridge` per sender; what is left of a claim is m_kc - o_k.
    """
    senders, whose = np.unique(claims.owner, return_inverse=True)
    known, which = np.unique(claims.label, return_inverse=True)
    pull = claims.capped() / claims.capped().mean()
    design = np.zeros((len(whose), len(senders) + len(known)))
    design[np.arange(len(whose)), whose] = 1
    design[np.arange(len(whose)), len(senders) + which] = 1
    normal = design.T @ (pull[:, None] * design)
    normal[np.arange(len(senders)), np.arange(len(senders))] += ridge
    offsets = np.linalg.solve(normal, design.T * pull)[: len(senders)]
    found: Floats = np.eye(len(whose)) - offsets[whose]
    return found


def disputes(
    claims: Claims,
    located: Located,
    weights: Floats,
    variance: Floats,
    spread: float,
    *,
    dissent: float = 5.0,
    near: float = 7.0,
    apart: float = 3.0,
) -> tuple[Floats, Floats, Floats]:
    """Return how many claims dissent from each location together [C], how many there are [C], and by how much [N].

    A claim dissents where it is more than `dissent` standard errors from the location along a discriminant, or beyond
    `apart` times the expected squared distance. Dissenters count together where they are within `near` standard errors
    of each other, and within that distance.
    """
    most, total = np.zeros(claims.classes), np.zeros(claims.classes)
    errors = np.zeros(len(claims.label))
    known, squares, counts = claims.known, np.diag(claims.products), claims.capped()
    for number in known:
        those = np.flatnonzero(claims.label == number)
        others = known[known != number]
        total[number] = weights[those].sum()
        if not len(others):
            continue
        count = counts[those]
        along = located.projected[number][those][:, None] - located.projected[others][:, those].T
        place = located.products[number, number] - located.products[number, others]
        noise = np.maximum(variance[number, others], 1e-12)[None]
        errors[those] = (np.abs(along - place) / np.sqrt(noise / count[:, None])).max(axis=1)
        distance = np.maximum(
            squares[those] - 2 * located.projected[number, those] + located.products[number, number], 0
        )
        away = np.flatnonzero((errors[those] > dissent) | (distance * count / spread > apart))
        if not len(away):
            continue
        both = 1 / count[away][:, None] + 1 / count[away][None]
        between = np.abs(along[away][:, None] - along[away][None]) / np.sqrt(noise[None] * both[:, :, None])
        whole = squares[those[away]][:, None] + squares[those[away]][None]
        whole = whole - 2 * claims.products[np.ix_(those[away], those[away])]
        together = (between.max(axis=2) <= near) & (whole / (both * spread) <= apart)
        most[number] = (together * weights[those[away]][None]).sum(axis=1).max()
    return most, total, errors


def leaning(claims: Claims, located: Located, weights: Floats, variance: Floats, held: Integers) -> Floats:
    """Return by how much the biases of foreign classes go down [C] because few owners are outvoted.

    Where a class has 2 FEW owners or more, FEW honest ones may be outnumbered, and a foreign class be moved towards one
    that the receiver holds, or that one away. But FEW owners put it at least as far the other way, along their
    discriminant, as the claim of rank FEW: where that is more than a rank makes by chance, the boundary moves to where
    these owners have it. All foreign classes with as many owners are then kept EXTRA standard errors away from own
    ones, but no further than SURE standard deviations of own samples, or twice as far where owners are EXTRA standard
    errors from the location. Who claims few samples is believed so much less.

    Parameters
    ----------
    variance : array [C, C]
        Of a sample along the discriminant of each pair of classes.
    held : integer array
        The classes that the receiver holds.
    """
    foreign = np.setdiff1d(claims.known, held)
    moved, error = np.zeros((2, claims.classes, len(held)))
    usual = float(np.median(claims.count[claims.owner == 0])) if len(held) else 0.0
    for labels, others, own in ((foreign, held, False), (held, foreign, True)):
        for place, number in enumerate(labels):
            those = np.flatnonzero(claims.label == number)
            ordered = claims.counts_of(those)
            if len(ordered) < 2 * FEW or not len(others):
                continue
            # Who claims far fewer samples than the receiver has, and than FEW owners claim, is not a whole owner.
            whole = max(ordered[FEW - 1], min(usual, ordered[-FEW]))
            votes = weights[those] * np.sqrt(np.minimum(claims.count[those] / whole, 1.0))
            total = float(votes.sum())
            along = located.projected[number, those] - located.projected[others][:, those]
            away = along - (located.products[number, number] - located.products[number, others])[:, None]
            away = -away if own else away
            count = typical_of(ordered)
            counts = np.minimum(claims.count[those], count)
            unit = np.sqrt(variance[number, others] / count)
            if total >= 2 * FEW:
                reached = _reached(away - unit[:, None] * count / counts, votes)
                reached = np.where(reached > unit * NormalDist().inv_cdf(1 - FEW / total), reached, 0.0)
            else:  # Copies, or owners of few samples: nobody is outvoted, and one standard error is enough.
                reached, unit = np.zeros(len(others)), unit / EXTRA
            if own:
                mine = int(np.flatnonzero(claims.owner[those] == 0)[0])
                error_of_mine = np.sqrt(variance[number, others] / claims.count[those[mine]])
                reached = np.minimum(reached, np.maximum(away[:, mine] + error_of_mine, 0.0))
                differ = disagree(along, variance[number, others], counts, votes)
                reached = np.maximum(reached, np.where(differ, away[:, mine] - NEAR * error_of_mine, 0.0))
                moved[foreign, place] += reached
            else:
                moved[number], error[number] = reached, unit
    if not error.any():
        return np.zeros(claims.classes)
    squares = np.diag(located.products)
    middle = (squares[:, None] + squares[held][None] - 2 * located.products[:, held]) / 2
    sure = np.where(moved > EXTRA * error, 2 * SURE, SURE)
    wanted = np.where(error > 0, np.maximum(sure * np.sqrt(variance[:, held]) - middle, 0.0), 0.0)
    found: Floats = np.minimum((moved + EXTRA * error) / 2, wanted).max(axis=1)
    return found


def _reached(away: Floats, votes: Floats) -> Floats:
    """Return which value of each row [J, K] is reached by FEW of the votes [K]."""
    order = np.argsort(-away, axis=1, kind="stable")
    rank = (np.cumsum(votes[order], axis=1) < FEW - 1e-9).sum(axis=1)
    found: Floats = np.take_along_axis(away, np.take_along_axis(order, rank[:, None], axis=1), axis=1)[:, 0]
    return found


def lowering(scores: Floats, held: Integers, disputed: Integers, products: Floats, variance: Floats) -> Floats:
    """Return by how much the biases of disputed classes go down [K].

    Far enough that these take no more than a share of THEFT of the own samples, and that the mean of every class which
    the receiver holds lies MARGIN standard deviations on its own side.
    """
    lead = np.sort(scores[:, disputed].max(axis=1) - scores[:, held].max(axis=1))[::-1]
    allowed = int(THEFT * len(lead))
    lowered = max(0.0, float(lead[allowed]) + 1e-9) if allowed < len(lead) else 0.0
    squares = np.diag(products)
    middle = 0.5 * (squares[disputed][:, None] + squares[held][None] - 2 * products[np.ix_(disputed, held)])
    margin = MARGIN * (1 + LENIENT / max(len(scores) - len(held), 1))
    wanted = (margin * np.sqrt(variance[np.ix_(disputed, held)]) - middle).max(axis=1)
    found: Floats = np.maximum(lowered, wanted)
    return found
