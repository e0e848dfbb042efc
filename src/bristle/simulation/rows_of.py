"""Some of the peers: taking their rows from arrays, and putting rows back."""

from __future__ import annotations

import numpy as np

from bristle.arrays import Array, namespace
from bristle.arrays.namespace import from_numpy
from bristle.simulation.topology import Integers


def rows_of(values: Array, rows: Integers | None) -> Array:
    """Return `values[rows]`, in any library; None: all of them."""
    if rows is None:
        return values
    return namespace(values).take(values, from_numpy(rows, like=values), axis=0)


def replaced(values: Array, rows: Integers | None, new: Array) -> Array:
    """Return `values` with `new` in the place of `rows` (None: of all); nothing is overwritten."""
    if rows is None:
        return new
    count = int(values.shape[0])
    source = np.arange(count)
    source[rows] = count + np.arange(len(rows))
    xp = namespace(values)
    return xp.take(xp.concat([values, new], axis=0), from_numpy(source, like=values), axis=0)
