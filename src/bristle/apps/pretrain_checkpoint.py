"""Checkpoints of a training run: one file of plain arrays that is whole or not there."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np

from bristle._core.files import write_atomically
from bristle.apps.pretrain_training import State

Identity = Mapping[str, object]
"""What a run is: a checkpoint of another run cannot be continued. JSON values."""

_IDENTITY = "identity"


def save(path: Path, state: State, identity: Identity) -> None:
    """Replace the checkpoint at `path`."""
    buffer = BytesIO()
    words = np.frombuffer(json.dumps(identity, sort_keys=True).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, **{_IDENTITY: words}, **state)
    write_atomically(path, [buffer.getbuffer()])


def load(path: Path, identity: Identity) -> State | None:
    """Read the checkpoint at `path`; None if there is none."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            state = {name: archive[name] for name in archive.files}
        found = json.loads(state.pop(_IDENTITY).tobytes())
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint {path} is damaged ({error}): delete it, or start without resuming") from error
    wanted = json.loads(json.dumps(identity))
    different = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    if different:
        raise ValueError(
            f"checkpoint {path} belongs to another run (different: {', '.join(different)}): name another "
            "folder, or start without resuming"
        )
    return state
