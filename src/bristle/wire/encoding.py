"""Encoding of heads and statements: float32, float16 or, for heads, int8 with a scale per row; plain or zlib.

Values of several bytes are written as byte planes (all first bytes, then all second ones, ...), which zlib compresses
better: the exponents stand together. The rows of a statement are scaled by powers of two, so that none overflows.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.rules.decision import Reason
from bristle.rules.evidence.statement import Statement, unfit
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import (
    COUNT_BYTES,
    SCALE_BYTES,
    VALUE_BYTES,
    Encoding,
    raw_bytes,
    raw_statement_bytes,
)

Head = NDArray[np.float32]

ENCODINGS: dict[int, Encoding] = {1: "float32", 2: "float16", 3: "int8"}
ENCODING_CODES = {name: code for code, name in ENCODINGS.items()}
PLAIN, ZLIB = 0, 1
_FLOATS: dict[Encoding, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
_STEPS = 127
_TOP = 15
"""The largest value of a row of a statement is stored as 2^14 or more, and less than 2^15."""

_LOWEST = -128
_UNFIT = {Reason.NOT_FINITE: Refusal.NOT_FINITE, Reason.TOO_LARGE: Refusal.TOO_LARGE}


def encode_head(head: NDArray[Any], *, encoding: Encoding, compress: bool) -> bytes:
    """Encode a head.

    Raises
    ------
    ValueError
        If the head is not a finite matrix, or has values out of the encoding's range.
    """
    if encoding not in ENCODING_CODES:
        raise ValueError(f"encoding must be one of {', '.join(ENCODING_CODES)}, not {encoding!r}")
    if head.ndim != 2:
        raise ValueError(f"a head has two axes, classes and features, not shape {head.shape}")
    with np.errstate(over="ignore"):
        values = np.asarray(head, dtype="<f4")
    if not np.isfinite(values).all():
        raise ValueError("the head holds values that are not finite; they would be refused by every peer")
    raw = _encode_int8(values) if encoding == "int8" else _encode_float(values, encoding)
    return zlib.compress(raw) if compress else raw


def _encode_float(values: Head, encoding: Encoding) -> bytes:
    with np.errstate(over="ignore"):
        narrowed = values.astype(_FLOATS[encoding])
    if not np.isfinite(narrowed).all():
        raise ValueError(f"the head's largest value, {np.abs(values).max():.3g}, does not fit {encoding}; use float32")
    return _planes(narrowed)


def _planes(values: NDArray[Any]) -> bytes:
    planes: NDArray[np.uint8] = np.ascontiguousarray(values).reshape(-1, 1).view(np.uint8).T
    return planes.tobytes()


def _from_planes(raw: bytes, encoding: Encoding) -> Head:
    planes = np.frombuffer(raw, np.uint8).reshape(VALUE_BYTES[encoding], -1)
    return np.ascontiguousarray(planes.T).view(_FLOATS[encoding]).astype(np.float32)


def _encode_int8(values: Head) -> bytes:
    # The smallest scale is a normal number, so that dividing by it neither overflows nor loses the value.
    largest: Head = np.abs(values).max(axis=1, keepdims=True)
    scales = np.maximum(largest / _STEPS, np.finfo(np.float32).tiny).astype(_FLOATS["float32"])
    with np.errstate(over="ignore"):  # Rounded up, the largest number's scale would lead beyond it.
        scales = np.where(np.isfinite(scales * _STEPS), scales, np.nextafter(scales, 0, dtype=np.float32))
    steps: NDArray[np.int8] = np.clip(np.rint(values / scales), -_STEPS, _STEPS).astype(np.int8)
    return bytes(scales.tobytes()) + steps.tobytes()


def largest_body(shape: tuple[int, int], encoding: Encoding, compression: int) -> int:
    """Return the largest valid body size: zlib adds at most about a thousandth to incompressible data."""
    return _packed(raw_bytes(*shape, encoding), compression)


def _packed(raw: int, compression: int) -> int:
    return raw if compression == PLAIN else raw + (raw >> 10) + 64


def decode_head(body: bytes, *, shape: tuple[int, int], encoding: Encoding, compression: int) -> Head | Refusal:
    """Decode a head, or return why it is refused, in no more memory than a head of that shape takes."""
    expected = raw_bytes(*shape, encoding)
    raw = _inflate(body, expected) if compression == ZLIB else body
    if isinstance(raw, Refusal):
        return raw
    if len(raw) != expected:
        return Refusal.BAD_BODY
    if encoding == "int8":
        return _decode_int8(raw, shape)
    values = _from_planes(raw, encoding).reshape(shape)
    return values if np.isfinite(values).all() else Refusal.NOT_FINITE


def _inflate(body: bytes, expected: int) -> bytes | Refusal:
    inflater = zlib.decompressobj()
    try:
        # One byte more than expected tells a bomb; what lies beyond is never unpacked.
        raw = inflater.decompress(body, expected + 1)
    except zlib.error:
        return Refusal.BAD_BODY
    if len(raw) > expected:
        return Refusal.BOMB
    return raw if inflater.eof and not inflater.unused_data else Refusal.BAD_BODY


def _decode_int8(raw: bytes, shape: tuple[int, int]) -> Head | Refusal:
    classes = shape[0]
    scales = np.frombuffer(raw, "<f4", classes).reshape(-1, 1)
    if not (np.isfinite(scales) & (scales >= 0)).all():
        return Refusal.NOT_FINITE
    steps = np.frombuffer(raw, np.int8, offset=SCALE_BYTES * classes).reshape(shape)
    with np.errstate(over="ignore"):
        values = (steps * scales).astype(np.float32)
    return values if np.isfinite(values).all() else Refusal.NOT_FINITE


def encode_statement(statement: Statement, *, encoding: Encoding = "float16", compress: bool = True) -> bytes:
    """Encode a statement: counts, exponents, and the rows of the classes with a count, the factors and the diagonal.

    Each row is divided by the power of two that brings its largest value to 2^14 or more and below 2^15. So nothing
    overflows; in float16 values have eleven binary digits, and those below 2^-28 of the largest of their row an error
    of at most 2^-39 of it. The same statement makes the same bytes.

    Raises
    ------
    ValueError
        If the statement has no factors or no diagonal, or would be refused by everybody.
    """
    if encoding not in _FLOATS:
        raise ValueError(f"the encoding of a statement must be one of {', '.join(_FLOATS)}, not {encoding!r}")
    if statement.factors is None or statement.diagonal is None:
        raise ValueError("a statement that is shared has factors, of rank 0 if need be, and a diagonal")
    plain = statement.numpy()
    if (reason := unfit(plain, *plain.rows.shape)) is not None:
        raise ValueError(f"the statement would be {reason.words}")
    counts = np.asarray(plain.counts, dtype=">u4")
    values = np.concatenate([plain.rows[counts > 0], plain.factors, np.asarray(plain.diagonal)[None]])
    exponents = np.maximum(np.frexp(np.abs(values).max(axis=1))[1] - _TOP, _LOWEST).astype(np.int8)
    scaled = np.ldexp(values, -exponents[:, None].astype(np.int32)).astype(_FLOATS[encoding])
    raw = counts.tobytes() + exponents.tobytes() + _planes(scaled)
    return zlib.compress(raw) if compress else raw


def largest_statement(shape: tuple[int, int], rank: int, encoding: Encoding, compression: int) -> int:
    """Return the largest valid body size of a statement with factors of a rank."""
    return _packed(raw_statement_bytes(*shape, present=shape[0], rank=rank, encoding=encoding), compression)


def decode_statement(
    body: bytes, *, shape: tuple[int, int], rank: int, encoding: Encoding, compression: int
) -> Statement | Refusal:
    """Decode a statement, or return why it is refused, in no more memory than one of that shape and rank takes."""
    classes, features = shape
    if encoding not in _FLOATS:
        return Refusal.BAD_BODY
    most = raw_statement_bytes(*shape, present=classes, rank=rank, encoding=encoding)
    raw = _inflate(body, most) if compression == ZLIB else body
    if isinstance(raw, Refusal):
        return raw
    start = COUNT_BYTES * classes
    if len(raw) < start:
        return Refusal.BAD_BODY
    counts = np.frombuffer(raw, ">u4", classes).astype(np.int64)
    here = np.flatnonzero(counts)
    if len(raw) != raw_statement_bytes(*shape, present=len(here), rank=rank, encoding=encoding):
        return Refusal.BAD_BODY
    lines = len(here) + rank + 1
    exponents = np.frombuffer(raw, np.int8, lines, start).astype(np.int32)
    stored = _from_planes(raw[start + lines :], encoding).reshape(lines, features)
    if not np.isfinite(stored).all():
        return Refusal.NOT_FINITE
    with np.errstate(over="ignore"):
        values = np.ldexp(stored, exponents[:, None])
    if not np.isfinite(values).all():
        return Refusal.TOO_LARGE
    rows = np.zeros(shape, np.float32)
    rows[here] = values[: len(here)]
    statement = Statement(rows, counts, values[len(here) : -1], values[-1])
    reason = unfit(statement, classes, features)
    return statement if reason is None else _UNFIT.get(reason, Refusal.BAD_BODY)
