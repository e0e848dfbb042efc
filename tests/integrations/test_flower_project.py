"""The example project in Flower's own simulation engine, by `flwr run`; `make integrations` runs it where Flower is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLWR = shutil.which("flwr")

pytestmark = pytest.mark.skipif(FLWR is None, reason="Flower is not here: run `make integrations`")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder for Flower's settings; what it leaves running on them is ended by its process id."""
    yield tmp_path
    mark = f"FLWR_HOME={tmp_path}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = mark in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours:
            os.kill(int(process.name), signal.SIGTERM)


@pytest.mark.slow
def test_the_example_runs_and_liars_do_not_matter(home: Path) -> None:
    project, rows = home / "project", home / "rows.jsonl"
    shutil.copytree(ROOT / "examples" / "flower_strategy", project)
    done = subprocess.run(
        [
            *(str(FLWR), "run", ".", "--stream", "--federation-config", "num-supernodes=10"),
            *("--run-config", f"rounds=2 out='{rows}'"),
        ],
        cwd=project,
        env={
            **os.environ,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONPATH": str(ROOT / "src"),
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    row = json.loads(rows.read_text())
    assert row["strategy"] == "bristle"
    assert len(row["accuracy"]) == 3
    assert row["accuracy"][-1] > 0.85
    assert "tested and rejected" in done.stdout
