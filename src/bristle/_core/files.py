"""Atomic writes of files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write `pieces` to a new file beside `path`, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
