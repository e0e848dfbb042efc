"""Manifests as a member signs them, for members that then send something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bristle.wire import Group
from bristle.wire.encoding import PLAIN
from bristle.wire.manifest import Manifest, digests_of


def manifest_of(body: bytes, group: Group, author: bytes, sequence: int, /, **changes: Any) -> Manifest:
    """Return the manifest of a body without compression, right in everything but what `changes` say."""
    right = Manifest(
        group=group.id,
        author=author,
        sequence=sequence,
        iteration=1,
        encoding="float32",
        compression=PLAIN,
        classes=group.shape[0],
        features=group.shape[1],
        body=len(body),
        digests=digests_of(body),
    )
    return replace(right, **changes)
