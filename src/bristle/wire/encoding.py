"""Encoding of heads: float32, float16 or int8 with a scale per row; plain or zlib.

Values of several bytes are written as byte planes (all first bytes, then all second ones, ...), which zlib compresses
better: the exponents stand together.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.wire.refusal import Refusal
from bristle.wire.sizes import SCALE_BYTES, VALUE_BYTES, Encoding, raw_bytes

Head = NDArray[np.float32]

ENCODINGS: dict[int, Encoding] = {1: "float32", 2: "float16", 3: "int8"}
ENCODING_CODES = {name: code for code, name in ENCODINGS.items()}
PLAIN, ZLIB = 0, 1
_FLOATS: dict[Encoding, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
_STEPS = 127


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
    planes: NDArray[np.uint8] = narrowed.reshape(-1, 1).view(np.uint8).T
    return planes.tobytes()


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
    raw = raw_bytes(*shape, encoding)
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
    planes = np.frombuffer(raw, np.uint8).reshape(VALUE_BYTES[encoding], -1)
    values = np.ascontiguousarray(planes.T).view(_FLOATS[encoding]).astype(np.float32).reshape(shape)
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
