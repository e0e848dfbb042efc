"""Features in files that every process maps into its memory: they are there once, however many processes read them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bristle._core import to_numpy
from bristle.simulation import FeatureData

ARRAYS = ("train", "train_labels", "test", "test_labels")


def save(data: FeatureData, folder: Path) -> None:
    """Write features and labels into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = (data.train, data.train_labels, data.test, data.test_labels)
    for name, values in zip(ARRAYS, arrays, strict=True):
        np.save(folder / f"{name}.npy", to_numpy(values), allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(data.classes), encoding="utf-8")


def load(folder: Path) -> FeatureData:
    """Return what `save` wrote, mapped and read-only."""
    train, train_labels, test, test_labels = (
        np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)) for name in ARRAYS
    )
    classes = tuple(json.loads((folder / "classes.json").read_text(encoding="utf-8")))
    return FeatureData(train, train_labels, test, test_labels, classes)
