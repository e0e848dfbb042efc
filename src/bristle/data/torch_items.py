"""Read datasets of torch item by item, without importing torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def read_torch(dataset: Any, *, where: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return samples and labels of a dataset whose items are pairs."""
    name = f"torch dataset: {where}"
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ValueError(f"{name} is {type(dataset).__name__}, without length or items: give a map-style dataset")
    if not len(dataset):
        raise ValueError(f"{name} is empty: leave it out, or use another split")
    samples: npt.NDArray[Any] | None = None
    labels = np.empty(len(dataset), np.int64)
    for place in range(len(dataset)):
        item = dataset[place]
        if not isinstance(item, tuple | list) or len(item) != 2:
            found = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
            raise ValueError(f"{name} gives {found} for item {place}: give pairs of a sample and a class number")
        sample, label = _array(item[0]), _array(item[1])
        if label.ndim or label.dtype.kind not in "iu":
            raise ValueError(
                f"{name} has the label {item[1]!r} at item {place}: give one class number per sample".replace("\n", " ")
            )
        if samples is None:
            samples = np.empty((len(dataset), *sample.shape), sample.dtype)
        if sample.shape != samples.shape[1:]:
            raise ValueError(
                f"{name} has the shape {list(sample.shape)} at item {place}, {list(samples.shape[1:])} before: "
                "transform all samples to one size"
            )
        samples[place], labels[place] = sample, label
    assert samples is not None
    return samples, labels


def _array(value: Any) -> npt.NDArray[Any]:
    """Return a tensor on any device, an array or an image as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return np.asarray(value)
