"""One interface to NumPy, torch, CuPy, JAX and every other array API library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

# The standard defines what an array can do, not a class that all libraries share.
Array = Any

CPU_BLOCK_BYTES = 64 << 20
DEVICE_BLOCK_BYTES = 2 << 30


def namespace(*arrays: Array) -> Any:
    """Return the array API namespace that all `arrays` belong to."""
    for array in arrays:
        if type(array) is not np.ndarray:
            return array_api_compat.array_namespace(*arrays)
    return np  # NumPy 2 follows the standard by itself, and the shortcut saves microseconds a call.


def is_array(value: object) -> bool:
    """Return whether `value` is an array of a supported library."""
    return type(value) is np.ndarray or bool(array_api_compat.is_array_api_obj(value))


def on_cpu(array: Array) -> bool:
    """Return whether `array` is in CPU memory."""
    return type(array) is np.ndarray or "cpu" in str(array_api_compat.device(array)).lower()


def block_bytes(array: Array) -> int:
    """Return the budget of working memory for one block of work on `array`'s device, in bytes."""
    return CPU_BLOCK_BYTES if on_cpu(array) else DEVICE_BLOCK_BYTES


def from_numpy(values: np.ndarray[Any, Any], *, like: Array, dtype: Any = None) -> Array:
    """Convert a NumPy array to the library and device of `like`."""
    xp = namespace(like)
    if xp is np:
        return values if dtype is None else values.astype(dtype, copy=False)
    # Arrays from packets are read-only, which other libraries do not support.
    values = values if values.flags.writeable else values.copy()
    return xp.asarray(values, dtype=dtype, device=array_api_compat.device(like))


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Convert an array of any library to NumPy, copying it to CPU memory if needed."""
    if type(array) is np.ndarray:
        return array
    if array_api_compat.is_torch_array(array):
        array = array.detach()
    cpu = array_api_compat.to_device(array, "cpu") if not on_cpu(array) else array
    return np.asarray(cpu)


def reshape(xp: Any, array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array in another shape; NumPy's own method is a microsecond faster."""
    return array.reshape(shape) if xp is np else xp.reshape(array, shape)


def largest(xp: Any, values: Array) -> float:
    """Return the largest of all values."""
    return float(np.maximum.reduce(values, axis=None) if xp is np else xp.max(values))


def at_least(xp: Any, values: Array, least: float) -> Array:
    """Return the maximum of each value and `least`."""
    return np.maximum(values, least) if xp is np else xp.where(values > least, values, xp.full_like(values, least))


def row_sums(xp: Any, values: Array) -> Array:
    """Return the sums over the last axis, which is kept with length 1."""
    return np.add.reduce(values, axis=-1, keepdims=True) if xp is np else xp.sum(values, axis=-1, keepdims=True)


def diagonals(xp: Any, matrices: Array) -> Array:
    """Return the diagonals [..., n] of matrices [..., n, n]."""
    return matrices.diagonal(axis1=-2, axis2=-1) if xp is np else xp.linalg.diagonal(matrices)


def squared_norms(xp: Any, vectors: Array) -> Array:
    """Return the squared Euclidean norm over the last axis.

    Overflow gives infinity and a NaN gives NaN, so that one comparison finds all unusable vectors.
    """
    if xp is np:
        return np.vecdot(vectors, vectors)
    norms = xp.linalg.vector_norm(vectors, axis=-1)
    return norms * norms


def take_rows(xp: Any, values: Array, index: Array) -> Array:
    """Gather along axis 1: `out[b, j] = values[b, index[b, j]]` for `values` [B, n, ...], `index` [B, m]."""
    if values.shape[0] == 1:
        return xp.take(values, index[0, :], axis=1)
    batch = xp.arange(values.shape[0], device=array_api_compat.device(values))
    flat = xp.reshape(values, (values.shape[0] * values.shape[1], *values.shape[2:]))
    rows = xp.reshape(index + batch[:, None] * values.shape[1], (-1,))
    return xp.reshape(xp.take(flat, rows, axis=0), (*index.shape, *values.shape[2:]))


@dataclass(frozen=True)
class Pool:
    """Heads that are stored once, and for each receiver the positions of those that it received.

    Parameters
    ----------
    heads : array [P, C, D]
        One head per sender.
    index : integer array [..., M]
        Positions of each receiver's heads. Pass a mask to the call for receivers with fewer than M.
    """

    heads: Array
    index: Array

    def gather(self) -> Array:
        """Return the equivalent plain array [..., M, C, D]: a copy per receiver."""
        return self.heads[self.index, ...]
