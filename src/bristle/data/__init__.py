"""Data: the bundled MNIST, your own files or arrays, and partitions of samples to peers.

Needs NumPy only; reading images needs Pillow (the extra `images`).
"""

from pathlib import Path

from bristle._core.registry import Registry
from bristle.data import partitions
from bristle.data.bundled import mnist
from bristle.data.dataset import DEFAULT_MAX_BYTES, Dataset
from bristle.data.idx import is_idx_folder, load_idx
from bristle.data.images import Channels, ImageFormat, load_folder
from bristle.data.npz import load_npz
from bristle.data.partitions import PaddedIndices, Partition

__all__ = ["Dataset", "PaddedIndices", "Partition", "load", "mnist", "partitions"]

DATASETS: Registry[Dataset] = Registry("dataset", Dataset, {"mnist": mnist}, "bristle.datasets")


def load(
    source: str | Path,
    *,
    test_share: float = 0.2,
    seed: int = 0,
    size: int | tuple[int, int] | None = None,
    channels: Channels = "gray",
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Dataset:
    """Load a dataset by name, from your own files or from your own code.

    Parameters
    ----------
    source
        `"mnist"`; an `.npz` file with `x_train, y_train, x_test, y_test`, or with `x, y`, and optionally
        `user` (who each sample of `x` or `x_train` belongs to), `test_user` (the same for `x_test`) and `classes`
        (names); a folder with one folder of images per class, or with such folders under `train/` and `test/`; or a
        folder with the four idx files of MNIST or Fashion-MNIST, packed by gzip or not. A folder that is called
        `mnist` is `"./mnist"`. Also the name of an installed package's dataset, or `module:name`.
    test_share, seed
        If the source has no test set: the fraction of every class that becomes one, and the seed of the choice.
    size
        Folders: height and width of the images, or one number for both. None: they all have the same size.
    channels
        Folders: `"gray"` or `"rgb"`.
    max_bytes
        Refuse data that would take more memory than this, before unpacking. 8 GiB by default.

    Raises
    ------
    FileNotFoundError, ValueError
        One line that names the file, what is wrong and what to do.
    ImportError
        Images without Pillow.
    """
    if isinstance(source, str) and (source in DATASETS or DATASETS.is_foreign(source)):
        return DATASETS.create(source)
    path = Path(source)
    if path.is_dir() and is_idx_folder(path):
        return load_idx(path, max_bytes=max_bytes)
    if path.is_dir():
        sides = (size, size) if isinstance(size, int) else size
        form = ImageFormat(size=sides, channels=channels, max_bytes=max_bytes)
        return load_folder(path, form=form, test_share=test_share, seed=seed)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder: check the path, or use the bundled 'mnist'")
    if path.suffix.lower() != ".npz":
        raise ValueError(
            f"{path}: unknown kind of data: give an .npz file, a folder of class folders or of idx files, or 'mnist'"
        )
    return load_npz(path, test_share=test_share, seed=seed, max_bytes=max_bytes)
