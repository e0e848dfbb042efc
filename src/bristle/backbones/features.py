"""Feature extraction: batched, and cached, since a frozen backbone never changes."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np

from bristle._core.files import write_atomically
from bristle.backbones.base import Array, Backbone, Features
from bristle.backbones.derived import Derived, NoBackbone

Watch = Callable[[int, int], None]
"""Called with the number of samples done, and of all."""

Cache = str | os.PathLike[str] | Literal[False] | None
"""A folder; None for the default one, False for none."""


def extract(
    backbone: Backbone, x: Array, *, batch: int = 256, cache: Cache = None, progress: Watch | None = None
) -> Features:
    """Return the features ``phi(x)`` `[n, features]` of the samples `x` `[n, ...]`, from the cache where known.

    Parameters
    ----------
    backbone
        What makes the features.
    x
        Samples, as they are stored.
    batch
        How many samples go through the backbone at once.
    cache
        The folder that keeps features (None: `cache_folder`; False: nothing is kept). They are found
        again by the digest of the backbone and that of the samples.
    progress
        Called with (done, all) after every batch; not called when the features are known already.
    """
    x = np.asarray(x)
    if batch < 1:
        raise ValueError(f"batch is at least 1, not {batch}")
    if x.ndim < 2:
        raise ValueError(
            f"samples must be an array of several samples, not of shape {list(x.shape)}: give [samples, ...]"
        )
    _refuse_not_finite(x, "values", "repair or leave it out")
    if isinstance(backbone, Derived):
        return backbone.of(extract(backbone.backbone, x, batch=batch, cache=cache, progress=progress))
    kept = None if cache is False or isinstance(backbone, NoBackbone) else _file(cache_folder(cache), backbone, x)
    if kept is not None:
        known = _load(kept, (len(x), backbone.features))
        if known is not None:
            return known
    features = np.empty((len(x), backbone.features), np.float32)
    for start in range(0, len(x), batch):
        features[start : start + batch] = backbone(x[start : start + batch])
        if progress is not None:
            progress(min(start + batch, len(x)), len(x))
    _refuse_not_finite(features, "features", f"check the backbone {backbone.name}")
    if kept is not None:
        _keep(kept, features)
    return features


def cache_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of cached features: `given`, else $BRISTLE_CACHE, else the user's cache folder."""
    if given is not None:
        return Path(given)
    if chosen := os.environ.get("BRISTLE_CACHE"):
        return Path(chosen)
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "bristle" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bristle"


def array_digest(x: Array) -> str:
    """Return the SHA-256 of an array's type, shape and content."""
    digest = hashlib.sha256(f"{x.dtype.str} {x.shape} ".encode())
    digest.update(_memory(np.ascontiguousarray(x)))
    return digest.hexdigest()


def _file(folder: Path, backbone: Backbone, x: Array) -> Path:
    return folder / "features" / backbone.digest / f"{array_digest(x)}.npy"


def _keep(path: Path, features: Features) -> None:
    # NumPy ignores the checksum after the array.
    pieces: list[bytes | memoryview] = [
        _header(features.shape),
        _memory(features),
        bytes.fromhex(array_digest(features)),
    ]
    try:
        write_atomically(path, pieces)
    except OSError as error:
        warnings.warn(f"features cannot be kept in {path.parent}: {error}", stacklevel=3)


def _header(shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file of float32 numbers with this shape."""
    header = BytesIO()
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


def _load(path: Path, shape: tuple[int, int]) -> Features | None:
    """Read kept features; None if there are none, or if they are damaged (they are then made again)."""
    try:
        with path.open("rb") as file:
            header = _header(shape)
            if file.read(len(header)) != header:  # never parsed: a damaged one could say anything
                return None
            features = np.empty(shape, np.float32)
            complete = file.readinto(_memory(features)) == features.nbytes
            checksum = file.read()
    except OSError:
        return None
    return features if complete and bytes.fromhex(array_digest(features)) == checksum else None


def _memory(values: Array) -> memoryview:
    """Return the bytes of a contiguous array, not copied."""
    return values.reshape(-1).view(np.uint8).data


def _refuse_not_finite(values: Array, what: str, remedy: str) -> None:
    if not np.issubdtype(values.dtype, np.floating) or bool(np.isfinite(values).all()):
        return
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    first = int(np.argmin(finite))
    count = int(len(values) - finite.sum())
    raise ValueError(f"sample {first} has {what} that are not finite ({count} such samples in all): {remedy}")
