"""Encoding of statements: float32, float16 or int8, plain or zlib. Heads have an encoding of their own, in `grid`.

Values of several bytes are written as byte planes (all first bytes, then all second ones, ...), which zlib compresses
better: the exponents stand together. The rows of a statement are scaled by powers of two, so that none overflows.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.rules.decision import Reason
from bristle.rules.evidence.statement import LARGEST, Statement, unfit
from bristle.wire.grid import inflate
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import COUNT_BYTES, VALUE_BYTES, Encoding, raw_statement_bytes

ENCODINGS: dict[int, Encoding] = {1: "float32", 2: "float16", 3: "grid", 4: "int8"}
ENCODING_CODES = {name: code for code, name in ENCODINGS.items()}
PLAIN, ZLIB = 0, 1
_TYPES: dict[Encoding, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}
_TOPS: dict[Encoding, int] = {"float32": 15, "float16": 15, "int8": 7}
"""The largest value of a row of a statement is stored as 2^(top - 1) or more, and less than 2^top."""

_FACTOR_TOP = 4
"""The same for factors in int8: they bear coarser steps than means, and are most of a statement."""

MOVED = 0.25
"""A feature counts as rounded away if encoding moves it by more than so many of its standard deviations."""

LOST = 0.25
"""The share of features that an encoding may round away."""

_MOST = 127
_LOWEST = -128
_UNFIT = {Reason.NOT_FINITE: Refusal.NOT_FINITE, Reason.TOO_LARGE: Refusal.TOO_LARGE}


def _planes(values: NDArray[Any]) -> bytes:
    planes: NDArray[np.uint8] = np.ascontiguousarray(values).reshape(-1, 1).view(np.uint8).T
    return planes.tobytes()


def _from_planes(raw: bytes, encoding: Encoding) -> NDArray[np.float32]:
    planes = np.frombuffer(raw, np.uint8).reshape(VALUE_BYTES[encoding], -1)
    return np.ascontiguousarray(planes.T).view(_TYPES[encoding]).astype(np.float32)


def _packed(raw: int, compression: int) -> int:
    return raw if compression == PLAIN else raw + (raw >> 10) + 64


def encode_statement(statement: Statement, *, encoding: Encoding = "float16", compress: bool = True) -> bytes:
    """Encode a statement: counts, exponents, and the rows of the classes with a count, the factors and the diagonal.

    Each row is divided by the power of two that brings its largest value to 2^14 or more and below 2^15. So nothing
    overflows; in float16 values have eleven binary digits, and those below 2^-28 of the largest of their row an error
    of at most 2^-39 of it. In int8 the largest value is brought to 64 or more, of factors to 8 or more, and values are
    rounded to whole numbers, at most 127; what is stored of the diagonal is its square root. The same statement makes
    the same bytes.

    Raises
    ------
    ValueError
        If the statement has no factors or no diagonal, or all peers would refuse it.
    """
    if encoding not in _TYPES:
        raise ValueError(f"the encoding of a statement must be one of {', '.join(_TYPES)}, not {encoding!r}")
    if statement.factors is None or statement.diagonal is None:
        raise ValueError("a statement that is shared has factors, of rank 0 if need be, and a diagonal")
    plain = statement.numpy()
    if (reason := unfit(plain, *plain.rows.shape)) is not None:
        raise ValueError(f"the statement would be {reason.words}")
    counts = np.asarray(plain.counts, dtype=">u4")
    diagonal = np.asarray(plain.diagonal)
    values = np.concatenate(
        [plain.rows[counts > 0], plain.factors, (np.sqrt(diagonal) if encoding == "int8" else diagonal)[None]]
    )
    tops = np.full(len(values), _TOPS[encoding])
    if encoding == "int8":
        tops[np.count_nonzero(counts) : -1] = _FACTOR_TOP
    exponents = np.maximum(np.frexp(np.abs(values).max(axis=1))[1] - tops, _LOWEST).astype(np.int8)
    scaled = np.ldexp(values, -exponents[:, None].astype(np.int32))
    if encoding == "int8":
        # What is rounded up must not become too large for receivers.
        bounds = np.append(np.full(len(values) - 1, LARGEST), np.sqrt(LARGEST))
        most = np.minimum(_MOST, np.ceil(np.ldexp(bounds, -exponents.astype(np.int32))) - 1)[:, None]
        scaled = np.rint(scaled).clip(-most, most)
    scaled = scaled.astype(_TYPES[encoding])
    raw = counts.tobytes() + exponents.tobytes() + _planes(scaled)
    return _deflated(raw, encoding) if compress else raw


def _deflated(raw: bytes, encoding: Encoding) -> bytes:
    # Bytes of int8 do not repeat in sequences: what counts is how often each comes.
    strategy = zlib.Z_HUFFMAN_ONLY if encoding == "int8" else zlib.Z_DEFAULT_STRATEGY
    deflater = zlib.compressobj(6, zlib.DEFLATED, 15, 8, strategy)
    return deflater.compress(raw) + deflater.flush()


def narrowest(statement: Statement) -> Encoding:
    """Return the smallest encoding that rounds away no more than a share LOST of a statement's features.

    It is int8 for most statements. The steps of a row in int8 are a sixty-fourth of its largest value, which is more
    than some features vary where they are in very different units, or far from zero. A feature is rounded away if its
    means (root mean square over classes) and its standard deviation move, together, by more than MOVED standard
    deviations.
    """
    rows, factors, diagonal = (np.asarray(part) for part in (statement.rows, statement.factors, statement.diagonal))
    here, rank = np.asarray(statement.counts) > 0, len(factors)
    spread = np.sqrt(diagonal + (factors**2).sum(axis=0))
    names: list[Encoding] = ["int8", "float16"]
    for name in names:
        body = encode_statement(statement, encoding=name, compress=False)
        read = decode_statement(body, shape=(len(rows), len(diagonal)), rank=rank, encoding=name, compression=PLAIN)
        if isinstance(read, Refusal):
            continue
        kept = np.sqrt(np.asarray(read.diagonal) + (np.asarray(read.factors) ** 2).sum(axis=0))
        moved = np.sqrt(((np.asarray(read.rows) - rows)[here] ** 2).mean(axis=0)) + np.abs(kept - spread)
        if (moved[spread > 0] > MOVED * spread[spread > 0]).sum() <= LOST * (spread > 0).sum():
            return name
    return "float32"


def largest_statement(shape: tuple[int, int], rank: int, encoding: Encoding, compression: int) -> int:
    """Return the largest valid body size of a statement with factors of a rank."""
    return _packed(raw_statement_bytes(*shape, present=shape[0], rank=rank, encoding=encoding), compression)


def decode_statement(
    body: bytes, *, shape: tuple[int, int], rank: int, encoding: Encoding, compression: int
) -> Statement | Refusal:
    """Decode a statement, or return why it is refused, in no more memory than one of that shape and rank takes."""
    classes, features = shape
    if encoding not in _TYPES:
        return Refusal.BAD_BODY
    most = raw_statement_bytes(*shape, present=classes, rank=rank, encoding=encoding)
    raw = inflate(body, most) if compression == ZLIB else body
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
    if encoding == "int8" and values[-1].min() < 0:
        return Refusal.BAD_BODY
    with np.errstate(over="ignore"):
        diagonal = values[-1] ** 2 if encoding == "int8" else values[-1]
    statement = Statement(rows, counts, values[len(here) : -1], diagonal)
    reason = unfit(statement, classes, features)
    return statement if reason is None else _UNFIT.get(reason, Refusal.BAD_BODY)
