"""The benchmarks still run, as small as they go; no time is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import field
import peers
import suite
from bristle.learning.optimiser import HeadState
from bristle.learning.training import full_step
from field_task import Task, Trainer

ROOT = Path(__file__).parents[2]
needs_peers = pytest.mark.skipif(not peers.available(), reason="ByzFL and ByzPy are not here: run `make peers`")


def measured(script: str, folder: Path, *words: str) -> tuple[list[dict[str, Any]], str]:
    """Run a benchmark in small; return its rows and what it printed."""
    rows = folder / "rows.json"
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--quick", "--json", str(rows), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(rows.read_text()), done.stdout


def test_an_iteration_of_every_rule(tmp_path: Path) -> None:
    rows, printed = measured("connected.py", tmp_path, "--figure", str(tmp_path / "figure.png"))
    assert {row["connected"] for row in rows} == {1, 10, 30}
    assert all(row["milliseconds"] > 0 for row in rows)
    assert "| bristle |" in printed
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@needs_peers
@pytest.mark.slow
def test_rounds_of_all_contenders_learn(tmp_path: Path) -> None:
    rows, printed = measured("rounds.py", tmp_path)
    found = next(row["found"] for row in rows if (row["network"], row["rule"]) == ("head", "median"))
    assert set(found) == {"Bristle", "ByzFL", "ByzPy nodes", "ByzPy runner"}
    assert all(contender["milliseconds"] > 0 for contender in found.values())
    assert "| CNN | median |" in printed


@pytest.mark.slow
@pytest.mark.skipif(not field.available("flower"), reason="Flower is not here: run `make field`")
def test_a_round_over_sockets_beside_flower(tmp_path: Path) -> None:
    task = tmp_path / "task.npz"
    size = field.Size(peers=2, classes=6, rounds=2)
    field.write_task(size, task)
    rows = field.theirs("flower", size, task)
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert rows[-1]["accuracy"] > rows[0]["accuracy"]


def random_task(peers_: int = 2, samples: int = 8) -> Task:
    rng = np.random.default_rng(0)
    features = rng.random((peers_, samples, 20), dtype=np.float32)
    return Task(features, rng.integers(0, 10, (peers_, samples)), features[0], np.zeros(samples, np.int64))


def test_others_train_by_the_same_step_as_ours() -> None:
    task, chosen = random_task(), np.array([1, 3, 4, 6, 7])
    trainer, head = Trainer(task, 1), np.zeros(task.shape, np.float32)
    state = HeadState.start(np.zeros(task.shape, np.float32))
    for _ in range(4):
        head = trainer.step_on(head, chosen)
        state = full_step(state, task.features[1, chosen], task.labels[1, chosen])
    np.testing.assert_allclose(head, state.head, rtol=1e-4, atol=1e-7)


def test_a_task_survives_being_written_down(tmp_path: Path) -> None:
    task = random_task()
    task.save(tmp_path / "task.npz")
    again = Task.load(tmp_path / "task.npz")
    np.testing.assert_array_equal(again.features, task.features)
    assert again.accuracy(np.zeros(task.shape)) == 1.0  # All outputs are equal, so class 0 is named.


def test_summaries_name_who_is_ahead() -> None:
    text = (
        "## 10 models\n| rule | Bristle | best of all / Bristle |\n|---|---|---|\n| krum | 1 | 0.5 |\n"
        "| median | 1 | 3.0 |\n"
    )
    assert suite.of_rules(text) == [
        "| rule latency, 10 models | quickest of ByzFL and ByzPy | 1.8 (0.5 to 3) | theirs in krum |"
    ]
    row = {"peers": 5, "bytes": 10.0, "memory": 4, "good_bytes": None}
    lines = suite.of_field(
        [{**row, "system": "Bristle, bristle", "seconds": 2.0}, {**row, "system": "Flower", "seconds": 1.0}]
    )
    assert lines[0] == "| time of a round, 5 peers over sockets | Flower | 0.50 | **theirs** |"
    assert len(lines) == 3


def test_results_go_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{suite.START}\nold\n{suite.END}\nafter\n")
    suite.write(page, "new")
    assert page.read_text() == f"before\n{suite.START}\n\nnew\n\n{suite.END}\nafter\n"
    assert list(tmp_path.iterdir()) == [page]


def test_every_part_has_its_script_and_is_kept_alive() -> None:
    assert all((ROOT / "benchmarks" / part.script).exists() for part in suite.PARTS)
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "suite.py"), "--only", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no part nothing" in done.stderr
