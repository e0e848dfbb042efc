"""What a world is made of: the features of a dataset, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array
from bristle.backbones.backbone import Backbone
from bristle.backbones.features import extract
from bristle.data import Dataset


@dataclass(frozen=True)
class FeatureData:
    """Features and labels for training [N, D], [N] and for testing, the names of the classes, and users where known."""

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array
    classes: tuple[str, ...]
    user: np.ndarray[Any, Any] | None = None


def prepare(
    dataset: Dataset,
    backbone: Backbone,
    *,
    test_samples: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FeatureData:
    """Extract the features of a dataset, or take them from the cache.

    `test_samples` limits the test set to its first samples, for those who cannot wait.
    """
    return FeatureData(
        train=extract(backbone, dataset.x_train, progress=progress),
        train_labels=np.asarray(dataset.y_train, dtype=np.int64),
        test=extract(backbone, dataset.x_test[:test_samples], progress=progress),
        test_labels=np.asarray(dataset.y_test[:test_samples], dtype=np.int64),
        classes=dataset.classes,
        user=dataset.user,
    )
