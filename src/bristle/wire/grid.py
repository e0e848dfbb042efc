"""Public heads on a grid, and the difference between two of them in few bytes.

A peer shares its head rounded to a grid: whole numbers of steps, where the step of a row is a power of two. Its own
head stays as it is, so what is rounded away is not lost: the next public head is made of the exact one again. What
travels is the difference from a public head that the receiver has, in integers, so that everybody finds the same head
to the bit. `docs/wire-format.md` describes the bytes.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bristle.wire.refusal import Refusal

LARGEST_STEPS = 32_767
LOWEST, HIGHEST = -120, 100
"""Exponents of the step of a row: every number of steps then is a normal float32."""

_FINEST_NEEDED = 1 / 20
"""The step of a row as a share of the row's root mean square, at most: an error of 2 %."""

_COARSENESS = 2**0.5
"""The step of a row as a multiple of the root mean square of its change, at most: a bit and a half a number.

With 2, which saves another third, medians under attack lose three points of accuracy; with 1 nothing is gained.
"""

_RADIX: Final = {1: 255, 2: 15}
"""Digits that a byte holds, and the values of each: the middle one is 0, the outer ones announce a larger number."""

_BIAS = 128
_SMALLEST = 2.0**LOWEST
_FARTHEST = 16
"""Powers of two between two grids from which on nothing is foreseen."""

_MOST_BEYOND = 64
"""One number in so many may be too large for a digit of a pair; where there are more, a byte holds one digit."""

_PAIRS: Final = (np.stack(np.divmod(np.arange(256), 15), axis=1) - 7).astype(np.int8).view(np.int16).reshape(-1)
"""The two digits that each byte encodes, as two bytes of one number."""


@dataclass(frozen=True, eq=False)
class GridHead:
    """A head on a grid, as its peer shares it and all others receive it.

    Parameters
    ----------
    exponents : int8 array [..., C]
        The step of each row is 2 to the power of these.
    steps : int16 array [..., C, D]
        The head in steps.
    """

    exponents: NDArray[np.int8]
    steps: NDArray[np.int16]

    def __getitem__(self, place: int) -> GridHead:
        """Return one of several heads."""
        return GridHead(self.exponents[place], self.steps[place])

    def values(self) -> NDArray[np.float32]:
        """Return the head, exactly: steps times 2^exponent [..., C, D]."""
        return np.ldexp(self.steps.astype(np.float32), self.exponents.astype(np.int32)[..., None])

    def content(self) -> bytes:
        """Return the exponents, a byte each, and the steps, two bytes each, lower byte first: what is signed."""
        return self.exponents.tobytes() + np.ascontiguousarray(self.steps, dtype="<i2").tobytes()


def on_grid(head: NDArray[Any], previous: GridHead | None = None) -> GridHead:
    r"""Round a head to a grid: w_c becomes 2^e round(w_c / 2^e), with 2^e near min(‖w_c‖ / 20, √2 ‖w_c - p_c‖) / √D.

    p is the public head before this one; without one, only the first of the two counts. So the grid becomes finer as
    the head comes to rest, and what was rounded away before is part of the next difference.

    Parameters
    ----------
    head : array [..., C, D]
        Finite numbers.
    previous : GridHead, optional
        The public head before this one.

    Raises
    ------
    ValueError
        If the head holds numbers that are not finite, or too large for a grid.
    """
    values = np.asarray(head, dtype=np.float64)
    largest = np.abs(values).max(axis=-1, initial=0.0)
    if not np.isfinite(largest).all():
        raise ValueError("the head holds values that are not finite; they would be refused by every peer")
    if (largest >= 2.0**HIGHEST).any():
        raise ValueError(
            f"the head's largest value, {largest.max():.3g}, is beyond 2^{HIGHEST}; scale the features down"
        )
    wanted = _FINEST_NEEDED * _sizes(values)
    if previous is not None:
        change = _COARSENESS * _sizes(values - previous.values())
        wanted = np.where(change > 0, np.minimum(wanted, change), np.ldexp(1.0, previous.exponents.astype(np.int32)))
    exponents = np.rint(np.log2(np.maximum(wanted, _SMALLEST)))
    # A few numbers much larger than the others must fit, too.
    coarse = np.ceil(np.log2(np.maximum(largest / LARGEST_STEPS, _SMALLEST)))
    exponents = np.clip(np.maximum(exponents, coarse), LOWEST, HIGHEST).astype(np.int8)
    steps = np.rint(np.ldexp(values, -exponents.astype(np.int32)[..., None])).astype(np.int16)
    return GridHead(exponents, steps)


def _sizes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root mean square of each row."""
    sizes: NDArray[np.float64] = np.sqrt(np.einsum("...d,...d->...", rows, rows) / rows.shape[-1])
    return sizes


def encode_grid(head: GridHead, base: GridHead | None) -> bytes:
    """Encode a public head as the difference from another one; None: from zero."""
    difference = (head.steps - _foreseen(base, head.exponents, head.steps.shape)).reshape(-1)
    beyond = int(np.count_nonzero(np.abs(difference) >= _RADIX[2] // 2))
    return _deflated(head.exponents, difference, 2 if beyond * _MOST_BEYOND <= difference.size else 1)


def largest_grid_body(shape: tuple[int, int]) -> int:
    """Return the largest size of the body of a head: that of numbers that do not compress at all."""
    raw = _largest_raw(shape)
    return raw + (raw >> 10) + 64


def _largest_raw(shape: tuple[int, int]) -> int:
    """One byte for the number of digits, one for each exponent, three for each number."""
    classes, features = shape
    return 1 + classes + 3 * classes * features


def decode_grid(body: bytes, *, shape: tuple[int, int], base: GridHead | None) -> GridHead | Refusal:
    """Decode a public head from its difference from the base, in no more memory than some heads of that shape take."""
    raw = inflate(body, _largest_raw(shape), window=-15)
    if isinstance(raw, Refusal):
        return raw
    classes, features = shape
    digits = raw[0] if raw else 0
    start, size = 1 + classes, classes * features
    end = start + -(-size // digits) if digits in _RADIX else 0
    if not start < end <= len(raw):
        return Refusal.BAD_BODY
    exponents = np.frombuffer(raw, np.uint8, classes, 1).astype(np.int16) - _BIAS
    packed = np.frombuffer(raw, np.uint8, end - start, start)
    if exponents.min() < LOWEST or exponents.max() > HIGHEST or packed.max() >= _RADIX[digits] ** digits:
        return Refusal.BAD_BODY
    # A byte holds each digit: from 0 on in the one case, about 0 in the other.
    written = _PAIRS.take(packed).view(np.int8) if digits == 2 else (packed - np.uint8(127)).view(np.int8)
    outer = _RADIX[digits] // 2
    beyond = np.flatnonzero(np.abs(written[:size]) == outer)
    if len(raw) != end + 2 * len(beyond) or written[size:].any():
        return Refusal.BAD_BODY
    kept = exponents.astype(np.int8)
    steps = _foreseen(base, kept, shape)
    flat = steps.reshape(-1)
    flat += written[:size]
    if len(beyond):
        planes = np.frombuffer(raw, np.uint8, offset=end).reshape(2, -1).astype(np.int32)
        flat[beyond] += np.sign(written[beyond]) * (planes[0] + 256 * planes[1])
    if max(flat.max(), -flat.min()) > LARGEST_STEPS:
        return Refusal.BAD_BODY
    return GridHead(kept, steps.astype(np.int16))


def inflate(body: bytes, most: int, *, window: int = zlib.MAX_WBITS) -> bytes | Refusal:
    """Unpack zlib (deflate with a negative `window`), or refuse; nothing beyond `most` bytes is ever unpacked."""
    inflater = zlib.decompressobj(window)
    try:
        raw = inflater.decompress(body, most + 1)
    except zlib.error:
        return Refusal.BAD_BODY
    if len(raw) > most:
        return Refusal.BOMB
    return raw if inflater.eof and not inflater.unused_data else Refusal.BAD_BODY


def _foreseen(base: GridHead | None, exponents: NDArray[np.int8], shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Return the steps of a base on another grid [C, D]: rounded half up, and 0 where the grids are too far apart."""
    if base is None:
        return np.zeros(shape, np.int32)
    steps = base.steps.astype(np.int32)
    for row in np.flatnonzero(exponents != base.exponents):
        coarser = int(exponents[row]) - int(base.exponents[row])
        if abs(coarser) >= _FARTHEST:
            steps[row] = 0
        elif coarser > 0:
            steps[row] = (steps[row] + (1 << coarser >> 1)) >> coarser
        else:
            steps[row] = np.clip(steps[row] << -coarser, -LARGEST_STEPS, LARGEST_STEPS)
    return steps


def _deflated(exponents: NDArray[np.int8], difference: NDArray[np.int32], digits: int) -> bytes:
    """Return the body with so many digits in a byte."""
    radix = _RADIX[digits]
    outer = radix // 2
    places = np.full(-(-difference.size // digits) * digits, outer, np.uint8)
    places[: difference.size] = difference.clip(-outer, outer) + outer
    packed = places[0::2] * np.uint8(radix) + places[1::2] if digits == 2 else places
    beyond = np.flatnonzero(np.abs(difference) >= outer)
    rest = (np.abs(difference[beyond]) - outer).astype("<u2")
    plain = b"".join(
        (
            bytes([digits]),
            (exponents.astype(np.int16) + _BIAS).astype(np.uint8).tobytes(),
            packed.tobytes(),
            rest.view(np.uint8).reshape(-1, 2).T.tobytes(),
        )
    )
    # What counts is how often each byte comes; there are no repetitions to look for.
    deflater = zlib.compressobj(6, zlib.DEFLATED, -13, 7, zlib.Z_HUFFMAN_ONLY)
    return deflater.compress(plain) + deflater.flush()
