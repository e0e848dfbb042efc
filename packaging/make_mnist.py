"""Make the bundled MNIST files again: `python packaging/make_mnist.py mnist.npz [FOLDER]`.

Without a folder the files of the package itself are replaced.
"""

import argparse
import lzma
import sys
from pathlib import Path

import numpy as np

from bristle.data.bundled import (
    BINS,
    CONTEXTS,
    PARTS,
    Bytes,
    PackedImages,
    class_order,
    context_of,
    part_name,
)
from bristle.data.dataset import check_labels
from bristle.data.npz import read_arrays

# No literal or position context: the neighbours of a byte in a stream are other images. Matches only serve
# runs of zeros, so the smallest dictionary is also the best one.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0, "dict_size": 1 << 12, "nice_len": 273}]


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
    bins[2:, 2:-1] = BINS[pixels]
    contexts = np.empty(pixels.shape, dtype=np.uint16)
    for row in range(height):
        for column in range(width):
            contexts[row, column] = context_of(bins[row], bins[row + 1], bins[row + 2], column)
    stream = pixels.ravel()[np.argsort(contexts.ravel(), kind="stable")]
    # Zeros cost next to nothing: equal numbers of other pixels make parts of about equal size.
    weight = np.cumsum(stream != 0)
    targets = weight[-1] * np.arange(1, parts) / parts if weight.size else np.zeros(parts - 1)
    pieces = np.split(stream, np.searchsorted(weight, targets))
    return PackedImages(
        shape=(count, height, width),
        counts=np.bincount(contexts.ravel(), minlength=CONTEXTS),
        parts=tuple(lzma.compress(piece.tobytes(), filters=FILTERS) for piece in pieces),
    )


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
    # Images of a class are alike, so they pack better side by side; the labels give the order anyway.
    packed = pack(images[class_order(labels)], parts=PARTS)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / part_name(part) for part in range(PARTS)]
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


def main(arguments: list[str] | None = None) -> int:
    """Write the files and print their sizes."""
    parser = argparse.ArgumentParser(prog="python packaging/make_mnist.py", description=__doc__)
    parser.add_argument("source", type=Path, help=".npz with x_train, y_train, x_test, y_test (8-bit)")
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path(__file__).parents[1] / "src/bristle/data/bundled_mnist"
    )
    options = parser.parse_args(arguments)
    for path in write_packed(options.source, options.folder):
        print(f"{path.stat().st_size:>10,}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
