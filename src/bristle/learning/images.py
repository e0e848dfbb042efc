"""Bringing stored images into the shape and type that a backbone wants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.generic]
Shape = tuple[int | None, ...]
"""Sizes of one image; None where any size will do."""


def fitted(x: Images, shape: Shape, dtype: str, what: str) -> Images:
    """Bring stored images into the shape and type that a backbone wants."""
    stored = np.asarray(x)
    for images in _layouts(stored):
        sizes = images.shape[1:]
        if len(sizes) == len(shape) and all(w in (None, h) for w, h in zip(shape, sizes, strict=True)):
            break
    else:
        wanted = [size or "any" for size in shape]
        raise ValueError(
            f"{what} takes images of size {wanted}, and got {list(stored.shape[1:])}: resize the images, or "
            "take a backbone made for their size"
        )
    if stored.dtype.name == dtype:
        return np.ascontiguousarray(images)
    if dtype == "uint8":
        raise ValueError(f"{what} takes uint8 pixels (0 to 255), and got {stored.dtype.name}: convert the images")
    if stored.dtype == np.uint8:
        scaled: Images = np.ascontiguousarray(images, dtype) / np.asarray(255, dtype)
        return scaled
    if not np.issubdtype(stored.dtype, np.floating):
        raise ValueError(f"{what} takes {dtype} or uint8 pixels, and got {stored.dtype.name}: convert the images")
    return np.ascontiguousarray(images, dtype)


def _layouts(x: Images) -> Iterator[Images]:
    """Yield `x` as it is and with its channels where another convention has them."""
    yield x
    if x.ndim == 3:
        yield x[:, np.newaxis]
        yield x[..., np.newaxis]
    if x.ndim == 4:
        yield x.transpose(0, 3, 1, 2)
        yield x.transpose(0, 2, 3, 1)
        if x.shape[3] == 1:
            yield x[..., 0]
    if x.ndim > 1:
        yield x.reshape(len(x), int(np.prod(x.shape[1:])))
