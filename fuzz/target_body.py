"""A head as bytes: `decode_head`, of every encoding, plain and compressed.

The first byte chooses: its two lowest bits the encoding, bit 2 whether zlib is announced, and bit 3 whether the rest is
compressed before it is decoded, so that changes reach what is inside.
"""

from __future__ import annotations

import zlib

import numpy as np

from bristle.wire.encoding import ENCODINGS, PLAIN, ZLIB, decode_head, encode_head
from bristle.wire.refusal import Refusal
from harness import BrokenPromiseError, Target

SHAPE = (3, 40)
_ANNOUNCED, _COMPRESSED = 4, 8


def check(data: bytes) -> str:
    """Decode; what is taken is a finite float32 matrix of the right shape."""
    choice, body = data[0] if data else 0, data[1:]
    if choice & _COMPRESSED:
        body = zlib.compress(body, 1)
    encoding = ENCODINGS[1 + choice % 4 % len(ENCODINGS)]
    head = decode_head(body, shape=SHAPE, encoding=encoding, compression=ZLIB if choice & _ANNOUNCED else PLAIN)
    if isinstance(head, Refusal):
        return head.value
    if head.shape != SHAPE or head.dtype != np.float32 or not np.isfinite(head).all():
        raise BrokenPromiseError(f"took a head of {head.dtype} {head.shape}: {head}")
    return "taken"


def seeds() -> dict[str, bytes]:
    """Return bodies of every kind."""
    head = np.random.default_rng(0).normal(0, 0.1, SHAPE).astype(np.float32)
    made = {}
    for number, encoding in enumerate(("float32", "float16", "int8")):
        plain = encode_head(head, encoding=ENCODINGS[number + 1], compress=False)
        made[f"{encoding}-plain"] = bytes([number]) + plain
        made[f"{encoding}-zlib"] = bytes([number | _ANNOUNCED]) + zlib.compress(plain)
        made[f"{encoding}-inside"] = bytes([number | _ANNOUNCED | _COMPRESSED]) + plain
    return made


NOT_FINITE = b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f", b"\x00\x7c"
TARGET = Target(name="body", check=check, seeds=seeds, largest=4096, tokens=NOT_FINITE)
