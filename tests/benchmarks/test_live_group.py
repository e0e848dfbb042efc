"""A small group of live peers, as the benchmark runs it: all hear their neighbours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "live_group.py"


@pytest.mark.slow
def test_a_group_in_two_processes_hears_all_its_neighbours(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    words = [sys.executable, str(SCRIPT), "--peers", "4", "--iterations", "8", "--json", str(rows)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    row = json.loads(rows.read_text())
    assert (row["peers"], row["neighbours_least"]) == (4, 3)
    assert row["heard_least"] > 0, "on a busy machine a peer may end long before another one"
    assert row["mb_a_peer"] > 0
    assert row["cpu_ms"] > 0
