"""The scatter within classes, pooled from strangers: no sender counts for more than most others see, anywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bristle.rules.evidence.location import typical_of, weighted_median
from bristle.rules.evidence.statement import Floats, Statement

Integers = npt.NDArray[np.int64]

AT_ONCE = 2**22
"""Numbers of an intermediate result that are worked on together."""

BLOCK = 64
"""Matrices up to this size are inverted at once."""

LEAN = 10.0
"""Own samples that one unit of variance, of the median feature, is worth beside what they show."""

FEW = 8
"""Fewer samples say nothing of how far off a covariance is."""

USUAL, LEAST, MOST = 0.1, 0.01, 0.5
"""The shrinkage where nothing is known, and its bounds."""

RARE, WIDE, CONFIRMED = 0.1, 4.0, 4
"""Bounds for the least variance of features in small units: see `_least`."""

ABSURD = 1e6
"""Sketches of more than so many times the usual variance are scaled down to it before they are compared."""

OUTSTANDS = 2.5
"""How many times as far as the median sender one may stand out: see `_levelled` and `_quiet`."""


class Scatter:
    """A covariance S = diag(d) + B'B, and its inverse by Woodbury where there are fewer factors than features.

    Parameters
    ----------
    diagonal : array [D]
    factors : array [R, D]
    """

    def __init__(self, diagonal: Floats, factors: Floats) -> None:
        self.diagonal, self.factors = diagonal, factors
        self._scale = 1 / np.sqrt(diagonal)
        scaled = factors * self._scale
        self._wide = len(factors) < len(diagonal)
        # (I + B B')^-1 in the units of the diagonal, or (I + B'B)^-1: one triangular inverse serves all vectors.
        inner = scaled @ scaled.T if self._wide else scaled.T @ scaled
        inner[np.diag_indices(len(inner))] += 1
        self._inverse = _inverse_root(inner)
        self._scaled = scaled

    def vectors(self, plain: Floats) -> Vectors:
        """Return vectors [K, D] in the form in which inner products with respect to S^-1 are cheap."""
        scaled = plain * self._scale
        if not self._wide:
            return Vectors(scaled @ self._inverse.T, scaled[:, :0])
        return Vectors(scaled, (scaled @ self._scaled.T) @ self._inverse.T)

    def solved(self, vectors: Vectors) -> Floats:
        """Return S^-1 v [K, D]."""
        found: Floats
        if self._wide:
            found = (vectors.scaled - (vectors.taken @ self._inverse) @ self._scaled) * self._scale
        else:
            found = (vectors.scaled @ self._inverse) * self._scale
        return found


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors v with u' S^-1 v = U V' - P_u P_v'.

    Parameters
    ----------
    scaled : array [K, D]
        In units of the diagonal's standard deviations, or white: U.
    taken : array [K, R]
        What the factors take away from the inverse of the diagonal: P; nothing where U is white.
    """

    scaled: Floats
    taken: Floats

    def __getitem__(self, rows: Integers) -> Vectors:
        """Return some of them."""
        return Vectors(self.scaled[rows], self.taken[rows])

    def mixed(self, mixture: Floats) -> Vectors:
        """Return the linear combinations `mixture` [J, K] @ vectors."""
        return Vectors(mixture @ self.scaled, mixture @ self.taken)

    def products(self, others: Vectors | None = None) -> Floats:
        """Return u' S^-1 v [K, J] for all pairs of these vectors and some others, or of these."""
        some = self if others is None else others
        found: Floats = self.scaled @ some.scaled.T - self.taken @ some.taken.T
        return found

    def squares(self) -> Floats:
        """Return v' S^-1 v [K]."""
        found: Floats = _row_squares(self.scaled) - _row_squares(self.taken)
        return found

    def distances(self, others: Vectors) -> Floats:
        """Return the squared distances [K, J] to some others."""
        between = self.squares()[:, None] - 2 * self.products(others) + others.squares()[None]
        found: Floats = np.maximum(between, 0)
        return found


def _column_squares(rows: Floats) -> Floats:
    found: Floats = np.einsum("ij,ij->j", rows, rows)
    return found


def _row_squares(rows: Floats) -> Floats:
    found: Floats = np.einsum("ij,ij->i", rows, rows)
    return found


def _inverse_root(matrix: Floats) -> Floats:
    """Return the inverse of the Cholesky factor of a positive definite matrix, block by block: products are fast."""
    if len(matrix) <= BLOCK:
        found: Floats = np.linalg.inv(np.linalg.cholesky(matrix))
        return found
    half = len(matrix) // 2
    first = _inverse_root(matrix[:half, :half])
    across = matrix[half:, :half] @ first.T
    second = _inverse_root(matrix[half:, half:] - across @ across.T)
    found = np.zeros_like(matrix)
    found[:half, :half], found[half:, half:] = first, second
    found[half:, :half] = -(second @ across) @ first
    return found


def geometric_median(products: Floats, weights: Floats, steps: int = 12) -> Floats:
    """Return the coefficients [..., K] of the geometric median of K points, given their inner products [..., K, K].

    Weiszfeld's steps for argmin_z sum_k w_k ‖x_k - z‖ (Weiszfeld 1937): the answer is a mixture of the points. They
    begin near the point that is nearest to all, and what keeps them from dividing by zero is small beside the distance
    of most points: neither may grow with points that are far away. Points of no weight count for nothing.
    """
    squares = np.diagonal(products, axis1=-2, axis2=-1)
    between = np.maximum(squares[..., :, None] - 2 * products + squares[..., None, :], 0)
    sums = (np.sqrt(between) @ weights[..., None])[..., 0]
    middle = np.where(weights > 0, sums, np.inf).argmin(axis=-1)
    apart = np.take_along_axis(between, middle[..., None, None], axis=-2)[..., 0, :]
    pull = weights / np.sqrt(np.maximum(apart, _median(apart, weights)) + 1e-12)
    mixture = pull / pull.sum(axis=-1, keepdims=True)
    for _ in range(steps):
        along = (products @ mixture[..., None])[..., 0]
        apart = np.maximum(squares - 2 * along + (mixture * along).sum(axis=-1, keepdims=True), 0)
        pull = weights / np.sqrt(apart + 1e-6 * _median(apart, weights) + 1e-12)
        mixture = pull / pull.sum(axis=-1, keepdims=True)
    found: Floats = mixture
    return found


def _median(values: Floats, weights: Floats) -> Floats:
    """Return the (upper) weighted median [..., 1] of values [..., K]: of two, the larger."""
    order = np.argsort(values, axis=-1, kind="stable")
    sums = np.cumsum(np.take_along_axis(weights, order, axis=-1), axis=-1)
    reached = sums >= sums[..., -1:] / 2 * (1 + 1e-9)
    place = np.where(reached.any(axis=-1), reached.argmax(axis=-1), values.shape[-1] - 1)
    chosen = np.take_along_axis(order, place[..., None], axis=-1)
    found: Floats = np.take_along_axis(values, chosen, axis=-1)
    return found


def pool_scatter(
    statements: Sequence[Statement],
    rest: Floats | None = None,
    *,
    cap: float = 1.0,
    shrinkage: float | None = None,
    trust: float = math.inf,
) -> Scatter:
    """Return one covariance of all statements, weighted by their degrees of freedom within bounds.

    Along no direction does a sender count for more than 1 + cap sqrt(n / 100) times what most others see there, for n
    degrees of freedom of one: what it claims is compared with the geometric median of the others' covariances in the
    span of its own factors, and cut where it claims more. Few samples differ by chance; of many, a difference is one of
    classes. Sketches that are too alike to come from different samples count once.

    A part a of the pooled covariance is then spread over the features one by one, S = d + a diag(B'B) + (1 - a) B'B: as
    much as it is expected to be off, a = sum_ij var(s_ij) / sum_ij s_ij^2 over i != j (Ledoit and Wolf 2004; Schäfer
    and Strimmer 2005), with variances from the receiver's own samples.

    Parameters
    ----------
    statements : sequence of Statement
        The own one first.
    rest : array [S, D], optional
        The receiver's samples about the means of their classes, from which the shrinkage is estimated.
    cap : float
    shrinkage : float, optional
        The part a; by default estimated.
    trust : float
        Cut everybody, however many agree, to so many times what the receiver's own samples show.
    """
    counts = _believed(np.stack([np.asarray(one.counts, dtype=np.float64) for one in statements]))
    most = 1 + cap * math.sqrt(counts.max() / 100)
    used = np.flatnonzero(counts > 0)
    diagonals = np.stack([np.asarray(one.diagonal) for one in statements])
    totals = diagonals + np.stack([_column_squares(np.asarray(one.factors)) for one in statements])
    # Sooner, and the same, where all weigh the same, which is usual.
    alike = (counts[used] == counts[used[0]]).all()
    level = np.median(totals[used], axis=0) if alike else weighted_median(totals[used], counts[used])
    level = np.minimum(level, trust * np.maximum(totals[0], totals[0].mean() / 4)) if trust < math.inf else level
    level = np.maximum(level, _least(level, totals[used]))
    scale = np.sqrt(level)
    sketches = [_bounded(np.asarray(statements[int(place)].factors) / scale) for place in used]
    products = _products(sketches)
    inner = np.einsum("irjs,irjs->ij", products, products) if products.size else np.zeros((len(used), len(used)))
    fourth = 0.0 if rest is None or len(rest) < FEW else _fourth(rest / scale)
    weights = np.zeros_like(counts)
    weights[used] = counts[used] * _distinct(inner, counts[used], fourth)
    freedom = float(weights.sum())
    weights /= freedom
    rests = _quiet(np.minimum(diagonals[used], most * level) / level, sketches, weights[used])
    diagonal = np.maximum(weights[used] @ rests, 0.02)
    own = None
    if trust < math.inf and rest is not None and len(rest) >= FEW:
        own = rest / scale * np.sqrt(len(rest) / max(counts[0], 1))
    factors = _levelled(_capped(sketches, products, weights[used], diagonal, most, own, trust), weights[used], diagonal)
    taken = _column_squares(factors)
    if shrinkage is None:
        size = float(weights[used] @ inner @ weights[used]) - float((taken**2).sum())
        known = fourth > 0 and size > 0
        shrinkage = min(max((fourth - size) / freedom / size, LEAST), MOST) if known else USUAL
    return Scatter((diagonal + shrinkage * taken) * level, np.sqrt(1 - shrinkage) * factors * scale)


def _bounded(sketch: Floats) -> Floats:
    """Return a sketch [R, D], scaled down to ABSURD times the usual variance: beyond that, products lose digits."""
    size = float(np.vdot(sketch, sketch))
    most = ABSURD * sketch.shape[1]
    return sketch * math.sqrt(most / size) if size > most else sketch


def _least(level: Floats, totals: Floats) -> Floats:
    """Return a lower bound of the variance of each feature [D], given the statements' median and all of them [M, D].

    A feature that is zero in nearly all samples varies too little in most statements: its bound is a hundredth of the
    mean variance. That is too much for a feature in small units, on which statements agree: where the median is at
    least RARE times the fourth largest (CONFIRMED), the bound is at most WIDE times that one. Three liars change
    neither.
    """
    sure = np.sort(totals, axis=0)[-min(CONFIRMED, len(totals))]
    usual = 0.01 * level.mean()
    found: Floats = np.where(level < RARE * sure, usual, np.minimum(usual, np.where(sure > 0, WIDE * sure, usual)))
    return found + 1e-12


def _believed(counts: Floats) -> Floats:
    """Return how many degrees of freedom each of M statements counts for, given what they claim [M, C].

    Counts are claims too. Of no class does a statement count for more than enough of its owners have, so that liars,
    however many, have the majority only where they have it in some class; and none for more than the receiver, or a
    quarter of all, have in all. 1 each where nobody has any.
    """
    believed = counts.copy()
    for label in np.flatnonzero(counts.any(axis=0)):
        claims = counts[:, label]
        believed[:, label] = np.minimum(claims, typical_of(np.sort(claims[claims > 0])))
    freedom = np.maximum(believed - 1, 0).sum(axis=1)
    freedom = np.minimum(freedom, max(freedom[0], np.quantile(freedom, 0.25)))
    found: Floats = freedom if freedom.any() else np.ones_like(freedom)
    return found


def _fourth(rest: Floats) -> float:
    """Return the mean of sum_ij (z_i z_j)^2 over i != j, for samples [S, D] about the means of their classes."""
    squares = rest**2
    sums = squares.sum(axis=1)
    return float((sums @ sums - np.vdot(squares, squares)) / len(rest))


def _products(sketches: list[Floats]) -> Floats:
    """Return all inner products [S, R, S, R] of the factors of S sketches, padded with zeros to one rank."""
    ranks = [len(sketch) for sketch in sketches]
    count, widest = len(sketches), max(ranks)
    # Caps and likenesses need no more than 32 bits.
    together = np.concatenate(sketches).astype(np.float32)
    where = np.concatenate([place * widest + np.arange(rank) for place, rank in enumerate(ranks)])
    found = np.zeros((count * widest, count * widest))
    found[np.ix_(where, where)] = together @ together.T
    return found.reshape(count, widest, count, widest)


def _distinct(inner: Floats, counts: Floats, fourth: float, alike: float = 0.1) -> Floats:
    """Return 1 for each covariance, shared among those too alike to come from different samples.

    Given inner products tr(S_i S_j): independent covariances of n degrees of freedom are about 2 (fourth - tr(S^2)) / n
    apart. As with means, the larger of both counts is believed.
    """
    squares = np.diag(inner)
    noise = max(fourth - float(np.median(squares)), 0.0)
    larger = np.maximum(counts[:, None], counts[None])
    apart = squares[:, None] + squares[None] - 2 * inner
    close = (apart < alike * 2 * noise / larger) | np.eye(len(counts), dtype=bool)
    found: Floats = 1 / close.sum(axis=1)
    return found


def _capped(
    sketches: list[Floats],
    products: Floats,
    weights: Floats,
    diagonal: Floats,
    cap: float,
    own: Floats | None,
    trust: float,
) -> list[Floats]:
    """Return the factors [R, D] of each sketch, weighted and capped.

    The caps are `cap` times what others show in the span of a sketch, and `trust` times what `own` samples show there.
    """
    count, widest = products.shape[:2]
    scales = np.sqrt(weights)
    if count == 1 or not widest:
        return [scale * sketch for scale, sketch in zip(scales, sketches, strict=True)]
    size = max(1, AT_ONCE // (widest * max(count * widest, len(diagonal))))
    found = []
    for start in range(0, count, size):
        some = np.arange(start, min(start + size, count))
        values, vectors = np.linalg.eigh(products[some, :, some])
        values = np.where(values > 1e-6 * np.maximum(values[:, -1:], 1e-300), values, 0.0)
        turns = np.swapaxes(vectors / np.sqrt(np.where(values > 0, values, np.inf))[:, None], -1, -2)
        seen = (turns @ products[some].reshape(len(some), widest, -1)).reshape(len(some), widest, count, widest)
        seen = np.ascontiguousarray(np.swapaxes(seen, 1, 2))
        flat = (seen @ np.swapaxes(seen, -1, -2)).reshape(len(some), count, -1)
        pull = weights * (np.arange(count) != some[:, None])
        mixture = geometric_median(flat @ np.swapaxes(flat, -1, -2), pull, 8)
        typical = (mixture[:, None] @ flat).reshape(len(some), widest, widest)
        # In the basis `turns @ sketch`, whose directions are orthonormal, or zero.
        alone = np.zeros((len(some), widest, widest))
        for row, place in enumerate(some):
            rank = len(sketches[place])
            alone[row, :rank, :rank] = (sketches[place] * diagonal) @ sketches[place].T
        others = typical + turns @ alone @ np.swapaxes(turns, -1, -2)
        others = others + np.where(values > 0, 0.0, 1.0)[:, None] * np.eye(widest)
        roots = np.sqrt(values)
        claimed = roots[:, :, None] * roots[:, None] * np.eye(widest)
        turn = _cut(claimed, others, cap)
        if own is not None:
            shown = np.zeros((len(some), widest, len(own)))
            for row, place in enumerate(some):
                shown[row, : len(sketches[place])] = sketches[place] @ own.T
            shown = turns @ shown
            mean = (shown @ np.swapaxes(shown, -1, -2) + LEAN * np.eye(widest)) / (len(own) + LEAN)
            turn = _cut(turn @ claimed @ np.swapaxes(turn, -1, -2), mean, trust) @ turn
        mixing = scales[some, None, None] * (turn * roots[:, None]) @ turns
        for row, place in enumerate(some):
            mine = mixing[row] if values[row].all() else mixing[row][values[row] > 0]
            found.append(mine[:, : len(sketches[place])] @ sketches[place])
    return found


def _quiet(rests: Floats, sketches: list[Floats], weights: Floats) -> Floats:
    """Return the diagonals [M, D], scaled down where one alone claims far more than others claim in all.

    Where features are correlated, a diagonal as large as the variance of the features swamps the discriminants, along
    which samples hardly vary. An honest diagonal may be large too, of a sender with more samples. So where one is more
    than OUTSTANDS times the median, traces relative to the pooled covariance S are compared: tr(S^-1 S_k) is about the
    same for all honest senders k. A diagonal whose trace is more than OUTSTANDS times the median is scaled to that
    median.
    """
    sums = rests.sum(axis=1)
    ordered = np.sort(sums)
    if not (sums > OUTSTANDS * ordered[(len(sums) - 1) // 2]).any():
        return rests
    pooled = np.maximum(weights @ rests, 0.02)
    loud = np.concatenate([np.sqrt(weight) * sketch for weight, sketch in zip(weights, sketches, strict=True)])
    whole = Scatter(pooled, loud)
    traces = rests @ whole.vectors(np.eye(len(pooled))).squares()
    scatters = [float(whole.vectors(sketch).squares().sum()) for sketch in sketches]
    all_of_it = np.sort(traces + np.array(scatters))
    usual = float(all_of_it[(len(all_of_it) - 1) // 2])
    cut = np.where(traces > OUTSTANDS * usual, usual / np.maximum(traces, 1e-300), 1.0)
    found: Floats = rests * cut[:, None]
    return found


def _levelled(blocks: list[Floats], weights: Floats, diagonal: Floats) -> Floats:
    """Return all factors [R, D], after cutting senders that stand out along the directions in which they claim most.

    Where features are correlated, a sketch may swamp the discriminants, along which others hardly vary, although it
    shows no more than others do along its own directions. So each sketch F is also judged along the directions S^-1 F'e
    in which it has most of the pooled covariance S, by the ratio of its variance there to the median of the others'.
    Honest sketches have ratios above 1 too, all about the same. A sender whose largest ratio is more than OUTSTANDS
    times that of the median sender is cut to what others show there.
    """
    factors = np.concatenate(blocks)
    ranks = np.array([len(block) for block in blocks])
    count, widest = len(blocks), int(ranks.max())
    if count == 1 or not widest:
        return factors
    # Rows of sketches, padded with zeros to one rank, so that many are worked on at once.
    where = np.concatenate([place * widest + np.arange(rank) for place, rank in enumerate(ranks)])
    products = np.zeros((count * widest, count * widest), dtype=np.float32)
    products[np.ix_(where, where)] = _explained(factors / np.sqrt(diagonal))
    ratios, turns = np.zeros((count, widest)), np.zeros((count, widest, widest))
    size = max(1, AT_ONCE // (count * widest * widest))
    for start in range(0, count, size):
        some = np.arange(start, min(start + size, count))
        mine = products.reshape(count * widest, count, widest)[:, some].swapaxes(0, 1).astype(np.float64)
        values, turn = np.linalg.eigh(mine.reshape(len(some), count, widest, widest)[np.arange(len(some)), some])
        # What every sketch shows along these directions, and what the diagonal adds.
        along = ((mine @ turn) ** 2).reshape(len(some), count, widest, widest).sum(axis=2)
        shown = along / weights[:, None] + np.maximum(values - along.sum(axis=1), 0)[:, None]
        others = weights * (np.arange(count) != some[:, None])
        usual = weighted_median(shown, others)
        here = values > 1e-6
        ratios[some] = np.where(here, shown[np.arange(len(some)), some] / np.maximum(usual, 1e-12), 0)
        turns[some] = turn
    worst = np.sort(ratios.max(axis=1)[ranks > 0])
    most = OUTSTANDS * float(worst[(len(worst) - 1) // 2])
    starts = np.cumsum(ranks) - ranks
    for place in np.flatnonzero((ratios > most).any(axis=1)):
        loud = ratios[place] > most
        cut = np.where(loud, 1 / np.sqrt(np.where(loud, ratios[place], 1)), 1.0)[:, None] * turns[place].T
        rank = ranks[place]
        factors[starts[place] : starts[place] + rank] = turns[place][:rank] @ cut[:, :rank] @ blocks[place]
    return factors


def _explained(scaled: Floats) -> Floats:
    """Return F (I + F'F)^-1 F' = I - (I + F F')^-1 of factors F [R, D]."""
    if len(scaled) <= scaled.shape[1]:
        inner = scaled @ scaled.T
        inner[np.diag_indices(len(inner))] += 1
        root = _inverse_root(inner)
        found: Floats = -(root.T @ root)
        found[np.diag_indices(len(inner))] += 1
        return found
    inner = scaled.T @ scaled
    inner[np.diag_indices(len(inner))] += 1
    white = scaled @ _inverse_root(inner).T
    whole: Floats = white @ white.T
    return whole


def _cut(claimed: Floats, reference: Floats, cap: float) -> Floats:
    """Return factors F [..., R, R] with F G F' <= cap * reference along every direction, and F = I if G has that."""
    root = np.linalg.cholesky(reference)
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ claimed @ np.swapaxes(inverse, -1, -2))
    shrink = np.sqrt(np.minimum(1, cap / np.maximum(values, 1e-12)))
    found: Floats = root @ (vectors * shrink[..., None, :]) @ np.swapaxes(vectors, -1, -2) @ inverse
    return found
