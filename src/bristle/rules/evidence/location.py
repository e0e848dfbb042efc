"""Where the classes are: robust means of what owners claim, judged in the space where a head decides.

All claims are numbered: claim j is the mean of class `label[j]` by sender `owner[j]` (0: the receiver) from `count[j]`
samples. Everything here is a linear combination of claims, so that inner products u' S^-1 v are all that is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle.rules.evidence.statement import Floats

Integers = npt.NDArray[np.int64]
MOST = 4.0
"""A count is worth at most so many usual ones of its class in the part of the space that no discriminant sees."""

FEW = 4
"""So many honest owners of a class keep a say about it, however many liars there are."""

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
        if kept.all():
            return self
        rows = np.flatnonzero(kept)
        products = self.products[np.ix_(rows, rows)]
        voice = None if self.voice is None else self.voice[rows]
        return Claims(self.owner[rows], self.label[rows], self.count[rows], products, self.classes, voice)

    def counts_of(self, those: Booleans | Integers) -> Floats:
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
        """Return the counts [N], none above `most` times what enough owners of its class claim: see `typical_of`."""
        found = self.count.copy()
        for number in self.known:
            those = self.label == number
            found[those] = np.minimum(found[those], most * typical_of(self.counts_of(those)))
        return found


def typical_of(ordered: Floats) -> float:
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


def near_own(located: Located, claims: Claims, weights: Floats, variance: Floats, *, reach: float = 1.5) -> Located:
    """Return the locations with those that the receiver holds near its own means where their owners disagree.

    Of a class with 2 FEW owners or more, liars may have the median. Where its owners disagree along a discriminant
    between two classes that the receiver holds, the location is then at most `reach` standard errors of the own mean
    away from it; see `disagree`.

    Parameters
    ----------
    variance : array [C, C]
        Of a sample along the discriminant of each pair of classes.
    """
    own = np.flatnonzero(claims.owner == 0)
    held = claims.label[own]
    crowded = np.bincount(claims.label, minlength=claims.classes)[held] >= 2 * FEW
    if len(own) < 2 or not crowded.any():
        return located
    inner = located.products[np.ix_(held, held)]
    places, basis = _principal_axes(inner)
    counts, rows = claims.capped(), np.flatnonzero(crowded)
    wanted = np.zeros((len(rows), len(held)))
    for place, row in enumerate(rows):
        label = held[row]
        those = np.flatnonzero(claims.label == label)
        along = located.projected[label, those] - located.projected[held][:, those]
        mine = along[:, claims.owner[those] == 0][:, 0]
        room = reach * np.sqrt(variance[label, held] / claims.count[own[row]])
        there = inner[row, row] - inner[row]
        differ = disagree(along, variance[label, held], counts[those], weights[those])
        wanted[place] = np.where(differ, np.clip(there, mine - room, mine + room) - there, 0.0)
    if not wanted.any():
        return located
    mixture = located.mixture.copy()
    mixture[held[rows]] += (_least_squares(places, rows, wanted) @ basis.T) @ located.mixture[held]
    projected = mixture @ claims.products
    return Located(mixture, located.shares, projected, projected @ mixture.T)


def disagree(along: Floats, variance: Floats, counts: Floats, votes: Floats, *, most: float = 2.5) -> Booleans:
    """Return along which discriminants [J] the claims [J, K] vary by more than `most` times sampling noise."""
    total = float(votes.sum())
    apart = (along - (along @ votes / total)[:, None]) ** 2 * counts / np.maximum(variance, 1e-12)[:, None]
    found: Booleans = apart @ votes > most * max(total - 1, 1e-9)
    return found


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
