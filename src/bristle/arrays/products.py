"""Products over models that touch memory once: work goes block by block through the processor's cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from bristle.arrays.namespace import Array, squared_norms

# Columns at a time, so that a block of 64 models stays within a core's cache.
COLUMNS = 8192
# Numbers at a time in a pass over whole models.
PASS = 1 << 18


def distances_from(xp: Any, models: Array, point: Array) -> Array:
    """Squared Euclidean distances [B, k] of `models` [B, k, F] from `point` [B, F]."""
    _, count, width = models.shape
    turn = max(1, PASS // max(1, width))
    if xp is np:
        return _numpy_distances(models, point, turn)
    # Some models at a time bound the memory that the differences take.
    turns = [(start, min(start + turn, count)) for start in range(0, max(count, 1), turn)]
    parts = [squared_norms(xp, models[:, start:stop, :] - point[:, None, :]) for start, stop in turns]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


def _numpy_distances(models: Array, point: Array, turn: int) -> Array:
    """A few models at a time in memory that is used again: a difference is still in the cache when it is squared."""
    batch, count, width = models.shape
    squared = np.empty((batch, count), dtype=models.dtype)
    room = np.empty((min(turn, count), width), dtype=models.dtype)
    for b in range(batch):
        for start in range(0, count, turn):
            some = models[b, start : start + turn]
            difference = np.subtract(some, point[b], out=room[: len(some)])
            np.vecdot(difference, difference, out=squared[b, start : start + turn])
    return squared


def gram_about(xp: Any, models: Array, point: Array) -> Array:
    """Inner products [B, k, k] of `models` [B, k, F] about `point` [B, F]: near models keep their digits."""
    if xp is np and models.shape[0]:
        return np.stack([_numpy_gram(*pair) for pair in zip(models, point, strict=True)])
    # In other libraries one large product is best; memory is bounded by the caller's blocks.
    difference = models - point[:, None, :]
    return difference @ xp.matrix_transpose(difference)


def _numpy_gram(models: Array, point: Array) -> Array:
    count, width = models.shape
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


def pull_in(xp: Any, own: Array, models: Array, scale: Array) -> Array:
    """Own head [B, F] and models moved towards it: own + scale * (model - own), as [B, 1 + k, F]."""
    if xp is not np:
        moved = own[:, None, :] + scale[:, :, None] * (models - own[:, None, :])
        return xp.concat([own[:, None, :], moved], axis=1)
    batch, count, width = models.shape
    out = np.empty((batch, count + 1, width), dtype=models.dtype)
    out[:, 0] = own
    for b in range(batch):
        for row, model, factor in zip(out[b, 1:], models[b], scale[b], strict=True):
            if factor == 1:
                row[:] = model
            else:
                np.subtract(model, own[b], out=row)
                np.multiply(row, factor, out=row)
                np.add(row, own[b], out=row)
    return out
