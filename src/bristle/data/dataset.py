"""Datasets: training and test samples and class names, all checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from bristle.data.images import Channels

DEFAULT_MAX_BYTES = 8 << 30
MOST_CLASSES = 1 << 16
_BLOCK = 1 << 22


def check_samples(samples: npt.ArrayLike, *, where: str) -> npt.NDArray[np.generic]:
    """Return samples as finite numbers, one row per sample."""
    array = np.asarray(samples)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{where} holds {_kind(array)}, not numbers: convert it to uint8 or float32")
    if array.ndim < 2:
        raise ValueError(
            f"{where} has shape {array.shape}: give one row per sample, [samples, ...]; "
            "a single column needs x.reshape(-1, 1)"
        )
    if array.dtype.kind == "f":
        _check_finite(array, where=where)
    return array


def check_labels(labels: npt.ArrayLike, *, where: str) -> npt.NDArray[np.int64]:
    """Return class numbers from 0, one per sample; whole floats are accepted."""
    array = np.asarray(labels)
    if labels is None:
        raise ValueError(f"{where} is None: give one class number per sample")
    if array.ndim != 1:
        raise ValueError(
            f"{where} has shape {array.shape}: give one class number per sample, [samples]; "
            "one-hot rows need y.argmax(axis=1)"
        )
    if array.dtype.kind not in "uif":
        raise ValueError(f"{where} holds {_kind(array)}, not integers: {_NUMBERING}")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(~(np.isfinite(array) & (array == np.floor(array))))
        if len(wrong):
            raise ValueError(f"{where} holds {array[wrong[0]]} at {wrong[0]}, not an integer: {_NUMBERING}")
    if len(array):
        lowest, highest = array.min(), array.max()
        if lowest < 0:
            raise ValueError(f"{where} holds the negative label {lowest:.0f}: {_NUMBERING}")
        if highest >= MOST_CLASSES:
            raise ValueError(
                f"{where} holds the label {highest:.0f}, at most {MOST_CLASSES - 1} is possible: {_NUMBERING}"
            )
    return array.astype(np.int64, copy=False)


def check_users(users: npt.ArrayLike, *, samples: int, where: str) -> npt.NDArray[np.generic]:
    """Return the user of each training sample: integers or texts."""
    array = np.asarray(users)
    if array.dtype.kind not in "uiUS":
        raise ValueError(f"{where} holds {_kind(array)}: name users by integers or texts")
    if array.shape != (samples,):
        raise ValueError(f"{where} has shape {array.shape} for {samples} training samples: give one user per sample")
    return array


def check_same_length(
    samples: npt.NDArray[np.generic], labels: npt.NDArray[np.int64], *, where: str, names: str
) -> None:
    """Raise ValueError unless there are as many labels as samples."""
    if len(samples) != len(labels):
        raise ValueError(
            f"{where}: {names} have different lengths, {len(samples)} samples and {len(labels)} labels: "
            "give one label per sample"
        )


_NUMBERING = "number the classes 0, 1, 2, ... (np.unique(y, return_inverse=True)[1] does)"


def _kind(array: npt.NDArray[np.generic]) -> str:
    words = {"O": "Python objects", "U": "texts", "S": "texts", "b": "booleans", "V": "records"}
    return words.get(array.dtype.kind, f"values of type {array.dtype}")


def _check_finite(array: npt.NDArray[np.generic], *, where: str) -> None:
    """Check samples block by block: a mask of all would take as much memory as 8-bit images."""
    rows = max(1, _BLOCK // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), rows):
        finite = np.isfinite(array[start : start + rows])
        if not finite.all():
            sample = start + int(np.argwhere(~finite)[0][0])
            raise ValueError(f"{where} holds NaN or infinity in sample {sample}: remove or repair it")


def stratified_split(
    labels: npt.NDArray[np.int64], *, test_share: float, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Choose round(test_share * m) of the m samples of every class for testing.

    A class of two or more samples has at least one on either side; a class of one stays in training.

    Parameters
    ----------
    labels
        Class numbers, `[samples]`.
    test_share
        From 0 (no test samples) to below 1.
    seed
        The same seed gives the same split.

    Returns
    -------
    train, test
        Indices, ascending.
    """
    if not 0 <= test_share < 1:
        raise ValueError(f"test_share={test_share}: give a number from 0 to below 1, e.g. 0.2")
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    chosen = np.rint(sizes * test_share).astype(np.int64)
    if test_share > 0:
        chosen = np.maximum(chosen, 1)
    chosen = np.clip(chosen, 0, np.maximum(sizes - 1, 0))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_test = rank < np.repeat(chosen, sizes)
    return np.sort(order[~is_test]), np.sort(order[is_test])


Array = npt.NDArray[Any]
Part = tuple[Array, npt.NDArray[np.int64], Array | None]
"""Samples, labels and, where known, users."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled samples of any shape, checked on construction.

    Parameters
    ----------
    x_train, x_test
        Samples, `[samples, ...]`: images `[samples, height, width]` or `[samples, height, width, 3]`, or
        anything else that a backbone takes. `x_test` may be empty.
    y_train, y_test
        Class numbers from 0, `[samples]`; converted to int64. Floats must be whole numbers.
    classes
        Names of the classes; by default their numbers.
    user
        The user of each training sample, `[samples]`, integers or texts; for the natural partition.
    test_user
        The user of each test sample; then every user's own accuracy is measured.
    name
        Source of the data, for error messages.
    """

    x_train: Array
    y_train: npt.NDArray[np.int64]
    x_test: Array
    y_test: npt.NDArray[np.int64]
    classes: tuple[str, ...] = ()
    user: Array | None = None
    name: str = "arrays"
    test_user: Array | None = None

    def __post_init__(self) -> None:
        x_train = check_samples(self.x_train, where=f"{self.name}: x_train")
        x_test = check_samples(self.x_test, where=f"{self.name}: x_test")
        y_train = check_labels(self.y_train, where=f"{self.name}: y_train")
        y_test = check_labels(self.y_test, where=f"{self.name}: y_test")
        check_same_length(x_train, y_train, where=self.name, names="x_train and y_train")
        check_same_length(x_test, y_test, where=self.name, names="x_test and y_test")
        if x_train.shape[1:] != x_test.shape[1:]:
            raise ValueError(
                f"{self.name}: training samples have shape {x_train.shape[1:]}, "
                f"test samples {x_test.shape[1:]}: make them the same"
            )
        present = np.unique(y_train)
        if len(present) < 2:
            found = f"only class {present[0]}" if len(present) else "no samples"
            raise ValueError(f"{self.name}: y_train has {found}: learning needs samples of at least two classes")
        count = int(max(present[-1], y_test.max(initial=0))) + 1
        classes = tuple(self.classes) or tuple(str(number) for number in range(count))
        if len(classes) < count:
            raise ValueError(
                f"{self.name}: label {count - 1} has no name, only {len(classes)} classes are named: "
                f"name {count} classes"
            )
        if len(set(classes)) < len(classes):
            raise ValueError(f"{self.name}: two classes have the same name in {classes}: name each differently")
        user, test_user = self.user, self.test_user
        if user is not None:
            user = check_users(user, samples=len(x_train), where=f"{self.name}: user")
        if test_user is not None:
            test_user = check_users(test_user, samples=len(x_test), where=f"{self.name}: test_user")

        for field, value in (
            ("x_train", x_train),
            ("y_train", y_train),
            ("x_test", x_test),
            ("y_test", y_test),
            ("classes", classes),
            ("user", user),
            ("test_user", test_user),
        ):
            object.__setattr__(self, field, value)

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        *,
        test_share: float = 0.2,
        seed: int = 0,
        classes: Sequence[str] = (),
        user: npt.ArrayLike | None = None,
        name: str = "arrays",
    ) -> Self:
        """Make a dataset from samples without a test set: a fraction of every class becomes one.

        Parameters
        ----------
        x, y
            Samples `[samples, ...]` and class numbers `[samples]`.
        test_share
            Fraction of every class that becomes the test set; 0 for none.
        seed
            Seed of the split.
        classes, user, name
            As for `Dataset`; `user` has an entry per sample of `x`.
        """
        samples = check_samples(x, where=f"{name}: x")
        labels = check_labels(y, where=f"{name}: y")
        check_same_length(samples, labels, where=name, names="x and y")
        users = None if user is None else check_users(user, samples=len(samples), where=f"{name}: user")
        train, test = stratified_split(labels, test_share=test_share, seed=seed)
        return cls(
            samples[train],
            labels[train],
            samples[test],
            labels[test],
            classes=tuple(classes),
            user=None if users is None else users[train],
            test_user=None if users is None else users[test],
            name=name,
        )

    @classmethod
    def from_huggingface(
        cls,
        data: Any,
        *,
        image: str | None = None,
        features: str | None = None,
        label: str = "label",
        user: str | None = None,
        size: int | tuple[int, int] | None = None,
        channels: Channels | None = None,
        test_share: float = 0.2,
        seed: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> Self:
        """Make a dataset from a `datasets.Dataset`, or from a `datasets.DatasetDict` with a training and a test set.

        The names of the classes are kept. Nothing is downloaded: load the data first, e.g. by
        `datasets.load_from_disk`.

        Parameters
        ----------
        data
            Split by `test_share` and `seed` if there is neither a split `test` nor `validation`.
        image, features
            Column with images, or with numbers of one shape, such as embeddings; one of the two.
        label
            Column with the classes, as a `ClassLabel`, numbers or texts.
        user
            Column with the user of each sample.
        size, channels
            Format that images are converted to: height and width (None: they all have the same), and `"gray"` or
            `"rgb"` (None: that of the first image).
        test_share, seed
            As for `from_arrays`.
        max_bytes
            Refuse images that would take more memory than this.
        """
        from bristle.data.huggingface import Columns, Reader  # noqa: PLC0415 - few need it

        columns = Columns(image=image, features=features, label=label, user=user)
        sides = (size, size) if isinstance(size, int) else size
        reader = Reader(columns, size=sides, channels=channels, max_bytes=max_bytes)
        return cls._of_parts(*reader.read(data), test_share=test_share, seed=seed)

    @classmethod
    def from_torch(
        cls,
        train: Any,
        test: Any = None,
        *,
        classes: Sequence[str] = (),
        user: npt.ArrayLike | None = None,
        test_share: float = 0.2,
        seed: int = 0,
    ) -> Self:
        """Make a dataset from `torch.utils.data.Dataset`s whose items are pairs of a sample and a class number.

        Parameters
        ----------
        train, test
            Anything with a length whose items are pairs; samples are tensors, arrays or images of one size. Without
            a test set, `test_share` of every class becomes one.
        classes
            Names of the classes; by default `train.classes`.
        user
            As for `from_arrays`, for the samples of `train`.
        test_share, seed
            As for `from_arrays`.
        """
        from bristle.data.torch_items import read_torch  # noqa: PLC0415 - few need it

        names = tuple(classes) or tuple(str(name) for name in getattr(train, "classes", ()))
        first = read_torch(train, where="train")
        users = None if user is None else check_users(user, samples=len(first[1]), where="torch dataset: user")
        second = None if test is None else (*read_torch(test, where="test"), None)
        return cls._of_parts((*first, users), second, names, "torch dataset", test_share=test_share, seed=seed)

    @classmethod
    def _of_parts(
        cls, train: Part, test: Part | None, classes: Sequence[str], name: str, *, test_share: float, seed: int
    ) -> Self:
        """Make a dataset from samples, labels and users of one or two splits."""
        x, y, user = train
        if test is None:
            return cls.from_arrays(x, y, test_share=test_share, seed=seed, classes=classes, user=user, name=name)
        return cls(x, y, test[0], test[1], classes=tuple(classes), user=user, test_user=test[2], name=name)
