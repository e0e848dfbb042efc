"""Products, distances and clipping over many models, block by block through the processor's cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bristle._core.arrays import Array, squared_norms, take_rows
from bristle._core.threads import in_threads

# Columns at a time, so that a block of 64 models stays within a core's cache.
COLUMNS = 8192
# Numbers at a time in a pass over whole models.
PASS = 1 << 18
# Numbers from which on a pass is worth threads.
THREADED = 1 << 21
# Numbers that stay in the outer cache between two products.
CACHED = 1 << 22
# For longer inner products BLAS would wake other threads, which costs more than the products and leaves them spinning.
PIECE = 8192
SHORT_PIECE = 512
# Models whose random projection is below this are small; others are measured exactly.
SMALL_PROJECTION = 1e6


def distances_from(xp: Any, models: Array, point: Array, picked: Array | None = None) -> Array:
    """Squared Euclidean distances [B, k] of `models` [B, k, F], or of those at `picked` [B, m], from `point` [B, F]."""
    _, count, width = models.shape
    turn = max(1, PASS // max(1, width))
    if xp is np:
        return _numpy_distances(models, point, picked, turn)
    if picked is not None:
        models, count = take_rows(xp, models, picked), picked.shape[1]
    # Some models at a time bound the memory that the differences take.
    turns = [(start, min(start + turn, count)) for start in range(0, max(count, 1), turn)]
    parts = [squared_norms(xp, models[:, start:stop, :] - point[:, None, :]) for start, stop in turns]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


def _numpy_distances(models: Array, point: Array, picked: Array | None, turn: int) -> Array:
    """Squared distances of a few models at a time, in reused memory that stays in the cache."""
    batch, count, width = models.shape
    if picked is None and models.size <= PASS and width <= PIECE:
        return squared_norms(np, models - point[:, None, :])
    if picked is not None:  # These are gathered first, so that half as many fit the cache.
        count, turn = picked.shape[1], max(1, turn // 2)
    pieces = -(-width // PIECE)
    squared = np.empty((batch, count, pieces), dtype=models.dtype)
    length = -(-width // pieces)
    room = np.zeros((min(turn, count), pieces, length), dtype=models.dtype)
    flat = room.reshape(len(room), pieces * length)[:, :width]
    for b in range(batch):
        for start in range(0, count, turn):
            stop = min(start + turn, count)
            difference, row = room[: stop - start], flat[: stop - start]
            if picked is None:
                np.subtract(models[b, start:stop], point[b], out=row)
            else:
                np.take(models[b], picked[b, start:stop], axis=0, out=row, mode="clip")
                np.subtract(row, point[b], out=row)
            np.vecdot(difference, difference, out=squared[b, start:stop])
    return squared[:, :, 0] if pieces == 1 else np.add.reduce(squared, axis=-1)


def squares(vectors: Array) -> Array:
    """Squared norms of NumPy vectors [k, F], in pieces for which BLAS wakes no thread."""
    return _dots(vectors, vectors)


def _dots(vectors: Array, others: Array) -> Array:
    """Inner products of NumPy vectors [k, F] with others [k, F] or [F], piece by piece.

    The pieces are short, because NumPy leaves the interpreter to other threads only for more than 500 products.
    """
    width = vectors.shape[-1]
    if width <= PIECE:
        return np.vecdot(vectors, others)
    whole = width - width % SHORT_PIECE
    pieces = [array[..., :whole].reshape(*array.shape[:-1], -1, SHORT_PIECE) for array in (vectors, others)]
    return np.add.reduce(np.vecdot(*pieces), axis=-1) + np.vecdot(vectors[..., whole:], others[..., whole:])


@lru_cache(maxsize=4)
def _secret(width: int, dtype: Any) -> Array:
    """Return random factors that are secret to this process, so that no crafted values cancel under them."""
    rng = np.random.default_rng()
    factors = (rng.uniform(0.5, 1.5, width) * rng.choice((-1, 1), width)).astype(dtype)
    factors.setflags(write=False)
    return factors


def probe(models: Array, *, summed: bool = False) -> tuple[bool, Array | None]:
    """Return whether all NumPy `models` [B, k, F] are surely small, and with `summed` their sums [B, F].

    The projection of a model on random factors is never small if the model is not finite, and small with a probability
    of about 1e6 sqrt(F) / R if its norm is R. Both products read a model while it is in the cache.
    """
    batch, count, width = models.shape
    if not summed and models.size >= THREADED:
        return _probe_in_threads(models), None
    factors, ones = _secret(width, models.dtype), np.ones(count, dtype=models.dtype)
    total = np.empty((batch, width), dtype=models.dtype) if summed else None
    turn = max(1, CACHED // width)
    small = True
    for b in range(batch):
        for start in range(0, count, turn):
            some = models[b, start : start + turn]
            small = small and bool(np.all(np.abs(some @ factors) <= SMALL_PROJECTION))
            if total is not None and start == 0:
                np.matmul(ones[: len(some)], some, out=total[b])
            elif total is not None:
                total[b] += ones[: len(some)] @ some
    return small, total


def _probe_in_threads(models: Array) -> bool:
    """Probe NumPy models [B, k, F] in our own threads: those of BLAS would keep spinning."""
    factors = _secret(models.shape[2], models.dtype)
    small = np.zeros(models.shape[:2], dtype=bool)

    def work(first: int, last: int) -> None:
        for b, some in enumerate(models[:, first:last]):
            small[b, first:last] = np.abs(_dots(some, factors)) <= SMALL_PROJECTION

    in_threads(work, models.shape[1])
    return bool(np.all(small))


def gram_about(xp: Any, models: Array, point: Array) -> Array:
    """Inner products [B, k, k] of `models` [B, k, F] about `point` [B, F]: near models keep their digits."""
    if xp is np and models.shape[0] == 1:
        return _numpy_gram(models[0], point[0])[None]
    if xp is np and models.shape[0]:
        return np.stack([_numpy_gram(*pair) for pair in zip(models, point, strict=True)])
    # In other libraries one large product is best; memory is bounded by the caller's blocks.
    difference = models - point[:, None, :]
    return difference @ xp.matrix_transpose(difference)


def _numpy_gram(models: Array, point: Array) -> Array:
    count, width = models.shape
    if width <= COLUMNS:
        difference = models - point
        return difference @ difference.T
    total = np.zeros((count, count), dtype=models.dtype)
    product = np.empty_like(total)
    room = np.empty((count, min(width, COLUMNS)), dtype=models.dtype)
    for start in range(0, width, COLUMNS):
        stop = min(start + COLUMNS, width)
        difference = room[:, : stop - start]
        np.subtract(models[:, start:stop], point[start:stop], out=difference)
        total += np.matmul(difference, difference.T, out=product)
    return total


def mixtures_of(xp: Any, matrix: Array, own: Array, models: Array) -> Array:
    """Mixtures [B, n', F] of own [B, F] and models [B, k, F]; `matrix` [B, n', 1 + k]."""
    if xp is not np:
        return matrix[:, :, :1] * own[:, None, :] + matrix[:, :, 1:] @ models
    batch, count, width = models.shape
    out = np.empty((batch, matrix.shape[1], width), dtype=models.dtype)
    room = np.empty((count + 1, min(width, COLUMNS)), dtype=models.dtype)
    for b in range(batch):
        for start in range(0, width, COLUMNS):
            stop = min(start + COLUMNS, width)
            block = room[:, : stop - start]
            block[0], block[1:] = own[b, start:stop], models[b, :, start:stop]
            np.matmul(matrix[b], block, out=out[b, :, start:stop])
    return out


@dataclass(frozen=True)
class Pull:
    """How models are clipped: `factors` maps squared distances [k] to factors of the differences.

    `alone` says whether the factor of a model depends on its own distance only.
    """

    factors: Callable[[Array], Array]
    alone: bool


def clip_about(models: Array, point: Array, pull: Pull) -> tuple[Array, Array]:
    """Clip NumPy `models` [B, k, F] about `point` [B, F]; return squared distances [B, k] and all heads [B, 1 + k, F].

    The point itself comes first. Models are measured and moved while they are in the cache; if all distances must be
    known first and models are too many, they are copied and moved at the end.
    """
    batch, count, width = models.shape
    squared = np.empty((batch, count), dtype=models.dtype)
    out = np.empty((batch, count + 1, width), dtype=models.dtype)
    out[:, 0] = point
    turn = max(1, min(PASS // max(1, width), count))
    at_once = pull.alone or turn == count

    def work(first: int, last: int) -> None:
        for b in range(batch):
            for start in range(first, last, turn):
                stop = min(start + turn, last)
                some, moved = models[b, start:stop], out[b, start + 1 : stop + 1]
                np.subtract(some, point[b], out=moved)
                squared[b, start:stop] = distances = squares(moved)
                if at_once:
                    _replace(moved, some, point[b], pull.factors(distances))
                else:
                    moved[...] = some

    if models.size < THREADED:
        work(0, count)
    else:
        in_threads(work, count)
    if not at_once:
        for heads, distances in zip(out, squared, strict=True):
            _move(heads, pull.factors(distances))
    return squared, out


def pull_in(xp: Any, own: Array, models: Array, scale: Array) -> Array:
    """Own head [B, F] and models moved towards it: own + scale * (model - own), as [B, 1 + k, F]."""
    if xp is not np:
        moved = own[:, None, :] + scale[:, :, None] * (models - own[:, None, :])
        return xp.concat([own[:, None, :], moved], axis=1)
    batch, count, width = models.shape
    out = np.empty((batch, count + 1, width), dtype=models.dtype)
    out[:, 0], out[:, 1:] = own, models
    for heads, factors in zip(out, scale, strict=True):
        _move(heads, factors)
    return out


def _replace(differences: Array, models: Array, point: Array, factors: Array) -> None:
    """Write models moved by factors [k] over their differences [k, F] from the point."""
    moves = factors != 1
    if np.all(moves):
        np.multiply(differences, factors[:, None], out=differences)
        np.add(differences, point, out=differences)
        return
    for row, model, factor, moved in zip(differences, models, factors, moves.tolist(), strict=True):
        if moved:
            np.multiply(row, factor, out=row)
            np.add(row, point, out=row)
        else:
            row[...] = model


def _move(heads: Array, factors: Array) -> None:
    """Move heads [1 + k, F] towards the first of them by factors [k], where these are not 1."""
    moves = np.flatnonzero(factors != 1).tolist()
    own = heads[0]

    def work(first: int, last: int) -> None:
        for i in moves[first:last]:
            row = heads[1 + i]
            np.subtract(row, own, out=row)
            np.multiply(row, factors[i], out=row)
            np.add(row, own, out=row)

    if heads.size < THREADED:
        work(0, len(moves))
    else:
        in_threads(work, len(moves))
