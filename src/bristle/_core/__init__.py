"""Common to all packages: arrays of any library, sorting, linear algebra, random draws, checks, files, registries."""

from bristle._core.arrays import Array, Pool, block_bytes, namespace, squared_norms, take_rows, to_numpy
from bristle._core.rng import keyed_uniforms, uniforms
from bristle._core.sorting import argsort, sort_rows, spread

__all__ = [
    "Array",
    "Pool",
    "argsort",
    "block_bytes",
    "keyed_uniforms",
    "namespace",
    "sort_rows",
    "spread",
    "squared_norms",
    "take_rows",
    "to_numpy",
    "uniforms",
]
