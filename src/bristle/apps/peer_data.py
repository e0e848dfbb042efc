"""The data of `bristle peer`: which samples are this peer's, and what its accuracy is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.apps.progress import patient_bar
from bristle.backbones.backbone import Backbone
from bristle.backbones.features import extract
from bristle.data import Dataset, load
from bristle.data.images import Channels


@dataclass(frozen=True, eq=False)
class PeerData:
    """Features and labels of this peer, the classes of its group, and a test set."""

    classes: tuple[str, ...]
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    test_features: npt.NDArray[np.float32]
    test_labels: npt.NDArray[np.int64]


def prepare(
    source: str,
    backbone: Backbone,
    *,
    chosen: Sequence[str] | None = None,
    group_classes: Sequence[str] | None = None,
    samples: int | None = None,
    seed: int = 0,
) -> PeerData:
    """Load data and extract the features of those samples that the peer uses.

    Parameters
    ----------
    source
        An .npz file, a folder of class folders, or ``mnist``.
    backbone
        What makes the features; a folder's images are brought to the size that it wants.
    chosen
        Names of the classes that this peer holds; None for all in the data.
    group_classes
        All classes of the group, in its order; None where the data have them all.
    samples
        At most so many of each class.
    seed
        Of the choice of those.
    """
    dataset = _loaded(source, backbone)
    classes = tuple(group_classes or dataset.classes)
    missing = [name for name in dataset.classes if name not in classes]
    if missing:
        raise ValueError(f"{source} has the class {missing[0]!r}, which is not among {', '.join(classes)}")
    unknown = [name for name in chosen or () if name not in dataset.classes]
    if unknown:
        raise ValueError(f"{source} has no class {unknown[0]!r}: choose from {', '.join(dataset.classes)}")
    number = np.array([classes.index(name) for name in dataset.classes], dtype=np.int64)
    mine = _chosen(dataset, set(chosen or dataset.classes), samples, seed)
    with patient_bar("features") as progress:
        features = extract(backbone, dataset.x_train[mine], progress=progress)
        test = extract(backbone, dataset.x_test, progress=progress) if len(dataset.x_test) else features[:0]
    return PeerData(classes, features, number[dataset.y_train[mine]], test, number[dataset.y_test])


def _loaded(source: str, backbone: Backbone) -> Dataset:
    """Load the data, images of a folder in the size and colours that the backbone wants."""
    if source == "mnist" or not Path(source).is_dir():
        return load(source)
    sizes = [size for size in backbone.input_shape if size is not None]
    channels: Channels = "rgb" if 3 in sizes[:1] + sizes[-1:] else "gray"
    sides = [size for size in sizes if size not in (1, 3)]
    return load(source, size=(sides[0], sides[-1]) if len(sides) == 2 else None, channels=channels)


def _chosen(dataset: Dataset, names: set[str], samples: int | None, seed: int) -> npt.NDArray[Any]:
    if samples is not None and samples < 1:
        raise ValueError(f"samples={samples}: give at least 1 of each class")
    rng = np.random.default_rng(seed)
    parts = [
        rng.permutation(np.flatnonzero(dataset.y_train == number))[:samples]
        for number, name in enumerate(dataset.classes)
        if name in names
    ]
    return np.sort(np.concatenate(parts))
