"""The demo as a person runs it: real digits, real processes, and what it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bristle.apps.demo import Demo

BRISTLE = [sys.executable, "-c", "from bristle.cli import main; main()"]


def bristle(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BRISTLE_CACHE": str(cache), "COLUMNS": "100"}
    return subprocess.run([*BRISTLE, *words], capture_output=True, text=True, env=environment, timeout=240, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
def test_bristle_learns_where_the_mean_fails(tmp_path: Path, cache: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"
    words = ["demo", "--rule", "bristle", "--rule", "fedavg", "--iterations", "60", "--json", str(rows_file)]
    done = bristle(*words, cache=cache)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    last = {row["rule"]: row for row in rows if row["iteration"] == 60}
    assert last["bristle"]["accuracy_mean"] > 0.92
    assert last["bristle"]["attacker_weight"] < 0.02
    assert last["fedavg"]["accuracy_mean"] < 0.5
    assert "tested and rejected" in done.stdout
    assert "oracle" in done.stdout
    assert [row["iteration"] for row in rows if row["rule"] == "bristle"] == list(range(5, 61, 5))


@pytest.mark.slow
def test_ctrl_c_ends_it_and_keeps_the_rows(tmp_path: Path, cache: Path) -> None:
    rows_file = tmp_path / "rows.jsonl"
    words = ["demo", "--rule", "bristle", "--iterations", "100000", "--json", str(rows_file)]
    environment = {**os.environ, "BRISTLE_CACHE": str(cache)}
    running = subprocess.Popen(
        [*BRISTLE, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not (rows_file.exists() and rows_file.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.2)
        os.killpg(running.pid, signal.SIGINT)  # As a terminal does: to the whole group.
        _, errors = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, errors
    assert errors.strip().endswith(f"bristle: interrupted; the rows so far are in {rows_file}")
    assert "Traceback" not in errors
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    assert rows[0]["iteration"] == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rule", "krumm"], "bristle: there is no rule 'krumm'; did you mean 'krum'?"),
        (["--rule", "bucketing"], "bristle: 'bucketing' is a step, not a rule"),
        (["--attack", "label-flop"], "bristle: there is no attack 'label-flop'; did you mean 'label-flip'?"),
        (["--classes", "11"], "bristle: classes_per_peer must lie between 1 and 10, not 11"),
        (["--peers", "0"], "bristle: a world needs at least 1 peer"),
        (["--iterations", "0"], "bristle: iterations must be at least 1, not 0"),
        (["--peers", "100000"], "bristle: "),
    ],
)
def test_mistakes_get_one_line_before_anything_takes_time(words: list[str], message: str, cache: Path) -> None:
    done = bristle("demo", *words, cache=cache)
    assert done.returncode == 2
    assert done.stderr.strip().startswith(message)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_a_demo_is_a_value() -> None:
    assert Demo() == Demo(rules=("bristle", "fedavg", "median", "krum", "local"))
    assert Demo(seed=3).scenario("krum").seed == 3
