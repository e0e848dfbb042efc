"""Samples of a peer: for training, and held out for testing received heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.learning.metrics import Evaluation

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool]


@dataclass(frozen=True, eq=False)
class Samples:
    """Labelled features: `features` [..., S, D] with `labels` [..., S], -1 = padding.

    With `index` [..., S], `features` is a table [N, D] that many peers share, and `index` gives their rows of it.
    """

    features: Any
    labels: Any
    index: Any = None


class SampleStore:
    """The labelled features of one peer. Samples are added and never removed.

    A fraction of every class is held out, until there are kappa held-out samples. Then the class is *familiar*: the
    peer can test it, and all further samples are for training. Held-out samples are never trained on. Returned arrays
    never change.

    Parameters
    ----------
    classes, features : int
        Number of classes C and of features D.
    kappa : int
        Number of held-out samples per class.
    held_out_share : float
        Fraction of a class that is held out until then; at most half.
    """

    def __init__(self, classes: int, features: int, *, kappa: int = 10, held_out_share: float = 0.5) -> None:
        for name, value in (("classes", classes), ("features", features), ("kappa", kappa)):
            if value < 1:
                raise ValueError(f"{name}={value}: give at least 1")
        if not 0 <= held_out_share <= 0.5:
            raise ValueError(f"held_out_share={held_out_share}: give a number from 0 to 0.5; the rest is for training")
        self.classes = classes
        self.features = features
        self.kappa = kappa
        self.held_out_share = held_out_share
        self._training = _Growing(features, classes)
        self._held_out = _Growing(features, classes)

    @classmethod
    def restore(
        cls, training: Samples, held_out: Samples, *, classes: int, kappa: int = 10, held_out_share: float = 0.5
    ) -> SampleStore:
        """Return a store of samples that are already split, e.g. those of a peer before a restart."""
        store = cls(classes, training.features.shape[-1], kappa=kappa, held_out_share=held_out_share)
        train = store._checked(training.features, training.labels)
        test = store._checked(held_out.features, held_out.labels)
        store._training.append(*train)
        store._held_out.append(*test)
        return store

    def add(self, features: npt.ArrayLike, labels: npt.ArrayLike, *, rng: np.random.Generator) -> None:
        """Add samples: `features` [n, D] and `labels` [n].

        Of n new samples of a class at most ceil(share * n) are held out, and of all its samples at most
        floor(share * all), drawn by `rng`, whether samples come one by one or all at once.
        """
        new, classes = self._checked(features, labels)
        held_out = np.zeros(len(classes), dtype=np.bool)
        for c in np.unique(classes):
            members = np.flatnonzero(classes == c)
            held_out[rng.permutation(members)[: self._quota(int(c), len(members))]] = True
        self._training.append(new[~held_out], classes[~held_out])
        self._held_out.append(new[held_out], classes[held_out])

    @property
    def training(self) -> Samples:
        """Training samples: [S, D] and [S], in order of arrival."""
        return Samples(*self._training.filled())

    @property
    def evaluation(self) -> Evaluation:
        """Held-out samples: [T, D] and [T], in order of arrival."""
        return Evaluation(*self._held_out.filled())

    @property
    def trained(self) -> Booleans:
        """Mask of the classes with training samples [C]."""
        return self._training.counts > 0

    @property
    def familiar(self) -> Booleans:
        """Mask of the classes that the peer can test [C]: those with at least kappa held-out samples."""
        return self._held_out.counts >= self.kappa

    def _quota(self, c: int, new: int) -> int:
        """Return how many of `new` samples of class c to hold out."""
        held_out = int(self._held_out.counts[c])
        total = held_out + int(self._training.counts[c]) + new
        wanted = min(self.kappa, math.floor(self.held_out_share * total)) - held_out
        # The second bound matters when a restored store had less held out than its share.
        return max(0, min(wanted, math.ceil(self.held_out_share * new)))

    def _checked(self, features: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Integers]:
        values, classes = np.asarray(features, dtype=np.float32), np.asarray(labels)
        if values.ndim != 2 or values.shape[1] != self.features:
            raise ValueError(f"features have the shape {list(values.shape)}: give [samples, {self.features}]")
        if classes.shape != values.shape[:1]:
            raise ValueError(f"labels have the shape {list(classes.shape)}: give one for each of {len(values)} samples")
        if len(classes) and not np.issubdtype(classes.dtype, np.integer):
            raise ValueError(f"labels must be integers, not {classes.dtype}")
        if len(classes) and not 0 <= classes.min() <= classes.max() < self.classes:
            raise ValueError(f"labels go from {classes.min()} to {classes.max()}: give 0 to {self.classes - 1}")
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            raise ValueError(f"sample {int(np.argmin(finite))} has features that are not finite: leave it out")
        return values, classes.astype(np.int64)


class _Growing:
    """Append-only rows. Capacity doubles when needed, so that a row is copied twice on average."""

    def __init__(self, features: int, classes: int) -> None:
        self.counts = np.zeros(classes, dtype=np.int64)
        self._size = 0
        self._features = np.empty((0, features), dtype=np.float32)
        self._labels = np.empty(0, dtype=np.int64)

    def append(self, features: Floats, labels: Integers) -> None:
        end = self._size + len(labels)
        if end > len(self._labels):
            room = max(end, 2 * len(self._labels))
            old_features, old_labels = self.filled()
            self._features = np.empty((room, self._features.shape[1]), dtype=np.float32)
            self._labels = np.empty(room, dtype=np.int64)
            self._features[: self._size], self._labels[: self._size] = old_features, old_labels
        self._features[self._size : end], self._labels[self._size : end] = features, labels
        self._size = end
        self.counts = self.counts + np.bincount(labels, minlength=len(self.counts))

    def filled(self) -> tuple[Floats, Integers]:
        """Return read-only views of the rows."""
        features, labels = self._features[: self._size], self._labels[: self._size]
        features.flags.writeable = labels.flags.writeable = False
        return features, labels
