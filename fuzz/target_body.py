"""What is sent of a head: `decode_grid`, in full and as a difference.

The first byte chooses: its lowest bit whether there is a base, bit 1 whether the rest is compressed before it is
decoded, so that changes reach what is inside.
"""

from __future__ import annotations

import zlib

import numpy as np

from bristle.wire.grid import HIGHEST, LARGEST_STEPS, LOWEST, decode_grid, encode_grid, on_grid
from bristle.wire.refusal import Refusal
from harness import BrokenPromiseError, Target
from world import deflated

SHAPE = (3, 41)
_KNOWN, _COMPRESSED = 1, 2
BASE = on_grid(np.random.default_rng(0).normal(0, 0.1, SHAPE))


def check(data: bytes) -> str:
    """Decode; what is taken is on a grid, finite, and makes the same bytes when it is written and read again."""
    choice, body = data[0] if data else 0, data[1:]
    if choice & _COMPRESSED:
        body = deflated(body)
    base = BASE if choice & _KNOWN else None
    head = decode_grid(body, shape=SHAPE, base=base)
    if isinstance(head, Refusal):
        return head.value
    values = head.values()
    if values.shape != SHAPE or values.dtype != np.float32 or not np.isfinite(values).all():
        raise BrokenPromiseError(f"took a head of {values.dtype} {values.shape}: {values}")
    if (
        np.abs(head.steps).max() > LARGEST_STEPS
        or not LOWEST <= head.exponents.min() <= head.exponents.max() <= HIGHEST
    ):
        raise BrokenPromiseError(f"took a head off the grid: {head}")
    again = decode_grid(encode_grid(head, base), shape=SHAPE, base=base)
    if isinstance(again, Refusal) or again.content() != head.content():
        raise BrokenPromiseError(f"{head} is not what it is after writing and reading it again")
    return "taken"


def seeds() -> dict[str, bytes]:
    """Return bodies in full and as differences, small, large and on other grids."""
    rng = np.random.default_rng(1)
    made = {}
    for name, values in (
        ("rest", BASE.values()),
        ("small", BASE.values() + rng.normal(0, 0.01, SHAPE)),
        ("large", BASE.values() + rng.normal(0, 5, SHAPE)),
        ("one-large", np.where(np.arange(41) == 3, 1e6, BASE.values())),
        ("far", BASE.values() * 1e9),
    ):
        head = on_grid(values, BASE)
        for known, base in ((0, None), (_KNOWN, BASE)):
            body = encode_grid(head, base)
            made[f"{name}-{'difference' if known else 'full'}"] = bytes([known]) + body
            made[f"{name}-{'difference' if known else 'full'}-inside"] = bytes([known | _COMPRESSED]) + zlib.decompress(
                body, wbits=-15
            )
    return made


TARGET = Target(name="body", check=check, seeds=seeds, largest=4096)
