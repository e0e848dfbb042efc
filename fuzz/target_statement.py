"""A statement as bytes: `decode_statement`, of all encodings, plain and compressed.

The first byte chooses: its lowest bit between float16 and float32, bits 1 and 2 the rank, bit 3 whether zlib is
announced, bit 4 whether the rest is compressed before it is decoded, so that changes reach what is inside, and bit 5
int8, as live peers send it.
"""

from __future__ import annotations

import zlib

import numpy as np

from bristle.rules.evidence.statement import Statement, unfit
from bristle.wire.encoding import PLAIN, ZLIB, decode_statement, encode_statement
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import Encoding
from harness import BrokenPromiseError, Target

SHAPE = (4, 24)
ENCODINGS: dict[int, Encoding] = {0: "float16", 1: "float32", 32: "int8"}
_ANNOUNCED, _COMPRESSED, _INT8 = 8, 16, 32


def check(data: bytes) -> str:
    """Decode; what is taken is a statement that a rule takes, and can be written again."""
    choice, body = data[0] if data else 0, data[1:]
    if choice & _COMPRESSED:
        body = zlib.compress(body, 1)
    encoding, rank = ENCODINGS[choice & _INT8 or choice & 1], choice >> 1 & 3
    compression = ZLIB if choice & _ANNOUNCED else PLAIN
    statement = decode_statement(body, shape=SHAPE, rank=rank, encoding=encoding, compression=compression)
    if isinstance(statement, Refusal):
        return statement.value
    if (reason := unfit(statement, *SHAPE)) is not None or statement.factors is None or len(statement.factors) != rank:
        raise BrokenPromiseError(f"took a statement that is {reason}: {statement}")
    if statement.rows[statement.counts == 0].any():
        raise BrokenPromiseError(f"a row without a count holds something: {statement}")
    again = encode_statement(statement, encoding="float32", compress=False)
    heard = decode_statement(again, shape=SHAPE, rank=rank, encoding="float32", compression=PLAIN)
    # Numbers of 32 bits come back to the bit, but for those that are nothing beside the largest of their row.
    if isinstance(heard, Refusal) or not all(
        np.allclose(found, part, rtol=0, atol=2.0**-39 * float(np.abs(part).max(initial=0)))
        for found, part in zip(vars(heard).values(), vars(statement).values(), strict=True)
    ):
        raise BrokenPromiseError(f"{statement} became {heard}")
    # Rounding to int8 makes nothing that receivers refuse.
    small = encode_statement(statement, encoding="int8", compress=False)
    rounded = decode_statement(small, shape=SHAPE, rank=rank, encoding="int8", compression=PLAIN)
    if isinstance(rounded, Refusal) or (rounded.counts != statement.counts).any():
        raise BrokenPromiseError(f"{statement} in int8 became {rounded}")
    return "taken"


def seeds() -> dict[str, bytes]:
    """Return bodies of every kind."""
    rng = np.random.default_rng(0)
    made = {}
    for bits, encoding in ENCODINGS.items():
        for rank in (0, 3):
            counts = np.array([25, 0, 2 + rank, 1])
            statement = Statement(
                rng.normal(0, 5, SHAPE), counts, rng.normal(0, 1, (rank, SHAPE[1])), rng.random(SHAPE[1])
            )
            plain, choice = encode_statement(statement, encoding=encoding, compress=False), bits | rank << 1
            made[f"{encoding}-{rank}-plain"] = bytes([choice]) + plain
            made[f"{encoding}-{rank}-zlib"] = bytes([choice | _ANNOUNCED]) + zlib.compress(plain)
            made[f"{encoding}-{rank}-inside"] = bytes([choice | _ANNOUNCED | _COMPRESSED]) + plain
    return made


NOT_FINITE = b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f", b"\xff\xff\x7f\x7f", b"\x00\x7c"
TARGET = Target(name="statement", check=check, seeds=seeds, largest=2048, tokens=(*NOT_FINITE, b"\x00\x00\x00\x01"))
