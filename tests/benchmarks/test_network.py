"""What the network must do, as the benchmark measures it, in small: real sockets, processes and namespaces.

In tests/p2p there is the rest: groups that never mix, outsiders, forged senders and replays (test_node.py,
test_node_hostile.py, test_overlay.py), and bytes (test_overlay.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LEARNED = 0.75
"""Six of ten digits alone are worth less than 0.6: what is above comes from others, sooner or later by the machine."""


def measured(case: str, rows: Path) -> list[dict[str, Any]]:
    """Run one case of the benchmark in small, and return its rows."""
    words = [sys.executable, str(ROOT / "benchmarks" / "network.py"), case, "--quick", "--json", str(rows)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    if not rows.exists():
        pytest.skip(done.stderr.strip().splitlines()[-1])
    return [json.loads(line) for line in rows.read_text().splitlines()]


@pytest.mark.slow
def test_a_mesh_keeps_step(tmp_path: Path) -> None:
    (row,) = measured("mesh", tmp_path / "rows.jsonl")
    assert row["neighbours"] == 4
    assert row["heard"] > 0.5, "how many are heard in time depends on the machine"
    assert row["accuracy"] > LEARNED
    assert row["bytes_per_head"] <= 33_000


@pytest.mark.slow
def test_learning_survives_loss_delay_reordering_and_duplication(tmp_path: Path) -> None:
    (row,) = measured("rough", tmp_path / "rows.jsonl")
    assert row["neighbours"] == 4
    assert row["accuracy"] > LEARNED
    assert row["retransmissions"] > 0


def test_trained_heads_have_few_bytes_over_small_datagrams(tmp_path: Path) -> None:
    sizes = {row["sent"]: row["bytes_per_head"] for row in measured("bytes", tmp_path / "rows.jsonl")}
    assert sizes["in full"] <= 8_500
    assert sizes["as differences"] <= 2_500


@pytest.mark.slow
def test_peers_come_and_go_and_a_partition_heals(tmp_path: Path) -> None:
    (row,) = measured("churn", tmp_path / "rows.jsonl")
    assert row["stores_whole"]
    assert row["iterations_done_twice"] <= 1
    assert not row["heads_across_the_cut"]
    assert row["accuracy_at_the_end"] > LEARNED
