"""Heads and manifests as a member signs and sends them, for members that then send something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.wire import Group
from bristle.wire.encoding import PLAIN
from bristle.wire.grid import encode_grid, on_grid
from bristle.wire.manifest import Manifest, digests_of


def head_bodies(head: NDArray[np.float32]) -> tuple[bytes, bytes]:
    """Return a head as it is signed, and as it is sent in full."""
    public = on_grid(head)
    return public.content(), encode_grid(public, None)


def manifest_of(body: bytes, group: Group, author: bytes, sequence: int, /, **changes: Any) -> Manifest:
    """Return the manifest of a head's body, right in everything but what `changes` say."""
    right = Manifest(
        group=group.id,
        author=author,
        sequence=sequence,
        iteration=1,
        encoding="grid",
        compression=PLAIN,
        classes=group.shape[0],
        features=group.shape[1],
        body=len(body),
        digests=digests_of(body),
    )
    return replace(right, **changes)
