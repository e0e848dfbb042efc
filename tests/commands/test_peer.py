"""`bristle peer` as people run it: processes, signals, kill -9, and the command line's mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bristle.cli import app, main
from bristle.commands.peer import PeerOptions, address, http_address, names, read_key_ids, read_secret
from bristle.commands.status import get_status
from bristle.data import load
from bristle.peer.conditions import describe
from bristle.peer.roster_file import RosterFile
from bristle.peer.store_files import is_running

RUNNER = CliRunner()
LAUNCH = [sys.executable, "-W", "error", "-c", "from bristle.cli import main; main()"]


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few digits as somebody's own .npz file."""
    data = load("mnist")
    chosen = np.concatenate([np.flatnonzero(data.y_train == digit)[:25] for digit in range(10)])
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(
        path, x_train=data.x_train[chosen], y_train=data.y_train[chosen], x_test=data.x_test[:200],
        y_test=data.y_test[:200],
    )  # fmt: skip
    return path


class Process:
    """A running `bristle peer`."""

    def __init__(self, words: list[str], folder: Path, env: dict[str, str]) -> None:
        self.log = folder / f"log-{time.monotonic_ns()}.jsonl"
        with self.log.open("w") as file:
            self.process = subprocess.Popen([*LAUNCH, *words], stderr=file, cwd=folder, env=env)

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for(self, event: str, condition: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        while True:
            for found in self.events():
                if found["event"] == event and condition(found):
                    return found
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=120)


@pytest.fixture
def launch(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Process]]:
    """Start peers that end with the test."""
    started: list[Process] = []
    env = {**os.environ, "BRISTLE_CACHE": str(tmp_path_factory.getbasetemp() / "cache"), "OMP_NUM_THREADS": "1"}

    def start(name: str, data: Path, *words: str) -> Process:
        usual = ["peer", "--application", "digits", "--data", str(data), "--folder", name, "--log-format", "json"]
        started.append(Process([*usual, *words], tmp_path, env))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGKILL)


def test_two_processes_teach_each_other(launch: Callable[..., Process], digits: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple")
    secret.chmod(0o600)
    common = ["--interval", "0.05", "--secret-file", str(secret), "--rule", "bristle"]
    first = launch("a", digits, "--classes", "0,1,2,3,4,5,6", "--http", "0", *common)
    known = first.wait_for("listening")["address"]
    rows = tmp_path / "rows" / "b.jsonl"
    second = launch(
        "b", digits, "--classes", "3,4,5,6,7,8,9", "--known", known, "--iterations", "40", "--json", str(rows), *common
    )
    assert second.process.wait(timeout=300) == 0, second.log.read_text()
    kept = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["iteration"] for row in kept] == list(range(1, 41))
    assert kept[-1]["accuracy"] > 0.75, "seven of ten classes alone are worth 0.7"
    assert any(one["share"] > 0 for row in kept for one in row["heard"])

    running = get_status(tmp_path / "a")
    assert running.running
    assert running.address == known
    assert running.counters["heads_in"] > 3
    first.wait_for("iteration", lambda event: event.get("kept", 0) > 0)
    assert first.end(signal.SIGTERM) == 0
    assert first.events()[-1]["event"] == "stopped"
    assert first.events()[-1]["iteration"] == get_status(tmp_path / "a").iteration
    for private in ("correct horse", (tmp_path / "a" / "http.token").read_text().strip()):
        assert private not in first.log.read_text() + second.log.read_text()

    shown = RUNNER.invoke(app, ["status", str(tmp_path / "b")], env={"COLUMNS": "150"})
    assert shown.exit_code == 0
    for words in ("(stopped)", "digits", "3: 15+10", "refused", "kept: "):
        assert words in shown.output, shown.output
    shown = RUNNER.invoke(app, ["status", str(tmp_path / "b"), "--json", "-"])
    assert json.loads(shown.output)["iteration"] == 40
    assert RUNNER.invoke(app, ["status", str(tmp_path / "b"), "--json", str(tmp_path / "s.json")]).exit_code == 0
    assert json.loads((tmp_path / "s.json").read_text())["running"] is False


@pytest.mark.slow
def test_interrupted_before_its_end_is_another_exit_code(
    launch: Callable[..., Process], digits: Path, tmp_path: Path
) -> None:
    peer = launch("a", digits, "--interval", "60", "--iterations", "3")
    peer.wait_for("data")
    second = launch("a", digits)
    assert second.process.wait(timeout=120) == 2
    assert "running in a already" in second.log.read_text()
    assert is_running(tmp_path / "a")
    assert peer.end(signal.SIGINT) == 130
    assert get_status(tmp_path / "a").iteration == 1


def stored_members(folder: Path) -> int:
    with RosterFile.of_member(folder) as file:
        return len(file.roster().members())


@pytest.mark.slow
def test_a_founded_group_survives_kills(launch: Callable[..., Process], digits: Path, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = RUNNER.invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    def members(name: str, count: int) -> set[str]:
        while True:
            found = {one.key_id for one in get_status(tmp_path / name).members}
            if len(found) == count:
                return found
            time.sleep(0.05)

    first = launch("a", digits, "--found", "--http", "0")
    known = first.wait_for("listening")["address"]
    (tmp_path / "for-b").write_text(said("invite", str(tmp_path / "a"), "--seats", "1"))
    (tmp_path / "for-nobody").write_text(said("invite", str(tmp_path / "a")))
    second = launch("b", digits, "--invitation-file", "for-b", "--known", known, "--http", "0")
    second.wait_for("data")
    (tmp_path / "for-c").write_text(said("invite", str(tmp_path / "b")))
    third = launch("c", digits, "--invitation-file", "for-c", "--known", known, "--http", "0")
    everybody = members("a", 3)
    assert members("c", 3) == everybody
    for one in (first, second, third):
        one.end(signal.SIGKILL)
    # Nothing is said again but where to begin: the folders remember the group, and what was offered.
    first = launch("a", digits, "--http", "0")
    known = first.wait_for("listening")["address"]
    launch("c", digits, "--known", known, "--http", "0").wait_for("listening")
    while len(get_status(tmp_path / "a").neighbours) < 1:
        time.sleep(0.05)
    assert members("a", 3) == everybody
    while (
        stored_members(tmp_path / "a") < 3
    ):  # What a peer hears from another one is soon on the disk, but not at once.
        time.sleep(0.05)
    texts = {(tmp_path / name).read_text() for name in ("for-b", "for-nobody")}
    assert said("invite", str(tmp_path / "a")) not in texts
    (gone,) = [one for one in get_status(tmp_path / "a").members if one.generation == 1]
    assert "removed 2 of 3 members" in said("revoke", str(tmp_path / "a"), gone.key_id)
    while get_status(tmp_path / "a").neighbours:
        time.sleep(0.05)
    first.end(signal.SIGKILL)
    assert len(get_status(tmp_path / "a").members) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "nowhere.npz"], "nowhere.npz"),
        ([], "--group-classes"),
        (["--data", "mnist", "--classes", "0,11"], "no class '11'"),
        (["--data", "mnist", "--classes", "0,0"], "different names"),
        (["--data", "mnist", "--group-classes", "0,1"], "class '2', which is not among"),
        (["--data", "mnist", "--samples", "0"], "at least 1"),
        (["--data", "mnist", "--listen", "here"], "HOST:PORT"),
        (["--data", "mnist", "--known", "host:99999"], "HOST:PORT"),
        (["--data", "mnist", "--http", "ten"], "HOST:PORT"),
        (["--data", "mnist", "--hours", "25-3"], "25-3"),
        (["--data", "mnist", "--rule", "best"], "there is no rule 'best'"),
        (["--data", "mnist", "--rule", "clipping"], "is a step, not a rule"),
        (["--data", "mnist", "--interval", "-1"], "interval"),
        (["--data", "mnist", "--iterations", "0"], "at least 1"),
        (["--data", "mnist", "--cpu-share", "0"], "cpu_share"),
        (["--data", "mnist", "--max-bytes-per-day", "-5"], "-5"),
        (["--data", "mnist", "--backbone", "none.onnx"], "none.onnx"),
        (["--data", "mnist", "--secret-file", "none"], "no such file"),
        (["--data", "mnist", "--members-file", "none"], "no such file"),
        (["--data", "mnist", "--invitation-file", "none"], "no such file"),
        (["--data", "mnist", "--founders-file", "none"], "no such file"),
        (["--data", "mnist", "--rule", "bristle", "--one-voice", "1"], "options of the rule evidence"),
        (["--data", "mnist", "--epsilon", "1"], "noise on statements needs both"),
        (["--data", "mnist", "--epsilon", "-1", "--clip", "32"], "epsilon"),
    ],
)
def test_bad_options_are_one_line(words: list[str], message: str, complaint: Callable[..., str]) -> None:
    assert message in complaint("peer", "--application", "digits", "--folder", "a", *words)


def test_status_of_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for folder, message in ((tmp_path, "no peer in"), (tmp_path / "none", "no folder")):
        monkeypatch.setattr("sys.argv", ["bristle", "status", str(folder)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_options_stand_for_what_they_say(tmp_path: Path) -> None:
    options = PeerOptions(application="a", folder=tmp_path, only_on_power=True, hours="22-6", cpu_share=0.5)
    assert describe(options.make_pace().train_when) == "on power and between 22:00 and 06:00"
    assert options.make_rule() is None
    assert address("[::1]:80", "--known") == ("::1", 80)
    assert http_address("8080") == ("127.0.0.1", 8080)
    assert http_address("0.0.0.0:1") == ("0.0.0.0", 1)
    assert names("a, b", "--classes") == ("a", "b")


def test_secrets_and_members_are_read_with_care(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"quite a long secret\n")
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        read_secret(secret)
    secret.chmod(0o600)
    assert read_secret(secret) == b"quite a long secret"
    members = tmp_path / "members"
    members.write_text(f"# ours\n{'ab' * 20}  # the clinic\n\n")
    assert read_key_ids(members, "--members-file") == frozenset({bytes.fromhex("ab" * 20)})
    members.write_text("xyz\n")
    with pytest.raises(ValueError, match="line 1: 'xyz'"):
        read_key_ids(members, "--members-file")
