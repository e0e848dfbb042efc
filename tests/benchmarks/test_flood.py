"""The measurement of floods, in small: real processes and sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["join", "everything", "probe", "roster", "records"])
def test_a_flooded_peer_goes_on(tmp_path: Path, kind: str) -> None:
    rows = tmp_path / "rows.jsonl"
    small = {
        "rate": 2000,
        "identities": 40,
        "seconds": 2,
        "repeats": 1,
        "afterwards": 2,
        "interval": 0.05,
        "json": rows,
    }
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    words = [sys.executable, str(ROOT / "benchmarks" / "flood.py"), kind, *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("| flood |")
    row = json.loads(rows.read_text())
    assert row["flood_heads"] > 0
    assert row["flood_mib"] < row["quiet_mib"] + 32
    assert sum(row["refused"].values()) > 100
    assert row["neighbours"] >= 3
