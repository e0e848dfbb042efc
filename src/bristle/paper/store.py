"""Finished runs and shared features on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np

from bristle._core import to_numpy
from bristle._core.files import write_atomically
from bristle.simulation import FeatureData

Row = dict[str, Any]
ENGINE = ("_core", "attacks", "backbones", "data", "learning", "peer/step.py", "rules", "simulation", "wire/sizes.py")


class Store:
    """A folder of finished runs, identified by task and versions."""

    def __init__(self, folder: Path, versions: Mapping[str, str]) -> None:
        self.folder = folder
        self.versions = dict(sorted(versions.items()))

    def find(self, task: str) -> list[Row] | None:
        """Return the rows of a finished run; None if there are none, or none that can be read."""
        try:
            content = json.loads(self._file(task).read_text(encoding="utf-8"))
            if content["task"] != json.loads(task) or content["versions"] != self.versions:
                return None
            rows: list[Row] = content["rows"]
        except (OSError, ValueError, KeyError, TypeError):
            return None  # Not there, or damaged: it is run again.
        return rows

    def keep(self, task: str, rows: list[Row]) -> None:
        """Keep the rows of a finished run."""
        content = {"task": json.loads(task), "versions": self.versions, "rows": rows}
        # In the order of the rows' columns: what is read back must give the same bytes again.
        text = json.dumps(content, allow_nan=False) + "\n"
        write_atomically(self._file(task), [text.encode()])

    def _file(self, task: str) -> Path:
        identity = json.dumps([task, self.versions], sort_keys=True)
        return self.folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def versions(*, release: str, backbone: str) -> dict[str, str]:
    """Return the versions that results depend on: releases, the engine's sources and the backbone."""
    return {
        "bristle": release,
        "engine": engine_digest(),
        "numpy": np.__version__,
        "backbone": backbone[:16],
    }


@lru_cache(maxsize=1)
def engine_digest() -> str:
    """Return a digest of the sources that results depend on, so that results of different engines are not mixed."""
    digest = hashlib.sha256()
    for room in ENGINE:
        for name, source in sorted(_sources(files("bristle").joinpath(room), room)):
            digest.update(f"{name} {len(source)} ".encode() + source)
    return digest.hexdigest()[:16]


def _sources(folder: Traversable, name: str) -> list[tuple[str, bytes]]:
    if folder.is_file():
        return [(name, folder.read_bytes())]
    found = []
    for entry in folder.iterdir():
        path = f"{name}/{entry.name}"
        if entry.is_dir():
            found += _sources(entry, path)
        elif entry.name.endswith(".py"):
            found.append((path, entry.read_bytes()))
    return found


ARRAYS = ("train", "train_labels", "test", "test_labels")


def save_features(data: FeatureData, folder: Path) -> None:
    """Write features and labels into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(ARRAYS, data.arrays, strict=True):
        np.save(folder / f"{name}.npy", to_numpy(values), allow_pickle=False)
    (folder / "classes.json").write_text(json.dumps(data.classes), encoding="utf-8")


def load_features(folder: Path) -> FeatureData:
    """Return the arrays of `save_features`, memory-mapped and read-only."""
    train, train_labels, test, test_labels = (
        np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)) for name in ARRAYS
    )
    classes = tuple(json.loads((folder / "classes.json").read_text(encoding="utf-8")))
    return FeatureData(train, train_labels, test, test_labels, classes)
