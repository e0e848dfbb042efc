"""Random numbers of a world: a stream for each use, so that none depends on how much another one draws."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from bristle.arrays import keyed_uniforms

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Stream(IntEnum):
    """What draws are for. The first three are drawn in every iteration, the others seldom or by some worlds only."""

    BATCHES = 0
    MODELS = 1
    ATTACK = 2
    TOPOLOGY = 3
    PLACES = 4
    SCHEDULE = 5
    MESSAGES = 6
    SHIFT = 7
    SHARING = 8
    EVALUATED = 9


def draw(seed: int, stream: Stream, ids: Any, iteration: int, size: int) -> Floats:
    """Draw uniforms in [0, 1) of shape [ids, size], each row keyed by (seed, stream, id, iteration)."""
    key = 3 * iteration + stream if stream <= Stream.ATTACK else (int(stream) << 40) + iteration
    return keyed_uniforms(seed, np.asarray(ids, dtype=np.int64), key, size)


def draw_many(seed: int, stream: Stream, ids: Any, iteration: int, size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw 32-bit uniforms in [0, 1) of shape [ids, size], keyed as in `draw`: quicker where a row is long.

    A Philox generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) for each row.
    """
    drawn = np.empty((len(ids), size), dtype=np.float32)
    for row, peer in zip(drawn, np.asarray(ids, dtype=np.int64).tolist(), strict=True):
        _generator(seed, stream, peer, iteration).random(out=row, dtype=np.float32)
    return drawn


def draw_normals(
    seed: int, stream: Stream, ids: Any, iteration: int, size: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw 32-bit normal deviates of shape [ids, size], as `draw_many` draws uniforms."""
    drawn = np.empty((len(ids), size), dtype=np.float32)
    for row, peer in zip(drawn, np.asarray(ids, dtype=np.int64).tolist(), strict=True):
        _generator(seed, stream, peer, iteration).standard_normal(out=row, dtype=np.float32)
    return drawn


def _generator(seed: int, stream: Stream, peer: int, iteration: int) -> np.random.Generator:
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, (int(stream) << 56) + peer], dtype=np.uint64)
    counter = np.array([0, 0, 0, iteration], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def pick_distinct(draws: Floats, among: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Choose k distinct numbers below `among` for each row of `draws` [B, k], ascending and without bias.

    Floyd's algorithm (Bentley and Floyd, "A Sample of Brilliance", CACM 1987): O(B k^2), however many there are to
    choose from.
    """
    rows, count = draws.shape
    chosen = np.full((rows, count), -1, dtype=np.int64)
    for place, last in enumerate(range(among - count, among)):
        wanted = np.floor(draws[:, place] * (last + 1)).astype(np.int64)
        taken = (chosen[:, :place] == wanted[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, wanted)
    return np.sort(chosen, axis=1)
