"""The demo as a person runs it: real digits, real processes, real sockets, and what it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bristle.commands.demo import Demo
from bristle.commands.demo.run import shares

BRISTLE = [sys.executable, "-c", "from bristle.cli import main; main()"]
COLUMNS = {
    "figure", "rule", "attack", "peers", "attackers", "classes_per_peer", "samples_per_class", "seed", "iteration",
    "accuracy_mean", "accuracy_min", "bytes_sent", "seconds", "round_seconds", "attacker_weight", "engine",
}  # fmt: skip


def bristle(*words: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BRISTLE_CACHE": str(cache), "COLUMNS": "120"}
    return subprocess.run([*BRISTLE, *words], capture_output=True, text=True, env=environment, timeout=600, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
def test_peers_on_a_real_network_learn_from_one_statement_each(tmp_path: Path, cache: Path) -> None:
    rows_file, out = tmp_path / "rows.jsonl", tmp_path / "out"
    words = ["--peers", "5", "--attackers", "2", "--iterations", "10", "--classes", "6", "--processes", "2"]
    done = bristle("demo", *words, "--json", str(rows_file), "--out", str(out), cache=cache)
    assert done.returncode == 0, done.stderr
    (row,) = [json.loads(line) for line in rows_file.read_text().splitlines()]
    assert set(row) >= COLUMNS
    assert row["engine"] == "network"
    everything = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    ends = {one["rule"]: one["accuracy_mean"] for one in everything if one["engine"] != "network"}
    # What is sent is rounded; what is simulated is not.
    assert abs(row["accuracy_mean"] - ends["evidence"]) < 0.005
    assert row["accuracy_min"] > 0.96
    assert row["attacker_weight"] == 0
    assert row["heard"] == 1
    assert 10_000 < row["bytes_sent"] / 6 < 25_000, "one statement to every neighbour"
    assert "everybody found everybody. 7 UDP sockets" in done.stderr
    for word in (
        "evidence (network)",
        "evidence (simulated)",
        "bristle (simulated)",
        "local only",
        "oracle",
        "refused",
    ):
        assert word in done.stdout
    assert "a minute, signs of life" in done.stdout
    assert "<html" in (out / "report.html").read_text()
    assert f"Report: {out / 'report.html'}" in done.stdout


@pytest.mark.slow
def test_a_real_network_exchanges_heads_too(tmp_path: Path, cache: Path) -> None:
    rows_file, out = tmp_path / "rows.jsonl", tmp_path / "out"
    words = ["--rule", "bristle", "--peers", "5", "--attackers", "2", "--iterations", "30", "--classes", "6"]
    done = bristle("demo", *words, "--json", str(rows_file), "--out", str(out), cache=cache)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [10, 20, 30]
    last = rows[-1]
    assert last["accuracy_mean"] > 0.8, "six of ten classes alone are worth 0.6"
    assert last["attacker_weight"] < 0.05
    assert last["heard"] > 0.1
    # To six others, thirty times, up to 33 KB each.
    assert 0.1 * 6 * 30 * 2_000 < last["bytes_sent"] < 1.5 * 6 * 30 * 5_000
    assert last["seconds"] >= 29 * 0.3, "the interval between iterations is kept"
    assert "iteration   30: accuracy" in done.stderr
    for word in ("bristle (network)", "fedavg (simulated)", "tested and rejected"):
        assert word in done.stdout
    everything = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    ends = {row["rule"]: row["accuracy_mean"] for row in everything if row["iteration"] == 30}
    assert ends["fedavg"] < 0.5 < ends["oracle"]


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_and_keeps_what_there_is(tmp_path: Path, cache: Path) -> None:
    rows_file, out = tmp_path / "rows.jsonl", tmp_path / "out"
    words = ["demo", "--peers", "3", "--attackers", "1", "--iterations", "100000", "--json", str(rows_file)]
    words += ["--rule", "bristle"]
    environment = {**os.environ, "BRISTLE_CACHE": str(cache)}
    running = subprocess.Popen(
        [*BRISTLE, *words, "--out", str(out), "--loss", "0.1"], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while not (rows_file.exists() and rows_file.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.2)
        children = psutil.Process(running.pid).children(recursive=True)
        assert len(children) >= 2, "peers and relay have processes of their own"
        os.killpg(running.pid, signal.SIGINT)  # As a terminal does: to the whole group.
        output, errors = running.communicate(timeout=180)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, errors
    assert errors.strip().endswith(f"bristle: interrupted; the rows so far are in {rows_file}")
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=120)[1], "none is left behind"
    assert json.loads(rows_file.read_text().splitlines()[0])["iteration"] == 10
    assert "Accuracy of the benign peers after" in output
    assert (out / "report.html").exists()


@pytest.mark.slow
def test_a_process_that_dies_ends_the_demo(tmp_path: Path, cache: Path) -> None:
    words = ["demo", "--rule", "fedavg", "--peers", "2", "--attackers", "0", "--iterations", "100000"]
    words += ["--out", str(tmp_path / "out")]
    running = subprocess.Popen(
        [*BRISTLE, *words], env={**os.environ, "BRISTLE_CACHE": str(cache)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stderr is not None
        for line in running.stderr:
            if "everybody found everybody" in line:
                break
        for child in psutil.Process(running.pid).children():
            child.kill()
        _, errors = running.communicate(timeout=180)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 1
    assert "a process of the demo ended unexpectedly" in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "bucketing"}, "'bucketing' is a step, not a rule"),
        ({"attack": "label-flop"}, "there is no attack 'label-flop'; did you mean 'label-flip'?"),
        ({"attack": "foreign-trojan"}, "the attack 'foreign-trojan' knows what no peer sends.*Over a network: none, "),
        ({"attack": "krum"}, "the attack 'krum' knows what no peer sends"),
        ({"attack": "non-finite"}, "the attack 'non-finite' sends numbers that the wire format"),
        ({"classes_per_peer": 11}, "classes_per_peer must lie between 1 and 10, not 11"),
        ({"peers": 0}, "a world needs at least 1 peer"),
        ({"iterations": 0}, "iterations must be at least 1, not 0"),
        ({"peers": 100_000}, "100005 peers and attackers in one full mesh are more than 200"),
        ({"processes": 16}, "processes must lie between 1 and 15, not 16"),
        ({"interval": -1.0}, "interval must lie between 0 and 60 seconds"),
    ],
)
def test_mistakes_are_found_before_anything_takes_time(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Demo(**options).check()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rule", "krumm"], "bristle: there is no rule 'krumm'; did you mean 'krum'?"),
        (["--loss", "0.9"], "bristle: loss must lie between 0 and 0.5, not 0.9"),
    ],
)
def test_mistakes_get_one_line(words: list[str], message: str, cache: Path) -> None:
    done = bristle("demo", *words, cache=cache)
    assert done.returncode == 2
    assert done.stderr.strip().startswith(message)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_a_demo_is_a_value() -> None:
    assert Demo() == Demo(rule="evidence", peers=10, attackers=5)
    assert Demo(seed=3).scenario("krum").seed == 3
    assert Demo().holds(8) == "8 9 0 1"
    assert Demo(seed=3).shortened() == Demo(seed=3, peers=5, attackers=2, classes_per_peer=6, iterations=20)
    assert Demo(peers=3, attackers=0, iterations=4).shortened().members == 3


@pytest.mark.parametrize("peers", [1, 2, 7, 10])
@pytest.mark.parametrize("attackers", [0, 1, 5, 30])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_member_has_one_process_and_attackers_share_theirs(peers: int, attackers: int, processes: int) -> None:
    demo = Demo(peers=peers, attackers=attackers, processes=min(processes, peers + attackers))
    spread = shares(demo)
    assert sorted(member for share in spread for member in share) == list(range(peers + attackers))
    assert all(spread)
    assert spread[0][0] == 0
    assert len([share for share in spread if any(member >= peers for member in share)]) <= 1
