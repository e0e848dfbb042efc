"""A dataset: samples to train on, samples to test on, and the names of the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bristle.data.checks import check_labels, check_same_length, check_samples, check_users
from bristle.data.splitting import stratified_split

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled samples of any shape, checked when the object is made.

    Parameters
    ----------
    x_train, x_test
        Samples, `[samples, ...]`: images `[samples, height, width]` or `[samples, height, width, 3]`, or
        anything else that a backbone takes. `x_test` may be empty.
    y_train, y_test
        Class numbers from 0, `[samples]`; kept as int64. Floats are taken when they are whole.
    classes
        Names of the classes; when left out, their numbers.
    user
        Who each training sample belongs to, `[samples]`, integers or texts; for the natural partition.
    name
        Where the data come from; errors begin with it.
    """

    x_train: Array
    y_train: npt.NDArray[np.int64]
    x_test: Array
    y_test: npt.NDArray[np.int64]
    classes: tuple[str, ...] = ()
    user: Array | None = None
    name: str = "arrays"

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
            found = f"only class {present[0]}" if len(present) else "no sample at all"
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
        user = self.user
        if user is not None:
            user = check_users(user, samples=len(x_train), where=f"{self.name}: user")
        # The one place where a frozen object is still being made.
        for field, value in (
            ("x_train", x_train),
            ("y_train", y_train),
            ("x_test", x_test),
            ("y_test", y_test),
            ("classes", classes),
            ("user", user),
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
        """Make a dataset from samples without a test set; a share of every class is set apart.

        Parameters
        ----------
        x, y
            Samples `[samples, ...]` and class numbers `[samples]`.
        test_share
            Share of every class that becomes the test set; 0 for none.
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
            name=name,
        )
