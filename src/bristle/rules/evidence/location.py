"""Where the classes are: robust means of what owners claim, judged in the space where a head decides.

All claims are numbered: claim j is the mean of class `label[j]` by sender `owner[j]` (0: the receiver) from `count[j]`
samples. Everything here is a linear combination of claims, so that inner products u' S^-1 v are all that is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from bristle.rules.evidence.statement import Floats

Integers = npt.NDArray[np.int64]
MOST = 4.0
"""A count is worth at most so many usual ones of its class in the part of the space that no discriminant sees."""

EXTRA = 3.0
"""Standard errors of a claim by which foreign classes are kept from own ones where few owners are outvoted."""

SURE = 3.5
"""Standard deviations of own samples from which on a boundary is far enough from their class."""

FEW = 4
"""So many honest owners of a class keep a say about it, however many liars there are."""

DISTORTION = 1.3
"""People differ along discriminants by at most so many times what they differ by on average over all directions."""

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
    voice : integer array [N], optional
        Senders with the same number count together as one owner of a class; by default each counts by itself.
    """

    owner: Integers
    label: Integers
    count: Floats
    products: Floats
    classes: int
    voice: Integers | None = None

    def only(self, kept: Booleans) -> Claims:
        """Return some of the claims."""
        rows = np.flatnonzero(kept)
        products = self.products[np.ix_(rows, rows)]
        voice = None if self.voice is None else self.voice[rows]
        return Claims(self.owner[rows], self.label[rows], self.count[rows], products, self.classes, voice)

    def counts_of(self, those: Booleans) -> Floats:
        """Return what some claims of a class say of how many samples they are, ascending; one count of each voice."""
        if self.voice is None:
            return np.sort(self.count[those])
        voices, counts = self.voice[those], self.count[those]
        usual = [np.sort(counts[voices == voice]) for voice in np.unique(voices)]
        return np.sort(np.array([ordered[(len(ordered) - 1) // 2] for ordered in usual]))

    @property
    def known(self) -> Integers:
        """The classes that somebody claims."""
        return np.unique(self.label)

    def capped(self, most: float = 1.0) -> Floats:
        """Return the counts [N], none above `most` times what enough owners of its class claim: see `_typical`."""
        found = self.count.copy()
        for number in self.known:
            those = self.label == number
            found[those] = np.minimum(found[those], most * _typical(self.counts_of(those)))
        return found


def _typical(ordered: Floats) -> float:
    """Return a count that some owners of a class have, of their claimed counts in ascending order.

    A count is a claim too. Of up to seven owners it is the lower median; of more, the count that FEW owners reach, but
    no more than MOST times what FEW do not reach: whether liars say many or one, few honest owners keep their say.
    """
    size = len(ordered)
    if size < 2 * FEW:
        return float(ordered[(size - 1) // 2])
    return float(min(ordered[size - FEW], MOST * ordered[FEW - 1]))


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Return the weighted medians [..., J] of values [..., K, J]: the means of the lower and the upper ones."""
    order = np.argsort(values, axis=-2, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-2)
    sums = np.cumsum(np.take_along_axis(np.broadcast_to(weights[..., None], values.shape), order, axis=-2), axis=-2)
    half = sums[..., -1:, :] / 2
    lower = (sums < half - 1e-9).sum(axis=-2, keepdims=True)
    upper = np.minimum((sums < half + 1e-9).sum(axis=-2, keepdims=True), values.shape[-2] - 1)
    both = np.take_along_axis(ordered, lower, axis=-2) + np.take_along_axis(ordered, upper, axis=-2)
    found: Floats = both[..., 0, :] / 2
    return found


def independent(claims: Claims, spread: float, *, alike: float = 0.1) -> Floats:
    """Return the weight [N] of every claim: 1, shared among claims of a class that are too alike to be independent.

    Independent means of n samples are about sqrt(2 tr(S) / n) apart. Two claims are too alike where their squared
    distance is below `alike` times that, at the larger of both counts: who says fewer samples cannot make honest
    owners look like copies of itself, and who says more only hides its own copies. No bridge between two independent
    claims is that close to both. Claims of one voice are never independent. `spread` is the mean squared distance of a
    sample from its class mean.
    """
    weights = np.ones(len(claims.label))
    squares = np.diag(claims.products)
    counts = claims.capped()
    for number in claims.known:
        those = np.flatnonzero(claims.label == number)
        apart = squares[those][:, None] + squares[those][None] - 2 * claims.products[np.ix_(those, those)]
        larger = np.maximum(counts[those][:, None], counts[those][None])
        close = (apart < alike * spread * 2 / larger) | np.eye(len(those), dtype=bool)
        if claims.voice is not None:
            close |= claims.voice[those][:, None] == claims.voice[those][None]
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
    claims: Claims,
    weights: Floats,
    spread: float,
    *,
    admit: float = 1.3,
    rounds: int = 2,
) -> Located:
    """Return the locations of all claimed classes.

    Along the discriminants S^-1 (m_c - m_o) of class c against every other class o, which are all that a linear head
    sees, the location is the weighted median of the owners' claims: a minority of liars moves it no further than to
    the outermost honest claim. In the rest of the space it is the mean of the claims that a majority confirms; see
    `confirmed`.

    Parameters
    ----------
    claims : Claims
    weights : array [N]
        How much each claim counts; see `independent`.
    spread : float
        Mean squared distance of a sample from its class mean.
    admit : float
        See `confirmed`.
    rounds : int
        Discriminants depend on locations: so often they are taken anew.
    """
    products, counts, known = claims.products, claims.capped(), claims.known
    wide = claims.capped(MOST)
    strength = np.sqrt(counts) * weights
    shares = np.zeros((claims.classes, len(claims.label)))
    groups = _by_owners(claims)
    for rows, those in groups:
        inside = products[those[:, :, None], those[:, None]]
        mine = claims.owner[those] == 0
        found = confirmed(inside, wide[those], weights[those], spread, votes=strength[those], trusted=mine, admit=admit)
        shares[known[rows][:, None], those] = found
    mixture = shares
    for _ in range(rounds if len(known) > 1 else 0):
        projected = (mixture @ products)[known]
        places, basis = _principal_axes(projected @ mixture[known].T)
        moves = np.zeros((len(known), basis.shape[1]))
        for rows, those in groups:
            # The class itself is among the others, at no distance.
            along = projected[rows[:, None], those][:, :, None] - np.moveaxis(projected[:, those], 0, -1)
            part = np.take_along_axis(shares[known[rows]], those, axis=1)
            wanted = weighted_median(along, strength[those]) - (part[:, None] @ along)[:, 0]
            moves[rows] = _least_squares(places, rows, wanted)
        new = shares.copy()
        new[known] += (moves @ basis.T) @ mixture[known]
        mixture = new
    projected = mixture @ products
    return Located(mixture, shares, projected, projected @ mixture.T)


def _by_owners(claims: Claims) -> list[tuple[Integers, Integers]]:
    """Return the classes with equally many claims together: which of those known [G], and their claims [G, K]."""
    order = np.argsort(claims.label, kind="stable")
    _, first, sizes = np.unique(claims.label[order], return_index=True, return_counts=True)
    found = []
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        found.append((rows, order[first[rows][:, None] + np.arange(size)]))
    return found


def confirmed(
    products: Floats,
    counts: Floats,
    weights: Floats,
    spread: float,
    *,
    votes: Floats | None = None,
    trusted: Booleans | None = None,
    admit: float = 1.3,
) -> Floats:
    """Return the shares [..., K] of claims of a class in a mean over those that a majority confirms.

    In many dimensions honest means of n samples are all about sqrt(2 tr(S) / n) apart, and a median moves far; but the
    strict majority with the least mutual distances is not made of liars. To be nearer to each other than honest means
    are earns nothing: distances count from the median of the nearest ones, and from what sampling noise is known to
    make (`spread`), on. Others are admitted up to `admit` times the mean squared distance in that majority. A majority
    is one of `votes` [..., K], by default of weights, and has the `trusted` claim [..., K], where there is one, in it.
    """
    size = counts.shape[-1]
    pull = counts * weights
    weights = weights if votes is None else votes
    if size <= 2:
        found: Floats = pull / pull.sum(axis=-1, keepdims=True)
        return found
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    apart = np.maximum(squares[..., :, None] + squares[..., None, :] - 2 * products, 0)
    apart /= 1 / counts[..., :, None] + 1 / counts[..., None, :]
    same = np.eye(size, dtype=bool)
    nearest = np.median(np.where(same, np.inf, apart).min(axis=-1), axis=-1)
    floor = np.maximum(spread, nearest)[..., None, None]
    order = np.argsort(np.where(same, -1, apart), axis=-1, kind="stable")
    sums = np.cumsum(np.take_along_axis(np.broadcast_to(weights[..., None, :], apart.shape), order, axis=-1), axis=-1)
    enough = np.minimum((sums <= weights.sum(axis=-1)[..., None, None] / 2 + 1e-9).sum(axis=-1) + 1, size)
    # Row i: the claims nearest to claim i that are a majority together.
    among = np.zeros(apart.shape)
    np.put_along_axis(among, order, (np.arange(size) < enough[..., None]).astype(np.float64), axis=-1)
    pairs = np.where(same, 0.0, weights[..., :, None] * weights[..., None, :])
    total = ((among @ pairs) * among).sum(axis=-1)
    costs = ((among @ (pairs * np.maximum(apart, floor))) * among).sum(axis=-1)
    costs = np.where(total > 0, costs / np.where(total > 0, total, 1.0), np.inf)
    if trusted is not None:
        with_it = (among * trusted[..., None, :]).sum(axis=-1) > 0
        costs = np.where(with_it | ~trusted.any(axis=-1, keepdims=True), costs, np.inf)
    least = costs.argmin(axis=-1)[..., None]
    inside = np.take_along_axis(among, least[..., None], axis=-2)[..., 0, :] > 0
    best = np.take_along_axis(costs, least, axis=-1)
    others = np.where(same, 0.0, (weights * inside)[..., None, :])
    near = (apart * others).sum(axis=-1) / np.maximum(others.sum(axis=-1), 1e-12)
    kept = np.where(inside | (near <= admit * np.maximum(best, floor[..., 0])), pull, 0.0)
    kept = np.where(best < np.inf, kept, pull)
    found = kept / kept.sum(axis=-1, keepdims=True)
    return found


def _principal_axes(inner: Floats) -> tuple[Floats, Floats]:
    """Return the locations [C, J] along the principal axes of their own spread, and these axes as mixtures [C, J].

    Axes along which classes hardly differ are left out: nothing is decided there.
    """
    centred = inner - inner.mean(axis=0) - inner.mean(axis=1)[:, None] + inner.mean()
    values, vectors = np.linalg.eigh(centred)
    kept = values > 1e-3 * max(float(values[-1]), 1e-300)
    roots = np.sqrt(values[kept])
    return vectors[:, kept] * roots, vectors[:, kept] / roots


def _least_squares(places: Floats, rows: Integers, wanted: Floats) -> Floats:
    """Return the moves z [G, J] of classes `rows` that best change their projections on (y_row - y_o) by `wanted`.

    min_z sum_o ((y_row - y_o)' z - r_o)^2 has the normal matrix diag(values) + C y_row y_row' in principal axes, whose
    inverse is a rank-one update (Sherman and Morrison 1950).
    """
    mine = places[rows]
    right = mine * wanted.sum(axis=1, keepdims=True) - wanted @ places
    inverse = 1 / (places**2).sum(axis=0)
    first, second = inverse * right, inverse * mine
    size = len(places)
    part = (mine * first).sum(axis=1) / (1 + size * (mine * second).sum(axis=1))
    found: Floats = first - second * (size * part)[:, None]
    return found


@dataclass(frozen=True, eq=False)
class Vetted:
    """How far senders' means of common classes are from the own ones.

    Parameters
    ----------
    errors : array [N]
        In standard errors, times what people differ by; NaN where there is nothing to compare.
    unit : float
        By how much more than sampling noise people differ: 1 where they do not.
    """

    errors: Floats
    unit: float


def vet(
    claims: Claims,
    located: Located,
    variance: Floats,
    spreads: Floats,
    *,
    refuse: float = 6.5,
    apart: float = 1.9,
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
    return Vetted(np.fmax(errors / unit, refuse * whole / level / apart), unit)


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
    dissent: float = 3.6,
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
    for labels, others, own in ((foreign, held, False), (held, foreign, True)):
        for place, number in enumerate(labels):
            those = np.flatnonzero(claims.label == number)
            total = float(weights[those].sum())
            if total < 2 * FEW or not len(others):
                continue
            along = located.projected[number, those] - located.projected[others][:, those]
            away = along - (located.products[number, number] - located.products[number, others])[:, None]
            count = _typical(np.sort(claims.count[those]))
            unit = np.sqrt(variance[number, others] / count)
            away = (-away if own else away) - unit[:, None] * count / np.minimum(claims.count[those], count)
            order = np.argsort(-away, axis=1, kind="stable")
            rank = (np.cumsum(weights[those][order], axis=1) < FEW - 1e-9).sum(axis=1)
            reached = np.take_along_axis(away, np.take_along_axis(order, rank[:, None], axis=1), axis=1)[:, 0]
            reached = np.where(reached > unit * NormalDist().inv_cdf(1 - FEW / total), reached, 0.0)
            if own:
                moved[foreign, place] += reached
            else:
                moved[number], error[number] = reached, unit
    if not moved.any():
        return np.zeros(claims.classes)
    squares = np.diag(located.products)
    middle = (squares[:, None] + squares[held][None] - 2 * located.products[:, held]) / 2
    sure = np.where(moved > EXTRA * error, 2 * SURE, SURE)
    wanted = np.where(error > 0, np.maximum(sure * np.sqrt(variance[:, held]) - middle, 0.0), 0.0)
    found: Floats = np.minimum((moved + EXTRA * error) / 2, wanted).max(axis=1)
    return found
