"""Peers that come and go: real processes in network namespaces of their own, killed, restarted, late, and parted.

Every peer is a `bristle peer` with a folder, an address and a network interface of its own. Two bridges with a cable
between them carry their datagrams; pulling the cable parts the network. Needs `ip` and the right to make namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bristle.commands.status import get_status
from bristle.data import load
from bristle.peer.status import Status, read_status
from bristle.peer.store import read_decisions
from bristle.peer.store_files import STORE

PORT = 7700
INTERVAL = 0.25
SIDES = 2


class NotPermittedError(Exception):
    """Namespaces cannot be made here."""


def enter_own_network() -> None:
    """Start this program again in a user, mount and network namespace of its own; return in there.

    Raises
    ------
    NotPermittedError
        If the machine does not allow that.
    """
    if os.environ.get("BRISTLE_NETWORK") == "own":
        _run("mount -t tmpfs none /run")
        Path("/run/netns").mkdir()
        _run("ip link set lo up")
        return
    for tool in ("unshare", "ip", "mount"):
        if shutil.which(tool) is None:
            raise NotPermittedError(f"there is no `{tool}` here")
    tried = subprocess.run(
        ["unshare", "-rmn", "sh", "-c", "mount -t tmpfs none /run && mkdir /run/netns && ip netns add try"
         " && ip link add try type bridge"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        raise NotPermittedError(f"network namespaces cannot be made here: {tried.stderr.strip()}")
    os.environ["BRISTLE_NETWORK"] = "own"
    os.execvp("unshare", ["unshare", "-rmn", sys.executable, *sys.argv])


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True, text=True)


@dataclass
class Peers:
    """Peers in namespaces: the first half at one bridge, the others at another.

    Parameters
    ----------
    folder : Path
        Where they keep what they must not lose.
    count : int
        How many there may be.
    test_images : int
        On how many images accuracy is measured.
    """

    folder: Path
    count: int
    test_images: int
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        digits = load("mnist")
        chosen = np.concatenate([np.flatnonzero(digits.y_train == digit)[:20] for digit in range(10)])
        tested = slice(0, self.test_images)
        np.savez(
            self.folder / "digits.npz",
            x_train=digits.x_train[chosen],
            y_train=digits.y_train[chosen],
            x_test=digits.x_test[tested],
            y_test=digits.y_test[tested],
        )
        for side in range(SIDES):
            _run(f"ip link add side{side} type bridge")
            _run(f"ip link set side{side} up")
        _run("ip link add cable0 type veth peer name cable1")
        for side in range(SIDES):
            _run(f"ip link set cable{side} master side{side}")
            _run(f"ip link set cable{side} up")
        for number in range(self.count):
            _run(f"ip netns add peer{number}")
            _run(f"ip link add port{number} type veth peer name eth0 netns peer{number}")
            _run(f"ip link set port{number} master side{self.side(number)}")
            _run(f"ip link set port{number} up")
            _run(f"ip -n peer{number} address add {self.host(number)}/24 dev eth0")
            _run(f"ip -n peer{number} link set eth0 up")
            _run(f"ip -n peer{number} link set lo up")

    def side(self, number: int) -> int:
        """Return at which bridge a peer is."""
        return number * SIDES // self.count

    def host(self, number: int) -> str:
        """Return a peer's address."""
        return f"10.77.0.{number + 1}"

    def home(self, number: int) -> Path:
        """Return a peer's folder."""
        return self.folder / f"peer-{number}"

    def rows(self, number: int) -> Path:
        """Return where a peer writes a row for every iteration."""
        return self.folder / f"peer-{number}.jsonl"

    def done(self, number: int) -> list[int]:
        """Return the iterations that a peer has done, in their order; a line that SIGKILL cut short is left out."""
        found = []
        for line in self.rows(number).read_text(encoding="utf-8").splitlines():
            try:
                found.append(int(json.loads(line)["iteration"]))
            except json.JSONDecodeError:
                continue
        return found

    def start(self, number: int, *, known: Iterable[int] = ()) -> None:
        """Start a peer, or start it again."""
        mine = ",".join(str((number + step) % 10) for step in range(6))
        words = (
            f"ip netns exec peer{number} {sys.executable} -c __ peer --rule bristle --application churn "
            f"--folder {self.home(number)} "
            f"--data {self.folder / 'digits.npz'} --classes {mine} --listen {self.host(number)}:{PORT} "
            f"--interval {INTERVAL} --test-every 5 --seed {number} --json {self.rows(number)}"
        ).split()
        words[words.index("__")] = "from bristle.cli import main; main()"
        for other in known:
            words += ["--known", f"{self.host(other)}:{PORT}"]
        with (self.folder / f"peer-{number}.log").open("ab") as log:
            self.processes[number] = subprocess.Popen(words, stdout=log, stderr=log, env=_environment(self.folder))

    def kill(self, number: int) -> None:
        """End a peer with SIGKILL, wherever it is in its work."""
        process = self.processes.pop(number)
        process.kill()
        process.wait()

    def part(self) -> None:
        """Pull the cable between the bridges."""
        _run("ip link set cable0 down")

    def heal(self) -> None:
        """Put the cable back."""
        _run("ip link set cable0 up")

    def status(self, number: int) -> Status | None:
        """Return what a peer's folder says; None while there is nothing in it."""
        try:
            return read_status(self.home(number), running=number in self.processes)
        except (OSError, ValueError):
            return None

    def iteration(self, number: int) -> int:
        """Return how far a peer has come."""
        return 0 if (status := self.status(number)) is None else status.iteration

    def accuracy(self, number: int) -> float:
        """Return what a peer reached when it was last measured."""
        status = self.status(number)
        return 0.0 if status is None or status.accuracy is None else status.accuracy

    def heard(self, number: int, last: int = 5) -> set[str]:
        """Return the key ids of those whom a peer heard in its last iterations."""
        with sqlite3.connect(f"{(self.home(number) / STORE).as_uri()}?mode=ro", uri=True) as database:
            records = read_decisions(database, last)
        database.close()
        return {one.sender for record in records for one in record.heard}

    def key_id(self, number: int) -> str:
        """Return who a peer is."""
        status = self.status(number)
        assert status is not None
        return status.key_id

    def hears_all(self, number: int, others: Iterable[int]) -> bool:
        """Tell whether a peer has lately heard all of some others."""
        return {self.key_id(other) for other in others} - {self.key_id(number)} <= self.heard(number)

    def wait(self, condition: Callable[[], bool], what: str, *, seconds: float = 120.0) -> float:
        """Wait until something is so; return how long that took."""
        began = time.monotonic()
        while not condition():
            for number, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"peer {number} has ended: {(self.folder / f'peer-{number}.log').read_text()}")
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.1)
        return time.monotonic() - began

    def whole(self) -> bool:
        """Tell whether every store is intact: SQLite's check, and what a peer itself checks when it reads it."""
        for number in range(self.count):
            with sqlite3.connect(self.home(number) / STORE) as database:
                found = database.execute("PRAGMA integrity_check").fetchone()[0]
            database.close()
            if found != "ok" or get_status(self.home(number)).iteration < 1:
                return False
        return not list(self.folder.glob("peer-*/*damaged*"))

    def stop(self) -> None:
        """End all peers gracefully."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(timeout=30)
        self.processes.clear()


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "BRISTLE_CACHE": str(folder / "cache")}


def churn(folder: Path, *, quick: bool) -> dict[str, float | bool]:
    """Let peers be killed, come back, come late, leave for good, and be parted; return what became of them."""
    peers = Peers(folder, 6, test_images=500 if quick else 10_000)
    first, late = range(5), 5
    try:
        for number in first:
            peers.start(number, known=() if number == 0 else (0,))
        early = 15 if quick else 30
        peers.wait(lambda: min(map(peers.iteration, first)) >= early, f"iteration {early}")
        killed, gone = 1, 2
        peers.kill(killed)
        peers.kill(gone)
        at_death, accuracy_then = peers.iteration(killed), peers.accuracy(killed)
        left = [0, 3, 4]
        goal = max(map(peers.iteration, left)) + 10
        peers.wait(lambda: min(map(peers.iteration, left)) >= goal, "the rest go on")
        while_gone = min(map(peers.accuracy, left))
        peers.start(killed, known=(0,))
        there = [0, 1, 3, 4]
        back = peers.wait(lambda: peers.iteration(killed) > at_death, "the killed peer goes on where it was")
        caught_up = peers.wait(
            lambda: peers.hears_all(killed, there) and peers.accuracy(killed) >= while_gone - 0.02, "it catches up"
        )
        joined_at = 50 if not quick else peers.iteration(0)
        peers.wait(lambda: peers.iteration(0) >= joined_at, "iteration 50")
        peers.start(late, known=(3,))
        everybody = [*there, late]
        peers.wait(lambda: peers.iteration(late) >= 1, "the late peer starts")
        found = peers.wait(lambda: peers.hears_all(late, there), "from one address the late peer finds all")
        learnt = found + peers.wait(lambda: peers.accuracy(late) >= while_gone - 0.02, "the late peer catches up")
        near, far = [0, 1], [3, 4, 5]
        peers.part()
        peers.wait(lambda: not any(peers.hears_all(0, [one]) for one in far), "parted")
        goals = {number: peers.iteration(number) + (10 if quick else 100) for number in everybody}
        peers.wait(lambda: all(peers.iteration(number) >= goals[number] for number in everybody), "both sides go on")
        parted = min(map(peers.accuracy, everybody))
        crossing = peers.hears_all(0, far[:1]) or peers.hears_all(3, near[:1])
        peers.heal()
        healed = peers.wait(
            lambda: all(peers.hears_all(number, everybody) for number in everybody), "all hear all again"
        )
        peers.wait(lambda: min(map(peers.accuracy, everybody)) >= while_gone - 0.02, "all know as much as before")
        return {
            "accuracy_before_kill": accuracy_then,
            "iterations_done_twice": len(peers.done(killed)) - len(set(peers.done(killed))),
            "accuracy_of_the_rest": while_gone,
            "back_after_s": back,
            "caught_up_after_s": caught_up,
            "late_found_all_after_s": found,
            "late_caught_up_after_s": learnt,
            "accuracy_while_parted": parted,
            "heads_across_the_cut": crossing,
            "healed_after_s": healed,
            "accuracy_at_the_end": min(map(peers.accuracy, everybody)),
            "iterations": max(map(peers.iteration, everybody)),
            "stores_whole": _stopped(peers),
        }
    finally:
        for number in list(peers.processes):
            peers.kill(number)


def _stopped(peers: Peers) -> bool:
    peers.stop()
    return peers.whole()
