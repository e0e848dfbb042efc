"""MNIST, complete, as part of the package, and the packed format it is stored in."""

import io
import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bristle.data.dataset import Dataset, check_labels
from bristle.data.npz import read_arrays

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


_PARTS = 4


@lru_cache(maxsize=1)
def mnist() -> Dataset:
    """Handwritten digits, 60,000 to train on and 10,000 to test on, 28 x 28, 8-bit grey.

    Read once per process (1 to 2 s) and then shared, hence the arrays are read-only.

    References
    ----------
    Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits, CC BY-SA 3.0.
    """
    return read_packed(resources.files("bristle.data") / "bundled_mnist", name="mnist")


def read_packed(folder: Traversable, *, name: str) -> Dataset:
    """Read what `write_packed` wrote; the arrays are read-only."""
    with np.load(io.BytesIO((folder / "index.npz").read_bytes()), allow_pickle=False) as index:
        labels, counts, shape = index["labels"], index["counts"], index["shape"]
        train_size = int(index["train_size"])
    packed = PackedImages(
        shape=(int(shape[0]), int(shape[1]), int(shape[2])),
        counts=counts.astype(np.int64),
        parts=tuple((folder / _part_name(part)).read_bytes() for part in range(_PARTS)),
    )
    by_class = unpack(packed)
    images = np.empty_like(by_class)
    images[_class_order(labels)] = by_class
    digits = labels.astype(np.int64)
    images.flags.writeable = False
    digits.flags.writeable = False
    return Dataset(images[:train_size], digits[:train_size], images[train_size:], digits[train_size:], name=name)


def write_packed(source: Path, folder: Path) -> list[Path]:
    """Make the bundled files again from an `.npz` with `x_train, y_train, x_test, y_test` (8-bit).

    Parameters
    ----------
    source
        The `.npz`, for example Keras' `mnist.npz`.
    folder
        Where the files go; it is made when it does not exist.

    Returns
    -------
    list of Path
        The files written.
    """
    arrays = read_arrays(source, ("x_train", "y_train", "x_test", "y_test"))
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    numbers = check_labels(np.concatenate([arrays["y_train"], arrays["y_test"]]), where=f"{source}: labels")
    if numbers.max(initial=0) > 255:
        raise ValueError(f"{source}: has the label {numbers.max()}: only 256 classes can be packed")
    labels = numbers.astype(np.uint8)
    # Images of a class are alike, so they pack better side by side; the labels tell the order anyway.
    packed = pack(images[_class_order(labels)], parts=_PARTS)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / _part_name(part) for part in range(_PARTS)]
    for path, content in zip(written, packed.parts, strict=True):
        path.write_bytes(content)
    index = folder / "index.npz"
    np.savez_compressed(
        index,
        labels=labels,
        counts=packed.counts.astype(np.uint32),
        shape=np.array(packed.shape),
        train_size=np.array(len(arrays["x_train"])),
    )
    return [*written, index]


def _part_name(part: int) -> str:
    return f"images-{part + 1}.xz"


def _class_order(labels: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    return np.argsort(labels, kind="stable")
