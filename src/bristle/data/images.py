"""Read folders of class folders with images. Pillow is imported only when needed."""

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from bristle._core.extras import to_install
from bristle.data.dataset import Dataset

if TYPE_CHECKING:
    from PIL.Image import Image

Channels = Literal["gray", "rgb"]
SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that Pillow may open; it supports many others that are hardly maintained."""


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """The format that every image is converted to.

    Parameters
    ----------
    size
        `(height, width)`; images are stretched to it, with smoothing. None: they all have the same size.
    channels
        `"gray"` gives `[height, width]`, `"rgb"` gives `[height, width, 3]`, both 8-bit.
        Transparency is dropped.
    max_bytes
        Largest size of all images in bytes.
    """

    size: tuple[int, int] | None
    channels: Channels
    max_bytes: int

    def __post_init__(self) -> None:
        if self.size is not None and not (len(self.size) == 2 and min(self.size) >= 1):
            raise ValueError(f"size={self.size} is not (height, width): give two positive integers, e.g. (28, 28)")
        if self.channels not in ("gray", "rgb"):
            raise ValueError(f"channels={self.channels!r} is unknown: use 'gray' or 'rgb'")

    def shape(self, size: tuple[int, int]) -> tuple[int, ...]:
        """Return the array shape of an image of that size."""
        return size if self.channels == "gray" else (*size, 3)


def load_folder(folder: Path, *, form: ImageFormat, test_share: float, seed: int) -> Dataset:
    """Read `folder/<class>/<image>`, or `folder/train/<class>/<image>` and `folder/test/<class>/<image>`.

    Classes are numbered in the order of their names. Hidden files and files without an image's suffix are skipped.
    """
    train_folder, test_folder = folder / "train", folder / "test"
    if not (_subfolders(train_folder) and _subfolders(test_folder)):
        listing = _list_images(folder)
        names = tuple(listing)
        x, y = _read_all(listing, names=names, size=form.size, form=form)
        return Dataset.from_arrays(x, y, test_share=test_share, seed=seed, classes=names, name=str(folder))
    listing, test_listing = _list_images(train_folder), _list_images(test_folder)
    names = tuple(listing)
    unknown = sorted(set(test_listing) - set(names))
    if unknown:
        raise ValueError(f"{test_folder / unknown[0]}: no such class in {train_folder}: add it there or remove it here")
    x_train, y_train = _read_all(listing, names=names, size=form.size, form=form)
    x_test, y_test = _read_all(test_listing, names=names, size=(x_train.shape[1], x_train.shape[2]), form=form)
    return Dataset(x_train, y_train, x_test, y_test, classes=names, name=str(folder))


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _list_images(folder: Path) -> dict[str, list[Path]]:
    """Return the image files of every class, in the order of their names."""
    listing = {}
    for class_folder in _subfolders(folder):
        files = sorted(
            path
            for path in class_folder.iterdir()
            if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
        )
        if not files:
            raise ValueError(f"{class_folder}: class folder without images: add some ({_ENDINGS}) or remove it")
        listing[class_folder.name] = files
    if not listing:
        raise ValueError(f"{folder}: no class folders: make one folder per class with its images in it")
    return listing


def _read_all(
    listing: dict[str, list[Path]], *, names: tuple[str, ...], size: tuple[int, int] | None, form: ImageFormat
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    files = [path for paths in listing.values() for path in paths]
    number = {name: at for at, name in enumerate(names)}
    labels = np.repeat([number[name] for name in listing], [len(paths) for paths in listing.values()])
    pillow = load_pillow(files[0])
    first = _read(files[0], pillow=pillow, form=form)
    size = size or (first.shape[0], first.shape[1])
    needed = len(files) * math.prod(form.shape(size))
    if needed > form.max_bytes:
        raise ValueError(
            f"{files[0].parent.parent}: {len(files):,} images would take {needed:,} bytes of memory, "
            f"the limit is {form.max_bytes:,}: give a smaller size or a higher max_bytes"
        )
    images = np.empty((len(files), *form.shape(size)), dtype=np.uint8)
    for at, path in enumerate(files):
        image = first if at == 0 else _read(path, pillow=pillow, form=form)
        if image.shape[:2] != size:
            raise ValueError(
                f"{path}: is {image.shape[0]} x {image.shape[1]} (height x width), images before it are "
                f"{size[0]} x {size[1]}: give a size, e.g. size=(28, 28)"
            )
        images[at] = image
    return images, labels


def _read(path: Path, *, pillow: ModuleType, form: ImageFormat) -> npt.NDArray[np.uint8]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path, formats=_FORMATS) as image:
                needed = image.width * image.height * len(image.getbands())
                if needed > form.max_bytes:  # before a pixel is unpacked
                    raise ValueError(f"it takes {needed:,} bytes of memory, the limit is {form.max_bytes:,}")
                return convert(image, pillow=pillow, form=form)
    except Exception as error:  # Damaged files come out of Pillow as nearly any of Python's errors.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: unreadable image ({reason}): repair or remove it") from error


def convert(image: "Image", *, pillow: ModuleType, form: ImageFormat) -> npt.NDArray[np.uint8]:
    """Return an image in the wanted format, rotated upright by its EXIF data."""
    from PIL import ImageOps  # noqa: PLC0415 - needed for images only

    upright: Any = ImageOps.exif_transpose(image)
    if upright.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {upright.mode}; save it with 8 or 16 bits")
    if upright.mode.startswith("I;16"):  # Pillow would cut off at 255 rather than scale
        upright = pillow.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    upright = upright.convert("L" if form.channels == "gray" else "RGB")
    if form.size is not None and upright.size != form.size[::-1]:
        upright = upright.resize(form.size[::-1], pillow.Resampling.BILINEAR)
    return np.asarray(upright, dtype=np.uint8)


def load_pillow(where: object) -> ModuleType:
    """Import Pillow, or raise with the command that installs it."""
    try:
        from PIL import Image  # noqa: PLC0415 - needed for images only
    except ImportError as error:
        raise ImportError(f"{where}: reading images needs Pillow: {to_install('images')}") from error
    return Image


_ENDINGS = ", ".join(sorted(SUFFIXES))
