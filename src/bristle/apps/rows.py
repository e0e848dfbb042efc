"""Results as JSON Lines: one object a row, so that a file cut short is still a file of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows to `path`, each as soon as it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, allow_nan=False) + "\n")
            file.flush()
