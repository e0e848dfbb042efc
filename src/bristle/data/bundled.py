"""MNIST, complete, as part of the package, and the packed format it is stored in."""

import io
import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

import numpy as np
import numpy.typing as npt

from bristle.data.dataset import Dataset

Bytes = npt.NDArray[np.uint8]

CONTEXTS = 1 << 12
EDGES = (1, 3, 34, 92, 201, 252, 253)
BINS = np.searchsorted(EDGES, np.arange(256), side="right").astype(np.uint16)


@dataclass(frozen=True, eq=False)
class PackedImages:
    """Images in their packed form.

    Parameters
    ----------
    shape
        `(images, height, width)`.
    counts
        Number of pixels with each context, shape `[4096]`.
    parts
        The sorted pixels, as separately compressed `.xz` streams.
    """

    shape: tuple[int, int, int]
    counts: npt.NDArray[np.int64]
    parts: tuple[bytes, ...]


def unpack(packed: PackedImages) -> Bytes:
    """Return the images that `packaging/make_mnist.py` packed, bit for bit."""
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
            context = context_of(above2, above, current, column)
            _fill(pixels[row, column], current[column + 2], context, stream, start)
        above2, above, current = above, current, above2
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def context_of(
    above2: npt.NDArray[np.uint16],
    above: npt.NDArray[np.uint16],
    current: npt.NDArray[np.uint16],
    column: int,
) -> npt.NDArray[np.uint16]:
    """Return the context of one pixel position, for all images; rows are padded by two columns left and one right."""
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
        bins[where] = BINS[values[bright]]
    start[0] += quiet
    if len(busy):
        kinds = context[busy]
        order = np.argsort(kinds, kind="stable")
        per_kind = np.bincount(kinds, minlength=CONTEXTS)
        position = np.arange(len(busy)) + np.repeat(start - np.cumsum(per_kind) + per_kind, per_kind)
        where = busy[order]
        values = stream[position]
        pixels[where] = values
        bins[where] = BINS[values]
        start += per_kind


def _decompress(parts: Sequence[bytes]) -> Bytes:
    with ThreadPoolExecutor() as pool:  # the standard library's lzma lets other threads run meanwhile
        return np.frombuffer(b"".join(pool.map(lzma.decompress, parts)), dtype=np.uint8)


PARTS = 4


@lru_cache(maxsize=1)
def mnist() -> Dataset:
    """Return MNIST: 60,000 handwritten digits to train on and 10,000 to test on, 28 x 28, 8-bit grey.

    Read once per process (1 to 2 s) and then shared, hence the arrays are read-only.

    References
    ----------
    Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits, CC BY-SA 3.0.
    """
    return read_packed(resources.files("bristle.data") / "bundled_mnist", name="mnist")


def read_packed(folder: Traversable, *, name: str) -> Dataset:
    """Read the files of `packaging/make_mnist.py`; the arrays are read-only."""
    with np.load(io.BytesIO((folder / "index.npz").read_bytes()), allow_pickle=False) as index:
        labels, counts, shape = index["labels"], index["counts"], index["shape"]
        train_size = int(index["train_size"])
    packed = PackedImages(
        shape=(int(shape[0]), int(shape[1]), int(shape[2])),
        counts=counts.astype(np.int64),
        parts=tuple((folder / part_name(part)).read_bytes() for part in range(PARTS)),
    )
    by_class = unpack(packed)
    images = np.empty_like(by_class)
    images[class_order(labels)] = by_class
    digits = labels.astype(np.int64)
    images.flags.writeable = False
    digits.flags.writeable = False
    return Dataset(images[:train_size], digits[:train_size], images[train_size:], digits[train_size:], name=name)


def part_name(part: int) -> str:
    """Return the name of a file with images."""
    return f"images-{part + 1}.xz"


def class_order(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """Return the order in which images are packed: class by class."""
    return np.argsort(labels, kind="stable")
