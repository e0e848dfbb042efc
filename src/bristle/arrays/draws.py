"""Random draws that repeat: the same key gives the same numbers, on every machine and array library."""

from __future__ import annotations

from typing import Any

import numpy as np

from bristle.arrays.namespace import Array, from_numpy, is_array

_ALL = 0xFFFFFFFFFFFFFFFF
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def keyed_uniforms(seed: int, peers: Array, iteration: int, size: int) -> np.ndarray[Any, Any]:
    """Draw uniforms in [0, 1) of shape [peers, size], each row keyed by (seed, peer, iteration).

    A peer's draws depend on no other peer, so that a world gives the same results in any batch size and on
    any number of workers.
    """
    ids = np.asarray(peers, dtype=np.uint64)
    lanes = np.arange(size, dtype=np.uint64)
    key = np.uint64(_mixed(_mixed(seed & _ALL) ^ iteration))
    bits = _mix(_mix(ids ^ key)[:, None] + lanes[None, :] * np.uint64(0x9E3779B97F4A7C15))
    drawn: np.ndarray[Any, Any] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def uniforms(rng: Any, shape: tuple[int, ...], *, like: Array) -> Array:
    """Return uniforms in [0, 1) of `shape`, in the library and dtype of `like`.

    `rng` is a NumPy generator, or uniforms already drawn. `None` stands for a generator with a fixed seed:
    a call without randomness of its own repeats, and a live peer always passes its own generator.
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
        raise ValueError(f"rng holds uniforms of shape {tuple(rng.shape)}, but {shape} are needed, one a model")
    return from_numpy(rng, like=like, dtype=like.dtype) if isinstance(rng, np.ndarray) else rng


def _mix(bits: Any) -> Any:
    """Scramble arrays of 64-bit integers (the SplitMix64 finaliser, Steele, Lea and Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    return bits ^ (bits >> np.uint64(31))


def _mixed(bits: int) -> int:
    """Scramble one integer likewise: NumPy takes ten times as long for a single number."""
    bits = ((bits ^ (bits >> 30)) * _FIRST) & _ALL
    bits = ((bits ^ (bits >> 27)) * _SECOND) & _ALL
    return bits ^ (bits >> 31)
