"""The interface of backbones, and conversion of stored samples to their input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Features = npt.NDArray[np.float32]
Shape = tuple[int | None, ...]
"""Shape of one sample; None for any size."""


class Backbone(Protocol):
    """A frozen function from samples to features."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the computed function: equal digests mean equal features."""

    @property
    def features(self) -> int:
        """Number of features of a sample."""

    @property
    def input_shape(self) -> Shape:
        """Shape of one sample that the backbone takes."""

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, features]` of the samples `x` `[n, ...]`."""


def fitted(x: Array, shape: Shape, dtype: str, what: str) -> Array:
    """Convert stored samples to the shape and type that a backbone takes."""
    stored = np.asarray(x)
    for samples in _layouts(stored):
        sizes = samples.shape[1:]
        if len(sizes) == len(shape) and all(w in (None, h) for w, h in zip(shape, sizes, strict=True)):
            break
    else:
        wanted, found = [size or "any" for size in shape], list(stored.shape[1:])
        raise ValueError(f"{what} takes samples of shape {wanted}, and got {found}: {_remedy(stored, shape)}")
    if stored.dtype.name == dtype:
        return np.ascontiguousarray(samples)
    if dtype == "uint8":
        raise ValueError(f"{what} takes uint8 values (0 to 255), and got {stored.dtype.name}: convert the samples")
    if stored.dtype == np.uint8:
        scaled: Array = np.ascontiguousarray(samples, dtype) / np.asarray(255, dtype)
        return scaled
    if not np.issubdtype(stored.dtype, np.floating):
        raise ValueError(f"{what} takes {dtype} or uint8 values, and got {stored.dtype.name}: convert the samples")
    return np.ascontiguousarray(samples, dtype)


def checked(result: Array, count: int, backbone: Backbone) -> Features:
    """Return the output of a backbone for `count` samples as `[count, features]`; raise if it has another size."""
    found = list(result.shape)
    if result.ndim < 2 or result.shape[0] != count or np.prod(result.shape[1:]) != backbone.features:
        raise ValueError(
            f"backbone {backbone.name} returned {found} for {count} samples, not [{count}, {backbone.features}]"
        )
    return np.ascontiguousarray(result.reshape(count, backbone.features), np.float32)


def _remedy(stored: Array, shape: Shape) -> str:
    if len(shape) == 3 and _sides(stored.shape[1:]) == _sides(shape):
        return f'load the images with channels="{"rgb" if 3 in (shape[0], shape[-1]) else "gray"}"'
    if stored.ndim > 2:
        return "resize images, or use a backbone for samples of this shape"
    return f'samples that are features already need no backbone: "none", in Python NoBackbone({stored.shape[-1]})'


def _sides(sizes: Shape) -> Shape:
    """Return height and width of an image, without its channels."""
    return tuple(size for size in sizes if size not in (1, 3))


def _layouts(x: Array) -> Iterator[Array]:
    """Yield `x` in its own layout and with channels moved to where other conventions have them."""
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
