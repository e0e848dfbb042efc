"""Read folders of four idx files, the format of MNIST and Fashion-MNIST.

Files are not trusted: headers are read before anything is unpacked, and no more is unpacked than they announce.
"""

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from bristle.data.dataset import DEFAULT_MAX_BYTES, Dataset

Bytes = npt.NDArray[np.uint8]

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""Images and labels to train on, then those to test on; each may end in `.gz`."""

_BROKEN = (gzip.BadGzipFile, zlib.error, struct.error, EOFError, OSError)
_BYTES = 0x08
_REMEDY = "get the four files again"


@dataclass(frozen=True)
class _Header:
    """The header of an idx file."""

    path: Path
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def is_idx_folder(folder: Path) -> bool:
    """Return whether a folder holds any of the four files."""
    return any(_path(folder, name) is not None for name in FILES)


def load_idx(folder: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Dataset:
    """Read images [N, height, width] and labels, for training and testing, from four idx files, gzipped or not.

    Parameters
    ----------
    folder
        Folder of the files.
    max_bytes
        Largest size of all arrays in bytes, checked before anything is unpacked.
    """
    paths = {name: _path(folder, name) for name in FILES}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise ValueError(f"{folder}: has no {', '.join(missing)}, with or without .gz: {_REMEDY}")
    headers = [_header(path, axes=3 if "images" in name else 1) for name, path in paths.items() if path is not None]
    size = sum(header.size for header in headers)
    if size > max_bytes:
        raise ValueError(
            f"{folder}: would take {size:,} bytes of memory, the limit is {max_bytes:,}: "
            "use fewer or smaller images, or give a higher max_bytes"
        )
    for images, labels in (headers[:2], headers[2:]):
        if images.shape[0] != labels.shape[0]:
            raise ValueError(
                f"{images.path}: holds {images.shape[0]:,} images, and {labels.path.name} {labels.shape[0]:,} labels: "
                f"{_REMEDY}"
            )
    if headers[0].shape[1:] != headers[2].shape[1:]:
        raise ValueError(
            f"{folder}: images to train on are of size {headers[0].shape[1:]}, "
            f"those to test on {headers[2].shape[1:]}: {_REMEDY}"
        )
    x_train, y_train, x_test, y_test = (_read(header) for header in headers)
    return Dataset(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), name=str(folder))


def _path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _header(path: Path, *, axes: int) -> _Header:
    try:
        with _open(path) as file:
            magic = _exactly(file, 4)
            if magic != bytes((0, 0, _BYTES, axes)):
                raise ValueError(
                    f"{path}: begins with {magic.hex(' ')}, not with 00 00 08 {axes:02x} as {axes}-dimensional bytes "
                    f"do: {_REMEDY}"
                )
            return _Header(path, struct.unpack(f">{axes}I", _exactly(file, 4 * axes)))
    except _BROKEN as error:
        raise _corrupt(path, error) from error


def _read(header: _Header) -> Bytes:
    """Read the bytes that the header announces; raise if there are more."""
    try:
        with _open(header.path) as file:
            _exactly(file, 4 + 4 * len(header.shape))
            content = _exactly(file, header.size)
            if file.read(1):
                raise ValueError(f"{header.path}: has more than the {header.size:,} bytes that it announces: {_REMEDY}")
    except _BROKEN as error:
        raise _corrupt(header.path, error) from error
    return np.frombuffer(content, dtype=np.uint8).reshape(header.shape)


_BLOCK = 1 << 24


def _exactly(file: IO[bytes], size: int) -> bytes:
    """Read `size` bytes, in blocks, so that a truncated file takes no more memory than it holds."""
    parts, left = [], size
    while left:
        part = file.read(min(left, _BLOCK))
        if not part:
            raise EOFError(f"ends {left:,} bytes early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _corrupt(path: Path, error: BaseException) -> ValueError:
    words = " ".join(str(error).split()) or type(error).__name__
    return ValueError(f"{path}: corrupt or not an idx file ({words}): {_REMEDY}")
