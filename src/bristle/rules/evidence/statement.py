"""Statements: what a peer shares of its samples, once, instead of heads for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle._core import Array, to_numpy
from bristle._core.arrays import is_array
from bristle._core.validation import check_count, check_positive
from bristle.learning.metrics import Evaluation
from bristle.rules.decision import Reason

Floats = npt.NDArray[np.float64]
LARGEST = 1e9
"""Counts and values from this on are refused: no honest peer has them, and squares of more lose their digits."""


@dataclass(frozen=True, eq=False)
class Statement:
    """Counts, class means and a sketch of the scatter within classes: n_c, m_c and S ≈ F'F + diag(d).

    A statement holds nothing of anybody else's, so that nothing is fed back. Rules that exchange heads have statements
    too: rows are then the rows of the head, and there is no scatter.

    Parameters
    ----------
    rows : array [..., C, D]
        The mean feature of each class, or the rows of a head. A row without a count says nothing, whatever it holds.
    counts : array [..., C]
        How many samples each row stands for; 0: the peer says nothing about the class.
    factors : array [..., R, D], optional
        The largest part of the covariance within classes: its outer products, summed.
    diagonal : array [..., D], optional
        What the factors leave out of the variance of each feature.
    """

    rows: Array
    counts: Array
    factors: Array | None = None
    diagonal: Array | None = None

    @property
    def freedom(self) -> Array:
        """Degrees of freedom of the scatter, sum_c max(n_c - 1, 0) [...], by the counts alone."""
        counts = to_numpy(self.counts).astype(np.float64)
        return np.maximum(counts - 1, 0).sum(axis=-1)

    def __getitem__(self, place: Any) -> Statement:
        """Return some of the statements of a batch."""
        parts = (self.rows, self.counts, self.factors, self.diagonal)
        return Statement(*(None if part is None else part[place] for part in parts))

    def numpy(self) -> Statement:
        """Return the statement as NumPy arrays of 64 bits, in which evidence is weighed."""
        parts = (self.rows, self.counts, self.factors, self.diagonal)
        return Statement(*(None if part is None else to_numpy(part).astype(np.float64) for part in parts))

    def coarse(self) -> Statement:
        """Return the statement with every count lowered to a power of two."""
        counts = to_numpy(self.counts).astype(np.float64)
        powers = 2.0 ** np.floor(np.log2(np.maximum(counts, 1.0)))
        return Statement(self.rows, np.where(counts > 0, powers, 0.0), self.factors, self.diagonal)

    @classmethod
    def stack(cls, statements: Sequence[Statement]) -> Statement:
        """Return a batch [M, ...] of statements of NumPy arrays; factors are padded with zeros to the highest rank."""
        rank = max((0 if one.factors is None else one.factors.shape[-2] for one in statements), default=0)
        features = statements[0].rows.shape[-1]
        factors = np.zeros((len(statements), rank, features), dtype=np.result_type(statements[0].rows.dtype))
        diagonal = np.zeros((len(statements), features), dtype=factors.dtype)
        for place, one in enumerate(statements):
            if one.factors is not None:
                factors[place, : one.factors.shape[-2]] = one.factors
            if one.diagonal is not None:
                diagonal[place] = one.diagonal
        return cls(
            np.stack([one.rows for one in statements]), np.stack([one.counts for one in statements]), factors, diagonal
        )


def sample_arrays(samples: Evaluation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return features and labels as NumPy arrays; raise ValueError if they are no arrays."""
    for name, part in (("features", samples.features), ("labels", samples.labels)):
        if not is_array(part):
            raise ValueError(f"{name} must be an array, not {type(part).__name__}: use np.asarray({name})")
    return to_numpy(samples.features), to_numpy(samples.labels)


def check_samples(features: Array, labels: Array, classes: int) -> None:
    """Raise unless these are finite features [..., S, D] and class numbers [..., S] below `classes` (-1 = padding)."""
    check_count("classes", classes, least=1)
    if features.ndim < 2 or features.shape[:-1] != labels.shape or not features.shape[-1]:
        raise ValueError(
            f"samples have features {list(features.shape)} and labels {list(labels.shape)}: give [samples, features] "
            "and [samples]"
        )
    if labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be integers, not {labels.dtype}: give the number of each sample's class")
    if labels.max(initial=-1) >= classes:
        raise ValueError(f"there is no class {labels.max()}: labels go from 0 to {classes - 1}, or are -1 for padding")
    if features.dtype.kind in "OSUcmM":
        raise ValueError(f"features must be real numbers, not {features.dtype}: convert them to float64")
    if not np.isfinite(features[labels >= 0]).all():
        raise ValueError("features must be finite: leave out samples with NaN or infinite values, or fill these in")


def state(samples: Evaluation, classes: int, *, rank: float = 2.4) -> Statement:
    """Return the statement of one peer's samples: `features` [S, D], `labels` [S] (-1 = padding).

    The sketch holds the `rank * sqrt(freedom)` largest principal components of the covariance within classes, and the
    variance that they leave, feature by feature: more samples support more directions.
    """
    check_positive("rank", rank)
    features, labels = sample_arrays(samples)
    check_samples(features, labels, classes)
    features, labels = features[labels >= 0].astype(np.float64), labels[labels >= 0]
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    rows = np.zeros((classes, features.shape[1]))
    rest = features.copy()
    for number in np.flatnonzero(counts):
        mine = labels == number
        rows[number] = features[mine].mean(axis=0)
        rest[mine] -= rows[number]
    freedom = max(float(np.maximum(counts - 1, 0).sum()), 1.0)
    wanted = min(max(1, round(rank * np.sqrt(freedom))), int(freedom))
    factors = _principal(rest, wanted) / np.sqrt(freedom)
    diagonal = np.maximum((rest**2).sum(axis=0) / freedom - (factors**2).sum(axis=0), 0)
    return Statement(rows, counts, factors, diagonal)


def _principal(rest: Floats, rank: int) -> Floats:
    """Return rows F [rank, D] so that F'F is the best approximation of rest' rest of this rank."""
    wide = len(rest) <= rest.shape[1]
    values, vectors = np.linalg.eigh(rest @ rest.T if wide else rest.T @ rest)
    values, vectors = np.maximum(values[::-1][:rank], 0), vectors[:, ::-1][:, :rank]
    found: Floats = vectors.T @ rest if wide else np.sqrt(values)[:, None] * vectors.T
    return found


def unfit(statement: Statement, classes: int, features: int) -> Reason | None:
    """Return why a stranger's statement cannot be used, or None: shapes, values that are not finite, absurd counts."""
    if not isinstance(statement, Statement):
        return Reason.WRONG_DTYPE
    parts = [statement.rows, statement.counts, statement.factors, statement.diagonal]
    plain = [to_numpy(part) for part in parts if is_array(part)]
    if len(plain) < len(parts) or any(part.dtype.kind not in "fiu" for part in plain):
        return Reason.WRONG_DTYPE
    rows, counts, factors, diagonal = plain
    if rows.shape != (classes, features) or counts.shape != (classes,) or diagonal.shape != (features,):
        return Reason.WRONG_SHAPE
    if factors.ndim != 2 or factors.shape[1] != features or factors.shape[0] > features:
        return Reason.WRONG_SHAPE
    # The largest of values of which one is not a number is none either.
    largest = [np.abs(part).max(initial=0) for part in (rows, counts, factors, diagonal)]
    if not np.isfinite(largest).all():
        return Reason.NOT_FINITE
    if max(largest) >= LARGEST:
        return Reason.TOO_LARGE
    if (counts < 0).any() or (counts % 1).any() or not counts.any() or (diagonal < 0).any():
        return Reason.IMPOSSIBLE
    return None
