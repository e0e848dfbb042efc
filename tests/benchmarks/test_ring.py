"""The measurements of statements that are passed on, in small: real processes, sockets and kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def measured(folder: Path, *words: str) -> dict[str, Any]:
    """Run a script; return the row that it wrote."""
    rows = folder / "rows.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(ROOT / "benchmarks" / words[0]), *words[1:], "--json", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    row: dict[str, Any] = json.loads(rows.read_text())
    return row


@pytest.mark.slow
def test_a_ring_knows_all_and_kills_lose_nothing(tmp_path: Path) -> None:
    row = measured(tmp_path, "ring.py", "ring", "--peers", "6", "--kills", "1")
    assert row["neighbours"] == [2, 2]
    assert row["statements_taken"] == row["statements_needed"] == 30
    assert row["worst"] > 0.9, "four of ten digits alone are worth 0.4"
    assert row["newcomer"]["neighbours"] == 1
    assert row["newcomer"]["accuracy"] > 0.9
    (killed,) = row["kills"]
    assert (killed["statements_missing_meanwhile"], killed["equivocators"]) == (0, 0)
    assert killed["same_identities"]


@pytest.mark.slow
def test_honest_statements_arrive_beside_a_crowd_of_authors(tmp_path: Path) -> None:
    row = measured(tmp_path, "flood_authors.py", "--liars", "2", "--authors", "100", "--lies", "--seconds", "4")
    # On a busy machine a newer statement may replace one that has not been sent yet.
    assert row["flood"]["arrived"] > 0.7 * row["flood"]["honest_statements"] > 0
    assert row["flood"]["honest_neighbours_kept"] == 5
    assert row["flood"]["statements_mib"] <= 64
    assert row["flood"]["refused"].get("bad signature", 0) > 0
    assert row["flood"]["refused"].get("expired", 0) > 0
