"""The scatter within classes, pooled from strangers: no sender counts for more than most others see, anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bristle.rules.evidence.statement import Floats, Statement


class Scatter:
    """A covariance S = diag(d) + B'B, and its inverse by Woodbury: for few factors no D x D matrix is ever made.

    Parameters
    ----------
    diagonal : array [D]
    factors : array [R, D]
    """

    def __init__(self, diagonal: Floats, factors: Floats) -> None:
        self.diagonal, self.factors = diagonal, factors
        self._scale = 1 / np.sqrt(diagonal)
        scaled = factors * self._scale
        inner = scaled @ scaled.T
        inner[np.diag_indices(len(inner))] += 1
        # T'T is what B takes away from the inverse of the diagonal.
        self._taken: Floats = np.linalg.solve(np.linalg.cholesky(inner), scaled)

    def halves(self, vectors: Floats) -> tuple[Floats, Floats]:
        """Return (V, P) of some vectors so that u' S^-1 v = U V' - P_u P_v'."""
        scaled = vectors * self._scale
        return scaled, scaled @ self._taken.T

    def solve(self, vectors: Floats) -> Floats:
        """Return S^-1 v for vectors [K, D]."""
        scaled, taken = self.halves(vectors)
        found: Floats = (scaled - taken @ self._taken) * self._scale
        return found

    def products(self, vectors: Floats) -> Floats:
        """Return u' S^-1 v for all pairs of vectors [K, D]: [K, K]."""
        scaled, taken = self.halves(vectors)
        found: Floats = scaled @ scaled.T - taken @ taken.T
        return found


def geometric_median(products: Floats, weights: Floats, steps: int = 12) -> Floats:
    """Return the coefficients [K] of the geometric median of K points, given their inner products [K, K].

    Weiszfeld's steps for argmin_z sum_k w_k ‖x_k - z‖ (Weiszfeld 1937): the answer is a mixture of the points. They
    begin near the point that is nearest to all, and what keeps them from dividing by zero is small beside the distance
    of most points: neither may grow with points that are far away.
    """
    squares = np.diag(products)
    between = np.maximum(squares[:, None] - 2 * products + squares[None], 0)
    apart = between[int((np.sqrt(between) @ weights).argmin())]
    pull = weights / np.sqrt(np.maximum(apart, _median(apart, weights)) + 1e-12)
    mixture = pull / pull.sum()
    for _ in range(steps):
        apart = np.maximum(squares - 2 * products @ mixture + mixture @ products @ mixture, 0)
        pull = weights / np.sqrt(apart + 1e-6 * _median(apart, weights) + 1e-12)
        mixture = pull / pull.sum()
    found: Floats = mixture
    return found


def _median(values: Floats, weights: Floats) -> float:
    """Return the (upper) weighted median of values [K]: of two, the larger."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(sums, sums[-1] / 2 * (1 + 1e-9)), len(values) - 1)])


def pool_scatter(statements: Sequence[Statement], *, cap: float = 2.5, floor: float = 0.1) -> Scatter:
    """Return one covariance of all statements, weighted by their degrees of freedom within bounds.

    Along no direction does a sender count for more than `cap` times what most others see there: what it claims is
    compared with the geometric median of the others' covariances in the span of its own factors, and cut where it
    claims more. A `floor` of the pooled variance is spread over the features one by one (shrinkage to the diagonal).

    Parameters
    ----------
    statements : sequence of Statement
        The own one first.
    cap, floor : float
    """
    weights = np.array([float(one.freedom) for one in statements])
    # Freedom is a claim too: nobody counts for more than the receiver, or a quarter of all, say of themselves.
    weights = np.minimum(weights, min(np.median(weights), max(weights[0], np.quantile(weights, 0.25))))
    if not weights.any():
        weights = np.ones_like(weights)
    weights /= weights.sum()
    used = np.flatnonzero(weights > 0)
    diagonals = np.stack([np.asarray(one.diagonal) for one in statements])
    totals = diagonals + np.stack([(np.asarray(one.factors) ** 2).sum(axis=0) for one in statements])
    level = np.median(totals[used], axis=0)
    level = np.maximum(level, 0.01 * level.mean() + 1e-12)
    diagonal = np.maximum(weights @ np.minimum(diagonals, cap * level) / level, 0.02)
    sketches = [np.asarray(statements[int(place)].factors) / np.sqrt(level) for place in used]
    factors = np.concatenate(
        [
            np.sqrt(weights[place]) * part
            for place, part in zip(used, _capped(sketches, weights[used], diagonal, cap), strict=True)
        ]
    )
    diagonal = diagonal + floor * (factors**2).sum(axis=0)
    return Scatter(diagonal * level, np.sqrt(1 - floor) * factors * np.sqrt(level))


def _capped(sketches: list[Floats], weights: Floats, diagonal: Floats, cap: float) -> list[Floats]:
    """Cut each sketch [R, D] down to `cap` times what the others see in its span."""
    if len(sketches) == 1:
        return sketches
    ends = np.cumsum([0, *(len(sketch) for sketch in sketches)])
    together = np.concatenate(sketches)
    products = together @ together.T
    found = []
    for place, sketch in enumerate(sketches):
        part = slice(ends[place], ends[place + 1])
        values, vectors = np.linalg.eigh(products[part, part])
        kept = values > 1e-9 * max(values[-1], 1e-300) if len(values) else np.zeros(0, dtype=bool)
        if not kept.any():
            found.append(np.zeros((0, sketch.shape[1])))
            continue
        turn = (vectors[:, kept] / np.sqrt(values[kept])).T
        directions = turn @ sketch  # orthonormal
        seen = turn @ products[part]
        others = [place_ for place_ in range(len(sketches)) if place_ != place]
        claims = np.stack(
            [seen[:, ends[other] : ends[other + 1]] @ seen[:, ends[other] : ends[other + 1]].T for other in others]
        )
        flat = claims.reshape(len(claims), -1)
        typical = np.tensordot(geometric_median(flat @ flat.T, np.sqrt(weights[others]), 8), claims, 1)
        typical = typical + (directions * diagonal) @ directions.T
        found.append((_cut(np.diag(values[kept]), typical, cap) * np.sqrt(values[kept])) @ directions)
    return found


def _cut(claimed: Floats, reference: Floats, cap: float) -> Floats:
    """Return a factor F with F G F' <= cap * reference along every direction, and F = I where that holds already."""
    root = np.linalg.cholesky(reference)
    inverse = np.linalg.inv(root)
    values, vectors = np.linalg.eigh(inverse @ claimed @ inverse.T)
    shrink = np.sqrt(np.minimum(1, cap / np.maximum(values, 1e-12)))
    found: Floats = root @ (vectors * shrink) @ vectors.T @ inverse
    return found
