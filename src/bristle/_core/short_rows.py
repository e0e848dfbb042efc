"""Count and order very many short rows."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from math import prod
from typing import Any

import array_api_compat
import numpy as np

from bristle._core.arrays import Array, namespace

_find_spec = lru_cache(maxsize=1)(find_spec)
# Longest rows for which kernels are used.
LONGEST = 128


def count_values(values: Array, kinds: int, dtype: Any) -> Array:
    """Count the integers 0, 1, .. in `values` [..., T]: [..., kinds]; negative values are ignored."""
    xp = namespace(values)
    if xp is np:
        # One pass, where one-hot vectors would take one per kind. Negative values have a cell of their own.
        rows = prod(values.shape[:-1])
        start = np.arange(1, rows * (kinds + 1) + 1, kinds + 1)
        cells = (values.reshape(rows, -1) + start[:, None]).ravel()
        counts = np.bincount(cells, minlength=rows * (kinds + 1)).reshape(*values.shape[:-1], kinds + 1)
        return counts[..., 1:].astype(dtype)
    if has_kernels(values) and values.shape[-1] <= LONGEST:
        return _count_on_device(values, kinds, dtype)
    values = xp.astype(values, xp.int64, copy=False)  # A small type would wrap around at many kinds.
    alike = values[..., None] == xp.arange(kinds, dtype=xp.int64, device=values.device)
    return xp.sum(xp.astype(alike, dtype), axis=-2)


def has_kernels(array: Array) -> bool:
    """Return whether an array is on a CUDA device for which kernels can be compiled."""
    return bool(array_api_compat.is_torch_array(array)) and array.device.type == "cuda" and bool(_find_spec("triton"))


def _count_on_device(values: Array, kinds: int, dtype: Any) -> Array:
    from bristle._core.device_kernels import count_kernel  # noqa: PLC0415

    width, rows = values.shape[-1], prod(values.shape[:-1])
    out = values.new_empty((*values.shape[:-1], kinds), dtype=dtype)
    if rows and width:
        block = _rows_for(_power(width))
        grid = (-(-rows // block),)
        sizes = {"ROWS": block, "WIDTH": _power(width), "KINDS": _power(kinds)}
        count_kernel[grid](values.contiguous(), out, rows, width, kinds, **sizes, num_warps=4)
        return out
    return out.zero_()


def order_on_device(values: Array) -> Array:
    """Return the stable ascending order of short rows [..., n] on a device that has kernels."""
    from bristle._core.device_kernels import order_kernel  # noqa: PLC0415

    width, rows = values.shape[-1], prod(values.shape[:-1])
    out = values.new_empty(values.shape, dtype=namespace(values).int64)
    if rows:
        block = _rows_for(_power(width) ** 2)
        order_kernel[(-(-rows // block),)](
            values.contiguous(), out, rows, width, ROWS=block, WIDTH=_power(width), num_warps=4
        )
    return out


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length() if number > 1 else 1


def _rows_for(numbers: int) -> int:
    """Return the number of rows, of so many numbers each, per program."""
    return max(1, min(64, 8192 // numbers))
