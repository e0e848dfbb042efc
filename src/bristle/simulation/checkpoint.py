"""A run put down and taken up again, to the bit."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from bristle._core import to_numpy
from bristle._core.files import write_atomically
from bristle.backbones.features import array_digest
from bristle.simulation.results import Row
from bristle.simulation.world import World

FORMAT = 1


def fingerprint(world: World, *, every: int, figure: str) -> str:
    """Return what tells a run from any other: SHA-256 of its scenario, its data and what its rows look like."""
    data = world.data
    users = () if data.user is None else (data.user,)
    arrays = (data.train, data.train_labels, data.test, data.test_labels, *users)
    digests = [array_digest(to_numpy(values)) for values in arrays]
    return hashlib.sha256(repr((FORMAT, world.scenario, data.classes, digests, every, figure)).encode()).hexdigest()


def save(path: Path, world: World, rows: list[Row], *, identity: str) -> None:
    """Write a checkpoint: all arrays of the world, and as JSON the rows so far and the run's fingerprint."""
    about = json.dumps({"format": FORMAT, "fingerprint": identity, "rows": rows}, allow_nan=False)
    content = io.BytesIO()
    arrays: dict[str, Any] = dict(world.arrays())
    np.savez(content, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)
    write_atomically(path, [content.getbuffer()])


def load(path: Path, world: World, *, identity: str) -> list[Row]:
    """Put a world where a checkpoint left it; return the rows so far."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such checkpoint; leave out resume to begin anew")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]).decode())
            arrays = {name: file[name] for name in file.files if name != "about"}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint, or is damaged: remove it and begin anew") from error
    if not isinstance(about, dict) or about.get("fingerprint") != identity:
        raise ValueError(
            f"{path} is a checkpoint of another configuration, other data or another version: "
            "resume with what it was made with, or begin anew under another name"
        )
    world.restore(arrays)
    rows: list[Row] = about["rows"]
    return rows
