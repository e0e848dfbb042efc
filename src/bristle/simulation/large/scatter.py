"""The pooled scatter of very many receivers at once: Gram matrices, Cholesky factors and products, no eigenvectors.

The mathematics of `bristle.rules.evidence.scatter`, but for some guards, on torch tensors with the receivers first. A
basis of the span of a sketch comes from a Cholesky factor instead of eigenvectors, and a matrix is cut by its sign,
which products alone approach; both leave the covariance what it is within rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array
from bristle.rules.evidence.scatter import FEW, LEAST, MOST, USUAL

SUBSPACE_STEPS, SIGN_STEPS, MEDIAN_STEPS = 12, 22, 8
TINY = 1e-6


def eye(torch: Any, size: int, like: Array) -> Array:
    """Return the identity [n, n]."""
    return torch.eye(size, dtype=like.dtype, device=like.device)


def principal(torch: Any, rest: Array, freedom: Array, ranks: Array) -> Array:
    """Return sketches [B, R, D] of samples about their means `rest` [B, S, D]; those beyond `ranks` [B] are zero.

    Orthogonal iteration on the inner products of samples approaches the largest principal components.
    """
    size = int(ranks.max())
    inner = (rest @ rest.mT).double()
    generator = torch.Generator().manual_seed(0)
    begin = torch.randn(rest.shape[1], size, generator=generator, dtype=torch.float64)
    basis = begin.to(rest.device).expand(len(rest), -1, -1)
    for _ in range(SUBSPACE_STEPS):
        moved = inner @ basis
        gram = moved.mT @ moved
        level = torch.diagonal(gram, dim1=1, dim2=2).mean(dim=1)[:, None, None]
        root = torch.linalg.cholesky(gram + (1e-13 * level + 1e-300) * eye(torch, size, gram))
        basis = torch.linalg.solve_triangular(root, moved.mT, upper=False).mT
    chosen = torch.arange(size, device=rest.device) < ranks[:, None]
    sketch = (basis * chosen[:, None, :]).to(rest.dtype).mT @ rest
    return sketch / freedom.to(rest.dtype).sqrt()[:, None, None]


def middle(torch: Any, values: Array, dim: int) -> Array:
    """Return the medians along an axis, of an even number the mean of the middle two."""
    ordered, size = torch.sort(values, dim=dim).values, values.shape[dim]
    return (ordered.select(dim, (size - 1) // 2) + ordered.select(dim, size // 2)) / 2


@dataclass(frozen=True, eq=False)
class Covariances:
    """A covariance diag(d) + B'B for every receiver, and what is needed of its inverse.

    Parameters
    ----------
    scale : array [B, D]
        1 / sqrt(d).
    scaled : array [B, Q, D]
        The factors B in these units.
    root : array [B, Q, Q] or [B, D, D]
        The Cholesky factor of I + BB', or of I + B'B where there are more factors than features.
    """

    scale: Array
    scaled: Array
    root: Array

    @classmethod
    def of(cls, torch: Any, diagonal: Array, factors: Array) -> Covariances:
        """Return them for diagonals [B, D] and factors [B, Q, D]."""
        scale = diagonal.rsqrt()
        scaled = factors * scale[:, None, :]
        inner = scaled @ scaled.mT if scaled.shape[1] < scaled.shape[2] else scaled.mT @ scaled
        return cls(scale, scaled, torch.linalg.cholesky(inner + eye(torch, inner.shape[1], inner)))

    @property
    def wide(self) -> bool:
        """Whether there are fewer factors than features."""
        return bool(self.scaled.shape[1] < self.scaled.shape[2])

    def vectors(self, torch: Any, plain: Array) -> tuple[Array, Array]:
        """Return U, P of vectors [B, n, D] so that u' S^-1 v = U V' - P_u P_v'."""
        scaled = plain * self.scale[:, None, :]
        if not self.wide:
            return torch.linalg.solve_triangular(self.root, scaled.mT, upper=False).mT, scaled[:, :, :0]
        taken = torch.linalg.solve_triangular(self.root, self.scaled @ scaled.mT, upper=False).mT
        return scaled, taken

    def solved(self, torch: Any, scaled: Array, taken: Array) -> Array:
        """Return S^-1 v [B, n, D] of vectors in that form."""
        if not self.wide:
            return torch.linalg.solve_triangular(self.root.mT, scaled.mT, upper=True).mT * self.scale[:, None, :]
        back = torch.linalg.solve_triangular(self.root.mT, taken.mT, upper=True).mT
        return (scaled - back @ self.scaled) * self.scale[:, None, :]


@dataclass(frozen=True, eq=False)
class Sketches:
    """What K senders state of their scatter to each of B receivers, the receiver's own first.

    Parameters
    ----------
    factors : array [B, K, R, D]
    diagonal, totals : array [B, K, D]
        What the factors leave out of the variance of each feature, and all of it.
    freedom : array [B, K]
        Degrees of freedom, all above 0.
    """

    factors: Array
    diagonal: Array
    totals: Array
    freedom: Array


def pooled(torch: Any, stated: Sketches, rest: Array, samples: Array, cap: float) -> Covariances:
    """Pool the scatter as `pool_scatter` does.

    `rest` [B, S, D] are own samples about the means of their classes, of which `samples` [B] are real.
    """
    freedom = stated.freedom
    bound = torch.minimum(middle(torch, freedom, 1), torch.maximum(freedom[:, 0], torch.quantile(freedom, 0.25, dim=1)))
    counts = torch.minimum(freedom, bound[:, None])
    most = (1 + cap * (counts.amax(dim=1) / 100).sqrt()).to(rest.dtype)
    level = middle(torch, stated.totals, 1)
    level = torch.maximum(level, 0.01 * level.mean(dim=1, keepdim=True) + 1e-12)
    scale = level.sqrt()
    batch, senders, rank, features = stated.factors.shape
    sketches = stated.factors / scale[:, None, None, :]
    flat = sketches.reshape(batch, senders * rank, features)
    products = (flat @ flat.mT).reshape(batch, senders, rank, senders, rank)
    inner = (products * products).sum(dim=(2, 4), dtype=torch.float64)
    squares = (rest / scale[:, None, :]) ** 2
    sums = squares.sum(dim=2).double()
    fourth = ((sums**2).sum(dim=1) - (squares * squares).sum(dim=(1, 2)).double()) / samples
    fourth = torch.where(samples >= FEW, fourth, 0.0)
    weights = counts * _distinct(torch, inner, counts, fourth)
    together = weights.sum(dim=1)
    weights = weights / together[:, None]
    narrow = weights.to(rest.dtype)
    bounded = torch.minimum(stated.diagonal, (most[:, None] * level)[:, None, :])
    diagonal = ((narrow[:, :, None] * bounded).sum(dim=1) / level).clamp(min=0.02)
    turned = _cut(torch, sketches, products, weights, diagonal, most)
    factors = turned.reshape(batch, senders * rank, features)
    taken = (factors * factors).sum(dim=1)
    size = (weights[:, None, :] @ inner @ weights[:, :, None])[:, 0, 0] - (taken.double() ** 2).sum(dim=1)
    estimated = ((fourth - size) / together / size).clamp(LEAST, MOST)
    shrinkage = torch.where((fourth > 0) & (size > 0), estimated, USUAL).to(rest.dtype)[:, None]
    final = (diagonal + shrinkage * taken) * level
    return Covariances.of(torch, final, (1 - shrinkage).sqrt()[:, :, None] * factors * scale[:, None, :])


def _distinct(torch: Any, inner: Array, counts: Array, fourth: Array, alike: float = 0.1) -> Array:
    """Return 1 for each covariance [B, K], shared among those too alike to come from different samples."""
    squares = torch.diagonal(inner, dim1=1, dim2=2)
    noise = (fourth - middle(torch, squares, 1)).clamp(min=0)[:, None, None]
    larger = torch.maximum(counts[:, :, None], counts[:, None, :])
    apart = squares[:, :, None] + squares[:, None, :] - 2 * inner
    close = (apart < alike * 2 * noise / larger) | eye(torch, counts.shape[1], counts).bool()
    return 1 / close.sum(dim=2)


def _cut(torch: Any, sketches: Array, products: Array, weights: Array, diagonal: Array, cap: Array) -> Array:
    """Return weighted factors [B, K, R, D], cut to `cap` [B] times what others see in the span of each sketch."""
    batch, senders, rank, _ = sketches.shape
    own = torch.diagonal(products, dim1=1, dim2=3).permute(0, 3, 1, 2)
    grams = own.double()
    sizes = torch.diagonal(grams, dim1=2, dim2=3)
    level = sizes.amax(dim=2, keepdim=True)
    absent = (sizes <= TINY * level).double()
    root = torch.linalg.cholesky(grams + torch.diag_embed(absent * level + TINY * level))
    root, narrow = root.float(), weights.float()
    identity = eye(torch, rank, root)
    inverse = torch.linalg.solve_triangular(root, identity.expand(batch, senders, -1, -1), upper=False)
    # What each sender j has in the orthonormal basis of the span of each sender i: [B, i, j, R, R].
    seen = inverse[:, :, None] @ products.permute(0, 1, 3, 2, 4)
    seen = seen @ seen.mT
    flat = seen.reshape(batch, senders, senders, rank * rank)
    others = 1 - eye(torch, senders, root)
    mixture = _geometric_median(torch, (flat @ flat.mT).double(), (weights.sqrt()[:, None, :] * others.double()))
    typical = (mixture.float()[:, :, None, :] @ flat).reshape(batch, senders, rank, rank)
    turned = inverse @ sketches
    reference = typical + (turned * diagonal[:, None, None, :]) @ turned.mT
    reference = reference + torch.diag_embed(absent.float() + TINY)
    # The sender's own covariance in that basis is L'L; where there is no factor, nothing.
    claimed = root.mT @ ((1 - absent.float())[:, :, :, None] * root)
    within = torch.linalg.cholesky(reference.double()).float()
    unit = torch.linalg.solve_triangular(within, claimed, upper=False)
    unit = torch.linalg.solve_triangular(within, unit.mT, upper=False)
    bounded = _bounded(torch, (unit + unit.mT) / 2, cap)
    half = torch.linalg.cholesky(bounded + (TINY * cap)[:, None, None, None] * identity)
    return narrow.sqrt()[:, :, None, None] * ((within @ half).mT @ turned)


def _bounded(torch: Any, matrices: Array, cap: Array) -> Array:
    """Return symmetric matrices [B, K, R, R] with no eigenvalue above `cap` [B]: (A + c - |A - c|) / 2.

    |X| is X times its sign, which X <- X (3 - X^2) / 2 approaches from ‖X‖ <= 1 (Newton and Schulz).
    """
    identity = eye(torch, matrices.shape[-1], matrices)
    middle_of = cap[:, None, None, None] * identity
    above = matrices - middle_of
    sign = above / torch.linalg.matrix_norm(above)[:, :, None, None].clamp(min=1e-30)
    for _ in range(SIGN_STEPS):
        sign = 1.5 * sign - 0.5 * sign @ sign @ sign
    size = above @ sign
    return (matrices + middle_of - (size + size.mT) / 2) / 2


def _geometric_median(torch: Any, products: Array, weights: Array) -> Array:
    """Return the coefficients [B, K, K] of geometric medians, as `bristle.rules.evidence.geometric_median`."""
    squares = torch.diagonal(products, dim1=2, dim2=3)
    between = (squares[..., :, None] - 2 * products + squares[..., None, :]).clamp(min=0)
    sums = (between.sqrt() @ weights[..., None])[..., 0]
    centre = torch.where(weights > 0, sums, torch.inf).argmin(dim=-1)
    apart = torch.take_along_dim(between, centre[..., None, None], dim=2)[..., 0, :]
    pull = weights / (torch.maximum(apart, _weighted_median(torch, apart, weights)) + 1e-12).sqrt()
    mixture = pull / pull.sum(dim=-1, keepdim=True)
    for _ in range(MEDIAN_STEPS):
        along = (products @ mixture[..., None])[..., 0]
        apart = (squares - 2 * along + (mixture * along).sum(dim=-1, keepdim=True)).clamp(min=0)
        pull = weights / (apart + 1e-6 * _weighted_median(torch, apart, weights) + 1e-12).sqrt()
        mixture = pull / pull.sum(dim=-1, keepdim=True)
    return mixture


def _weighted_median(torch: Any, values: Array, weights: Array) -> Array:
    """Return the upper weighted medians [..., 1] of values [..., K]."""
    ordered, order = torch.sort(values, dim=-1, stable=True)
    sums = torch.take_along_dim(weights, order, dim=-1).cumsum(dim=-1)
    reached = sums >= sums[..., -1:] / 2 * (1 + 1e-9)
    return torch.take_along_dim(ordered, reached.double().argmax(dim=-1, keepdim=True), dim=-1)
