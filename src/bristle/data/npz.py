"""Read `.npz` files. They are not trusted: nothing is unpickled, and headers are read before anything is unpacked."""

import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bristle.data.dataset import DEFAULT_MAX_BYTES, MOST_CLASSES, Dataset

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # an encrypted member
    UnicodeDecodeError,
)
_BAD_HEADER = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
)
"""Errors that invalid headers cause."""

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compression methods that NumPy writes. Others let a small file ask for gigabytes before a byte is unpacked."""

_SPLIT = ("x_train", "y_train", "x_test", "y_test")
_WHOLE = ("x", "y")


def load_npz(path: Path, *, test_share: float, seed: int, max_bytes: int = DEFAULT_MAX_BYTES) -> Dataset:
    """Read `x_train, y_train, x_test, y_test`, or `x, y` with a seeded split; also users and `classes`."""
    present = _members(path)
    wanted = next((keys for keys in (_SPLIT, _WHOLE) if set(keys) <= present), None)
    if wanted is None:
        raise ValueError(
            f"{path}: holds {', '.join(sorted(present)) or 'nothing'}: "
            f"save it with {', '.join(_SPLIT)}, or with x and y"
        )
    extra = tuple(key for key in ("user", "test_user", "classes") if key in present)
    arrays = read_arrays(path, wanted + extra, max_bytes=max_bytes)
    classes = _class_names(arrays.get("classes"), path=path)
    user = arrays.get("user")
    if wanted == _WHOLE:
        return Dataset.from_arrays(
            arrays["x"],
            arrays["y"],
            test_share=test_share,
            seed=seed,
            classes=classes,
            user=user,
            name=str(path),
        )
    x_train, y_train, x_test, y_test = (arrays[key] for key in _SPLIT)
    return Dataset(
        x_train, y_train, x_test, y_test, classes=classes, user=user, test_user=arrays.get("test_user"), name=str(path)
    )


def read_arrays(path: Path, keys: Sequence[str], *, max_bytes: int = DEFAULT_MAX_BYTES) -> dict[str, npt.NDArray[Any]]:
    """Read some arrays of an `.npz`.

    Parameters
    ----------
    path
        The file.
    keys
        Names of the arrays; all must exist.
    max_bytes
        Largest size of all arrays in bytes, checked before anything is unpacked.
    """
    missing = sorted(set(keys) - _members(path))
    if missing:
        raise ValueError(f"{path}: has no {', '.join(missing)}: save it with {', '.join(keys)}")
    try:
        with zipfile.ZipFile(path) as archive:
            size = 0
            for key in keys:
                packing = archive.getinfo(f"{key}.npy").compress_type
                if packing not in _PACKINGS:
                    raise ValueError(
                        f"{path}: {key} is packed by method {packing}, which NumPy never writes: {_REMEDY}"
                    )
                with archive.open(f"{key}.npy") as member:
                    size += _declared_size(member, where=f"{path}: {key}")
            if size > max_bytes:
                raise ValueError(
                    f"{path}: would take {size:,} bytes of memory, the limit is {max_bytes:,}: "
                    "use fewer or smaller samples, or give a higher max_bytes"
                )
            arrays = {}
            for key in keys:
                with archive.open(f"{key}.npy") as member:
                    arrays[key] = _read(member, where=f"{path}: {key}")
            return arrays
    except _BROKEN as error:
        raise _corrupt(path, error) from error


def _members(path: Path) -> set[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: check the path")
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
    except _BROKEN as error:
        raise _corrupt(path, error) from error


def _declared_size(member: IO[bytes], *, where: str) -> int:
    """Return the size of the array in bytes, from its header; refuse types that need pickle."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of files that Python 2 wrote
            version = np.lib.format.read_magic(member)
            if version == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(member)
            elif version == (2, 0):
                shape, _, dtype = np.lib.format.read_array_header_2_0(member)
            else:  # version 3 is for field names of records only
                raise ValueError(f"has format version {version}")
    except _BAD_HEADER as error:
        raise ValueError(f"{where} is corrupt ({_one_line(error)}): {_REMEDY}") from error
    if dtype.hasobject:
        raise ValueError(f"{where} holds Python objects, which need pickle, and pickles are never loaded: {_REMEDY}")
    if any(length < 0 for length in shape):
        raise ValueError(f"{where} is corrupt (shape {shape}): {_REMEDY}")
    if not dtype.itemsize:  # any number of values would take 0 bytes, until they are converted
        raise ValueError(f"{where} is corrupt (values of type {dtype.str} have no size): {_REMEDY}")
    return int(math.prod(shape)) * dtype.itemsize


def _read(member: IO[bytes], *, where: str) -> npt.NDArray[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    except (*_BAD_HEADER, OverflowError) as error:
        raise ValueError(f"{where} is corrupt ({_one_line(error)}): {_REMEDY}") from error
    if array.dtype.kind == "U" and not _is_text(array):
        raise ValueError(f"{where} is corrupt (texts with characters that do not exist): {_REMEDY}")
    return array


def _is_text(array: npt.NDArray[Any]) -> bool:
    """Return whether all characters of texts are valid Unicode: NumPy accepts any 32 bits."""
    points = np.frombuffer(array.tobytes(), np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
    return not ((points > _LAST_CHARACTER) | ((points >= _FIRST_SURROGATE) & (points <= _LAST_SURROGATE))).any()


def _class_names(names: npt.NDArray[Any] | None, *, path: Path) -> tuple[str, ...]:
    if names is None:
        return ()
    if names.dtype.kind != "U" or names.ndim != 1:
        raise ValueError(f"{path}: classes must be a list of texts, not {names.dtype} {names.shape}: {_REMEDY}")
    if len(names) > MOST_CLASSES:
        raise ValueError(f"{path}: classes names {len(names):,}, at most {MOST_CLASSES:,} are possible: name fewer")
    return tuple(str(name) for name in names)


_LAST_CHARACTER, _FIRST_SURROGATE, _LAST_SURROGATE = 0x10FFFF, 0xD800, 0xDFFF
_REMEDY = "save plain numbers with numpy.savez_compressed"


def _corrupt(path: Path, error: BaseException) -> ValueError:
    return ValueError(f"{path}: corrupt or not an .npz ({_one_line(error)}): get or save it again")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
