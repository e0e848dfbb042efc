"""Pulling models in towards a point, in as few passes over them as can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle.arrays.namespace import Array
from bristle.arrays.products import PASS, THREADED, squares
from bristle.arrays.threads import in_threads


@dataclass(frozen=True)
class Pull:
    """How far models are pulled in: `factors` makes of squared distances [k] what the differences are multiplied by.

    `alone` tells that the factor of a model depends on its own distance only.
    """

    factors: Callable[[Array], Array]
    alone: bool


def clip_about(models: Array, point: Array, pull: Pull) -> tuple[Array, Array]:
    """Pull NumPy `models` [B, k, F] in to `point` [B, F]: squared distances [B, k], and all written out [B, 1 + k, F].

    The point itself comes first. Models are measured and moved, some at a time, while they are in the cache; where
    all distances must be known first and there are more, models are copied as they are, and moved in the end.
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
