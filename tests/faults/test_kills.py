"""A peer that is killed at random moments loses nothing that it has told of: the benchmark, in small."""

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
def test_twenty_kills_lose_nothing(tmp_path: Path) -> None:
    words = [sys.executable, str(BENCHMARKS / "kills.py"), "--kills", "20", "--json", str(tmp_path / "rows.jsonl")]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "rows.jsonl").read_text())
    assert found["kills"] == 20
    assert found["iterations_lost"] == found["samples_lost"] == 0
    assert found["restarts"] == 20 - found["while_starting"] + 1, "every restart that was let to got as far as to learn"
    assert found["iterations"] >= found["restarts"]
    assert found["others_iterations"] > 0
