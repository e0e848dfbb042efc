"""Arrays of any library that follows the Python array API standard, and what heads have in common."""

from bristle.arrays.draws import keyed_uniforms, uniforms
from bristle.arrays.namespace import Array, block_bytes, namespace, squared_norms, take_rows, to_numpy
from bristle.arrays.order import argsort, sort_rows, spread
from bristle.arrays.pool import Pool

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
