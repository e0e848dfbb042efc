"""Small files of small grey images: pixels sorted by what surrounds them, then LZMA.

The context of a pixel is made of six neighbours that come before it in reading order, each reduced to a few
brightness bins::

                 NN(1 bit)
    NW(2) N(3)   NE(2)
    WW(1) W(3)   pixel          context = 12 bits

Pixels with the same context are put next to each other, ordered by position and then by image, so that
LZMA's adaptive coder sees one slowly changing distribution after another. The decoder walks over the
positions and handles all images at once; it needs NumPy and the standard library, and no table but
the number of pixels per context.

This is lossless for any 8-bit images; the bins were chosen for MNIST.
"""

import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_CONTEXTS = 1 << 12
_EDGES = (1, 3, 34, 92, 201, 252, 253)
_BIN = np.searchsorted(_EDGES, np.arange(256), side="right").astype(np.uint16)
# No literal or position context: the neighbours of a byte in a stream are other images. Matches only serve
# runs of zeros, so the smallest dictionary is also the best one.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0, "dict_size": 1 << 12, "nice_len": 273}]


@dataclass(frozen=True, eq=False)
class PackedImages:
    """Images in their packed form.

    Parameters
    ----------
    shape
        `(images, height, width)`.
    counts
        How many pixels have each context, shape `[4096]`.
    parts
        The sorted pixels, cut into separately compressed `.xz` streams.
    """

    shape: tuple[int, int, int]
    counts: npt.NDArray[np.int64]
    parts: tuple[bytes, ...]


def pack(images: Bytes, *, parts: int = 1) -> PackedImages:
    """Pack 8-bit grey images `[images, height, width]`; similar images should be neighbours.

    Parameters
    ----------
    images
        What to pack.
    parts
        Number of streams of about the same compressed size.
    """
    if images.dtype != np.uint8 or images.ndim != 3:
        raise ValueError(f"pack takes uint8 images [images, height, width], not {images.dtype} {images.shape}")
    count, height, width = images.shape
    pixels = np.ascontiguousarray(images.transpose(1, 2, 0))
    bins = np.zeros((height + 2, width + 3, count), dtype=np.uint16)
    bins[2:, 2:-1] = _BIN[pixels]
    contexts = np.empty(pixels.shape, dtype=np.uint16)
    for row in range(height):
        for column in range(width):
            contexts[row, column] = _context(bins[row], bins[row + 1], bins[row + 2], column)
    stream = pixels.ravel()[np.argsort(contexts.ravel(), kind="stable")]
    # Zeros cost next to nothing: equal numbers of other pixels make parts of about equal size.
    weight = np.cumsum(stream != 0)
    targets = weight[-1] * np.arange(1, parts) / parts if weight.size else np.zeros(parts - 1)
    pieces = np.split(stream, np.searchsorted(weight, targets))
    return PackedImages(
        shape=(count, height, width),
        counts=np.bincount(contexts.ravel(), minlength=_CONTEXTS),
        parts=tuple(lzma.compress(piece.tobytes(), filters=_FILTERS) for piece in pieces),
    )


def unpack(packed: PackedImages) -> Bytes:
    """Give back the images that `pack` was given, bit for bit."""
    count, height, width = packed.shape
    stream = _decompress(packed.parts)
    if len(stream) != count * height * width or packed.counts.sum() != len(stream):
        raise ValueError(f"packed images do not fit their shape {packed.shape}: make the files again")
    start = np.cumsum(packed.counts) - packed.counts
    pixels = np.zeros((height, width, count), dtype=np.uint8)
    # Bins of the row being read and the two above it; rows move up by exchanging names.
    above2, above, current = np.zeros((3, width + 3, count), dtype=np.uint16)
    for row in range(height):
        current[:] = 0
        for column in range(width):
            context = _context(above2, above, current, column)
            _fill(pixels[row, column], current[column + 2], context, stream, start)
        above2, above, current = above, current, above2
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _context(
    above2: npt.NDArray[np.uint16],
    above: npt.NDArray[np.uint16],
    current: npt.NDArray[np.uint16],
    column: int,
) -> npt.NDArray[np.uint16]:
    """Context of one pixel position, for all images; rows are padded by two columns left and one right."""
    at = column + 2
    west, north = current[at - 1], above[at]
    diagonal = (above[at - 1] >> 1) << 6 | (above[at + 1] >> 1) << 8
    far = (current[at - 2] >> 2) << 10 | (above2[at] >> 2) << 11
    context: npt.NDArray[np.uint16] = west | north << 3 | diagonal | far
    return context


def _fill(
    pixels: Bytes,
    bins: npt.NDArray[np.uint16],
    context: npt.NDArray[np.uint16],
    stream: Bytes,
    start: npt.NDArray[np.int64],
) -> None:
    """Read the pixels of one position from the streams of their contexts, and move `start` on.

    Context 0 (nothing but black around) holds most pixels, nearly all of them black: it is taken
    apart, so that the sort sees only the rest.
    """
    lit = context != 0  # NumPy finds positions in booleans several times faster than in integers
    busy = np.flatnonzero(lit)
    quiet = len(context) - len(busy)
    values = stream[start[0] : start[0] + quiet]
    bright = np.flatnonzero(values != 0)
    if len(bright):
        where = np.flatnonzero(~lit)[bright]
        pixels[where] = values[bright]
        bins[where] = _BIN[values[bright]]
    start[0] += quiet
    if len(busy):
        kinds = context[busy]
        order = np.argsort(kinds, kind="stable")
        per_kind = np.bincount(kinds, minlength=_CONTEXTS)
        position = np.arange(len(busy)) + np.repeat(start - np.cumsum(per_kind) + per_kind, per_kind)
        where = busy[order]
        values = stream[position]
        pixels[where] = values
        bins[where] = _BIN[values]
        start += per_kind


def _decompress(parts: Sequence[bytes]) -> Bytes:
    with ThreadPoolExecutor() as pool:  # the standard library's lzma lets other threads run meanwhile
        return np.frombuffer(b"".join(pool.map(lzma.decompress, parts)), dtype=np.uint8)
