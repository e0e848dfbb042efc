"""Peers among attackers while everything goes wrong at once: the soak, in small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are Unix's")
def test_peers_go_on_whatever_befalls_them(tmp_path: Path) -> None:
    words = [sys.executable, str(BENCHMARKS / "soak.py"), "--quick", "--json", str(tmp_path / "rows.jsonl")]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    *rows, summary = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert summary["lost"] == 0
    assert summary["unexpected"] == []
    assert summary["happened"]["kill"] == summary["happened"]["restart"] > 0
    assert len(summary["iterations"]) == summary["peers"]
    assert min(summary["iterations"]) >= summary["least"]
    assert summary["others_heard"] > 0
    assert summary["attackers_weight"] < 0.05
    assert max(row["files"] for row in rows if "files" in row) < 50
