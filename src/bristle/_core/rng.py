"""Reproducible random draws: a key determines the numbers, on every machine and array library."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from bristle._core.arrays import Array, from_numpy, is_array

Floats = np.ndarray[Any, np.dtype[np.float64]]
_BITS = (1 << 64) - 1
_FIRST, _SECOND, _LANE = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


class Stream(IntEnum):
    """Purposes of draws. The first three are used in every iteration, the others rarely or by some worlds only."""

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
    return keyed_uniforms(seed, ids, _number(stream, iteration), size)


def keyed_uniforms(seed: int, peers: Array, iteration: int, size: int) -> Floats:
    """Draw uniforms in [0, 1) of shape [peers, size], each row keyed by (seed, peer, iteration).

    A peer's draws depend on no other peer, so that a world gives the same results in any batch size and on
    any number of workers.
    """
    drawn: Floats = uniforms_of(np, key_of(seed, iteration), np.asarray(peers, dtype=np.int64), size)
    return drawn


def stream_key(seed: int, stream: Stream, iteration: int) -> int:
    """Return the key of a stream in an iteration, as a signed 64-bit number, for `uniforms_of`."""
    return key_of(seed, _number(stream, iteration))


def key_of(seed: int, number: int) -> int:
    """Return the key of a seed and a number, as a signed 64-bit number."""
    return _signed(_mix_number(_mix_number(seed & _BITS) ^ number))


def uniforms_of(xp: Any, key: Any, ids: Array, size: int) -> Array:
    """Draw uniforms in [0, 1) of shape [ids, size], 64-bit, for 64-bit integers `ids` of NumPy or torch.

    A key in a tensor can change between replays of a captured graph.
    """
    where = {} if xp is np else {"device": ids.device}
    lanes = xp.arange(size, dtype=xp.int64, **where) * _signed(_LANE)
    bits = _shifted(_mix(_mix(ids ^ key)[:, None] + lanes[None, :]), 11)
    return (bits.astype(np.float64) if xp is np else bits.to(xp.float64)) * 2.0**-53


def uniforms(rng: Any, shape: tuple[int, ...], *, like: Array) -> Array:
    """Return uniforms in [0, 1) of `shape`, in the library and dtype of `like`.

    `rng` is a NumPy generator, or uniforms already drawn. `None` stands for a generator with a fixed seed, so that a
    call without `rng` is reproducible; a live peer always passes its own generator.
    """
    if rng is None:
        rng = np.random.default_rng(0)
    if isinstance(rng, np.random.Generator):
        return from_numpy(rng.random(shape), like=like, dtype=like.dtype)
    if not is_array(rng):
        raise ValueError(
            f"rng must be a numpy.random.Generator or an array of uniforms, not {type(rng).__name__}; "
            "make one with numpy.random.default_rng(seed)"
        )
    if tuple(rng.shape) != shape:
        raise ValueError(f"rng holds uniforms of shape {tuple(rng.shape)}, but {shape} are needed, one per model")
    return from_numpy(rng, like=like, dtype=like.dtype) if isinstance(rng, np.ndarray) else rng


def _number(stream: Stream, iteration: int) -> int:
    return 3 * iteration + stream if stream <= Stream.ATTACK else (int(stream) << 40) + iteration


def _mix(bits: Array) -> Array:
    """Scramble 64-bit integers (the SplitMix64 finaliser, Steele, Lea and Flood 2014); products wrap around."""
    bits = (bits ^ _shifted(bits, 30)) * _signed(_FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(_SECOND)
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Array, places: int) -> Array:
    """Shift to the right with zeros coming in: torch has signed integers only, whose sign would come in."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def _mix_number(bits: int) -> int:
    """Scramble one integer likewise: NumPy takes ten times as long for a single number."""
    bits = ((bits ^ (bits >> 30)) * _FIRST) & _BITS
    bits = ((bits ^ (bits >> 27)) * _SECOND) & _BITS
    return bits ^ (bits >> 31)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def draw_many(seed: int, stream: Stream, ids: Any, iteration: int, size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw 32-bit uniforms in [0, 1) of shape [ids, size], keyed as in `draw`: faster for long rows.

    A Philox generator (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) for each row.
    """
    return _philox("random", seed, stream, ids, iteration, size)


def draw_normals(
    seed: int, stream: Stream, ids: Any, iteration: int, size: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draw 32-bit normal deviates of shape [ids, size], as `draw_many` draws uniforms."""
    return _philox("standard_normal", seed, stream, ids, iteration, size)


def _philox(
    what: str, seed: int, stream: Stream, ids: Any, iteration: int, size: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    drawn, counter = np.empty((len(ids), size), dtype=np.float32), np.array([0, 0, 0, iteration], dtype=np.uint64)
    for row, peer in zip(drawn, np.asarray(ids, dtype=np.int64).tolist(), strict=True):
        key = np.array([seed & _BITS, (int(stream) << 56) + peer], dtype=np.uint64)
        getattr(np.random.Generator(np.random.Philox(key=key, counter=counter)), what)(out=row, dtype=np.float32)
    return drawn


def pick_distinct(draws: Floats, among: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Choose k distinct numbers below `among` for each row of `draws` [B, k], ascending and without bias.

    Floyd's algorithm (Bentley and Floyd, "A Sample of Brilliance", CACM 1987): O(B k^2), independent of `among`.
    """
    rows, count = draws.shape
    chosen = np.full((rows, count), -1, dtype=np.int64)
    for place, last in enumerate(range(among - count, among)):
        wanted = np.floor(draws[:, place] * (last + 1)).astype(np.int64)
        taken = (chosen[:, :place] == wanted[:, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, wanted)
    return np.sort(chosen, axis=1)
