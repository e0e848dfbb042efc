"""Read datasets of Hugging Face's `datasets`, without importing the library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.data.dataset import Part
from bristle.data.images import Channels, ImageFormat, convert, load_pillow

NAME = "Hugging Face dataset"
_TEST = ("test", "validation")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns."""

    image: str | None
    features: str | None
    label: str
    user: str | None

    def __post_init__(self) -> None:
        if (self.image is None) == (self.features is None):
            raise ValueError(
                f"{NAME}: name the column with the samples: image=... for images, features=... for numbers"
            )


class Reader:
    """Reads splits; the first one determines classes, sizes and channels.

    Parameters
    ----------
    columns
        Names of the columns.
    size, channels, max_bytes
        As `Dataset.from_huggingface` takes them.
    """

    def __init__(
        self, columns: Columns, *, size: tuple[int, int] | None, channels: Channels | None, max_bytes: int
    ) -> None:
        self._columns, self._channels = columns, channels
        self._form = ImageFormat(size=size, channels=channels or "gray", max_bytes=max_bytes)
        self._classes: tuple[str, ...] = ()
        self._shape: tuple[int, ...] = ()

    def read(self, data: Any) -> tuple[Part, Part | None, tuple[str, ...], str]:
        """Return the training split, the test split if there is one, the names of the classes and of the data."""
        train, test = _splits(data)
        first = self._part(*train)
        return first, None if test is None else self._part(*test), self._classes, NAME

    def _part(self, where: str, split: Any) -> Part:
        wanted = (self._columns.image, self._columns.features, self._columns.label, self._columns.user)
        for column in wanted:
            if column is not None and column not in split.column_names:
                raise ValueError(f"{where} has no column {column!r}: it has {', '.join(split.column_names)}")
        if not len(split):
            raise ValueError(f"{where} is empty: leave it out, or use another split")
        if self._columns.image is not None:
            samples = self._images(split, self._columns.image, where)
        else:
            assert self._columns.features is not None
            samples = _numbers(split, self._columns.features, where)
        user = self._columns.user
        return samples, self._labels(split, where), None if user is None else np.asarray(_values(split, user))

    def _labels(self, split: Any, where: str) -> npt.NDArray[np.int64]:
        column = self._columns.label
        values, names = _values(split, column), getattr(split.features[column], "names", None)
        missing = next((row for row, value in enumerate(values) if value is None or value == -1), None)
        if missing is not None:
            raise ValueError(
                f"{where}: row {missing} has no label ({values[missing]}): leave such rows or this split out; "
                "without a test split, a share of the training split becomes one"
            )
        if names is None and isinstance(values[0], str):
            names = self._classes or sorted(set(values))
            unknown = sorted(set(values) - set(names))
            if unknown:
                raise ValueError(f"{where} has the class {unknown[0]!r}, which is not in the training split: remove it")
            values = [list(names).index(value) for value in values]
        classes = tuple(str(name) for name in names or ())
        if self._classes and self._classes != classes:
            raise ValueError(
                f"{where} has the classes {', '.join(classes)}, the training split {', '.join(self._classes)}: "
                "cast both to one ClassLabel"
            )
        self._classes = classes
        return np.asarray(values)

    def _images(self, split: Any, column: str, where: str) -> npt.NDArray[np.uint8]:
        pillow = load_pillow(where)
        images: npt.NDArray[np.uint8] | None = None
        for row, item in enumerate(split.select_columns([column]).with_format(None)):
            picture = item[column]
            if not isinstance(picture, pillow.Image):
                raise ValueError(
                    f"{where}: {column!r} holds {type(picture).__name__} in row {row}, not an image: "
                    f"give features={column!r} for numbers, or leave out rows without"
                )
            if images is None and self._channels is None:
                self._channels = "gray" if picture.mode in ("1", "L", "I", "F", "I;16") else "rgb"
                self._form = replace(self._form, channels=self._channels)
            pixels = convert(picture, pillow=pillow, form=self._form)
            self._shape = self._shape or pixels.shape
            if pixels.shape != self._shape:
                raise ValueError(
                    f"{where}: row {row} is {pixels.shape[0]} x {pixels.shape[1]} (height x width), images before it "
                    f"are {self._shape[0]} x {self._shape[1]}: give a size, e.g. size=(28, 28)"
                )
            if images is None:
                shape = (len(split), *pixels.shape)
                if math.prod(shape) > self._form.max_bytes:
                    raise ValueError(
                        f"{where}: {len(split):,} images would take {math.prod(shape):,} bytes of memory, the limit "
                        f"is {self._form.max_bytes:,}: give a smaller size or a higher max_bytes"
                    )
                images = np.empty(shape, np.uint8)
            images[row] = pixels
        assert images is not None
        return images


def _splits(data: Any) -> tuple[tuple[str, Any], tuple[str, Any] | None]:
    """Return name and content of the training split and, if there is one, of the test split."""
    if not isinstance(data, Mapping):
        return (NAME, _checked(data)), None
    if "train" not in data and len(data) != 1:
        raise ValueError(f"{NAME}: has the splits {', '.join(map(str, data))}, no 'train': give one of them alone")
    first = "train" if "train" in data else next(iter(data))
    second = next((name for name in _TEST if name in data and name != first), None)
    train = f"{NAME}: {first}", _checked(data[first])
    return train, None if second is None else (f"{NAME}: {second}", _checked(data[second]))


def _checked(split: Any) -> Any:
    if not hasattr(split, "column_names") or not hasattr(split, "features"):
        raise ValueError(f"{type(split).__name__} is not a dataset of Hugging Face: give a datasets.Dataset")
    if not hasattr(split, "__len__"):
        raise ValueError(f"{NAME}: is a stream: load it without streaming=True, or make a datasets.Dataset of a part")
    return split


def _values(split: Any, column: str) -> list[Any]:
    values: list[Any] = split.select_columns([column]).with_format(None)[:][column]
    return values


def _numbers(split: Any, column: str, where: str) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = np.asarray(split.select_columns([column]).with_format("numpy")[:][column])
    if values.dtype.kind not in "buif":
        raise ValueError(
            f"{where}: {column!r} does not hold numbers of one shape ({values.dtype}): convert it to features first, "
            "e.g. embeddings of texts"
        )
    return values
