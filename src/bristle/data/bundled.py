"""MNIST, complete, as part of the package."""

import io
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bristle.data.checks import check_labels
from bristle.data.dataset import Dataset
from bristle.data.npz import read_arrays
from bristle.data.packing import PackedImages, pack, unpack

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
