"""`--dashboard` as a person gives it: the address on stderr, the state behind it, and an end that nothing holds up."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle.data import mnist

WORLD = """
[world]
peers = 4
attackers = 1
iterations = 1000000
[attack]
name = "label-flip"
[data]
train_samples = 1500
test_samples = 100
"""


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    log = folder / "log"
    environment = {**os.environ, "BRISTLE_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    with log.open("w") as told:
        started = subprocess.Popen(
            [sys.executable, "-c", "from bristle.cli import main; main()", *words, "--dashboard"],
            stdout=subprocess.DEVNULL, stderr=told, cwd=folder, env=environment,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 180
        while not (found := re.search(r"Live page: (http://127\.0\.0\.1:\d+/\S+/)", log.read_text())):
            assert started.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "there is no address"
            time.sleep(0.1)
        yield started, found[1]
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()


def state_after(url: str, iteration: int) -> dict[str, Any]:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{url}state?after=-1", timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
        if found.get("judgements") and found["iteration"] >= iteration:
            return found
        time.sleep(0.2)
    raise TimeoutError(f"iteration {iteration} did not come")


@pytest.mark.slow
def test_simulate(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(WORLD)
    with running(tmp_path, "simulate", "world.toml") as (started, url):
        first = state_after(url, 1)
        later = state_after(url, first["iteration"] + 1)
        assert later["state"] == "running"
        assert [one["name"] for one in later["members"]] == ["peer 0", "peer 1", "peer 2", "peer 3", "attacker 1"]
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=300) == 130


@pytest.mark.slow
def test_peer(tmp_path: Path) -> None:
    digits, few = mnist(), slice(0, 200)
    np.savez(
        tmp_path / "few.npz",
        x_train=digits.x_train[few], y_train=digits.y_train[few], x_test=digits.x_test[few], y_test=digits.y_test[few],
    )  # fmt: skip
    common = ("peer", "--application", "digits", "--data", str(tmp_path / "few.npz"), "--interval", "0.2")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with running(here, *common, "--folder", "one", "--listen", "127.0.0.1:0") as (first, url):
        log = here / "log"
        while not (found := re.search(r"listening\s+address (\S+)", log.read_text())):
            time.sleep(0.1)
        with running(there, *common, "--folder", "two", "--known", found[1]) as (second, _):
            told = state_after(url, 1)
            assert [one["kind"] for one in told["members"]] == ["own", "unknown"]
            assert told["title"] == "digits"
            second.send_signal(signal.SIGTERM)
            second.wait(timeout=300)
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=300) == 0


def test_a_wrong_address_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text(WORLD)
    words = ["simulate", "world.toml", "--dashboard-at", "nowhere"]
    done = subprocess.run(
        [sys.executable, "-c", "from bristle.cli import main; main()", *words],
        capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("bristle: --dashboard-at 'nowhere': write HOST:PORT")
    assert len(done.stderr.splitlines()) == 1
