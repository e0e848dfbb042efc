"""Real processes of `bristle peer`, and what may befall them: signals, cuts, loss, full disks, damage, wrong clocks."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bristle.commands.status import get_status
from bristle.data import load
from bristle.peer.status import Status, read_status
from bristle.peer.store_files import STORE, log_of, look_at_log
from tests.support.fault_lines import LONG
from tests.support.fault_nursery import Nursery

Found = TypeVar("Found")
APPLICATION = "faults"
LONGEST_ROW = 2**18


@dataclass
class Outside:
    """A process that was started by itself, with what a nursery can tell of its own."""

    process: subprocess.Popen[bytes]

    def ended(self, pid: int, *, wait: bool = False) -> int | None:
        """Return the exit code; None while it runs, unless one waits."""
        assert pid == self.process.pid
        return self.process.wait() if wait else self.process.poll()


@dataclass
class PeerProcess:
    """A `bristle peer` that runs, or ran.

    Parameters
    ----------
    name : str
        What it is called here.
    home, rows, log : Path
        Its folder, the rows that it writes, and what it says.
    pid : int
        Its process.
    parent : Nursery or Outside
        Who knows how it ended.
    """

    name: str
    home: Path
    rows: Path
    log: Path
    pid: int
    parent: Nursery | Outside
    began: float = field(default_factory=time.monotonic)

    @property
    def running(self) -> bool:
        """Whether the process is there, paused or not."""
        return self.parent.ended(self.pid) is None

    def kill(self) -> None:
        """End it with SIGKILL, wherever it is."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        self.parent.ended(self.pid, wait=True)

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
        code = self.parent.ended(self.pid, wait=True)
        assert code is not None
        return code

    def wait_for_end(self) -> int:
        """Return the exit code of a process that ends by itself."""
        code = self.parent.ended(self.pid, wait=True)
        assert code is not None
        return code

    def said(self) -> list[dict[str, Any]]:
        """Return what it has logged."""
        lines = self.log.read_text(encoding="utf-8").split("\n")[:-1] if self.log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def plainly(self) -> str:
        """Return what it has said that is not of its log: what a person would see before it ends."""
        return "\n".join(line for line in self.log.read_text().splitlines() if not line.startswith("{"))

    def event(self, name: str) -> dict[str, Any]:
        """Wait until it logs something; return that."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.said() if event["event"] == name), None)

        return wait_until(found, f"{self.name} says {name!r}", watched=[self])

    def acknowledged(self) -> int:
        """Return the last iteration that it has written a row of."""
        latest = self.latest()
        return 0 if latest is None else int(latest["iteration"])

    def latest(self) -> dict[str, Any] | None:
        """Return its last row; None before the first."""
        if not self.rows.exists():
            return None
        with self.rows.open("rb") as file:
            file.seek(max(0, self.rows.stat().st_size - LONGEST_ROW))
            lines = file.read().rsplit(b"\n", 2)
        row: dict[str, Any] | None = json.loads(lines[-2]) if len(lines) > 1 else None
        return row

    def all_rows(self) -> list[dict[str, Any]]:
        """Return its rows."""
        lines = self.rows.read_text(encoding="utf-8").split("\n")[:-1] if self.rows.exists() else []
        return [json.loads(line) for line in lines]

    def status(self) -> Status:
        """Return what `bristle status` says."""
        return get_status(self.home)

    def stored(self) -> Status:
        """Return what its folder says."""
        return read_status(self.home, running=False)

    def reach(self, iteration: int) -> None:
        """Wait until it has done so many iterations."""
        wait_until(lambda: self.acknowledged() >= iteration, f"{self.name} at iteration {iteration}", watched=[self])

    def go_on(self, iterations: int) -> None:
        """Wait until it has done so many more."""
        self.reach(self.acknowledged() + iterations)

    def hears(self, other: PeerProcess, *, since: int = 0) -> bool:
        """Tell whether it has heard another one after some iteration."""
        theirs = other.event("listening")["key_id"]
        return any(
            one["sender"] == theirs for row in self.all_rows() if row["iteration"] > since for one in row["heard"]
        )


class Fleet:
    """Peers of one group, with a few digits each.

    Parameters
    ----------
    folder : Path
        Where everything is kept.
    data : Path
        What `write_digits` has written.
    nursery : Nursery, optional
        Who starts them; one of its own unless given.
    """

    def __init__(self, folder: Path, data: Path, *, nursery: Nursery | None = None) -> None:
        self.folder, self.data = folder, data
        self._owns_nursery = nursery is None
        self.nursery = Nursery(environment=environment()) if nursery is None else nursery
        self.peers: dict[str, PeerProcess] = {}
        self._starts = 0

    def start(
        self,
        name: str,
        *words: str,
        known: Sequence[str] = (),
        home: Path | None = None,
        rows: Path | None = None,
        clock: Mapping[str, str] | None = None,
    ) -> PeerProcess:
        """Start a peer, or start it again: with further words and known addresses, or with a wrong clock."""
        self._starts += 1
        home, rows = home or self.folder / name, rows or self.folder / f"{name}.jsonl"
        log = self.folder / f"{name}.{self._starts}.log"
        said = (
            f"peer --rule bristle --application {APPLICATION} --folder {home} --data {self.data} --json {rows}".split()
        )
        said += ["--log-format", "json"]
        said += [*(word for address in known for word in ("--known", address)), *words]
        if clock is not None:
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-c", "from bristle.cli import main; main()", *said],
                    stdout=file,
                    stderr=file,
                    env={**self.nursery.environment, **clock},
                    process_group=0,
                )
            peer = PeerProcess(name, home, rows, log, process.pid, Outside(process))
        else:
            peer = PeerProcess(name, home, rows, log, self.nursery.start(said, log), self.nursery)
        self.peers[name] = peer
        return peer

    def close(self) -> None:
        """End whatever still runs."""
        for peer in self.peers.values():
            peer.kill()
        if self._owns_nursery:
            self.nursery.close()


def environment() -> dict[str, str]:
    """Return the environment of peers: one thread each."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def write_digits(path: Path, *, each: int, test: int) -> Path:
    """Write a data set of a few digits of each class."""
    digits = load("mnist")
    chosen = np.concatenate([np.flatnonzero(digits.y_train == digit)[:each] for digit in range(10)])
    np.savez(
        path,
        x_train=digits.x_train[chosen],
        y_train=digits.y_train[chosen],
        x_test=digits.x_test[:test],
        y_test=digits.y_test[:test],
    )
    return path


def wait_until(condition: Callable[[], Found | None], what: str, *, watched: Sequence[PeerProcess] = ()) -> Found:
    """Wait until something is so, while those who are watched live; return it."""
    deadline = time.monotonic() + LONG
    while not (found := condition()):
        for peer in watched:
            if not peer.running:
                raise RuntimeError(f"{what}: {peer.name} has ended: {peer.log.read_text()}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {LONG:.0f} s")
        time.sleep(0.02)
    return found


def free_port() -> int:
    """Return a UDP port on loopback that nobody uses now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def small_disk(folder: Path, *, mebibytes: int) -> Iterator[Path]:
    """Mount a file system of a few mebibytes; PermissionError where one may not."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        raise PermissionError(f"a file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write a file until there is no room left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def flip(path: Path, place: int) -> None:
    """Turn over the bits of one byte."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))


def enough_to_damage(home: Path) -> bool:
    """Return whether the log of a store has transactions that count before its last one."""
    found = look_at_log(home / STORE)
    return found is not None and len(found.commits) > 2


def damage(home: Path, *, log: bool, chance: random.Random) -> int:
    """Flip bytes from somewhere in the middle of a store, or of its log, on; return where the first one is.

    More than one: a store has pages that are empty, in which a byte means nothing to anybody.
    """
    if log:
        # Among the transactions that count: behind them a log holds what was written back long ago.
        found = look_at_log(home / STORE)
        assert found is not None, f"{home} has no log"
        commits = found.commits
        place = 32 + (commits[len(commits) // 2] - 1) * (24 + 4096) + 100
        flip(log_of(home / STORE), place)
        return place
    path = home / STORE
    size = path.stat().st_size
    place = chance.randrange(size // 4, size // 2)
    for each in range(place, min(place + size // 4, size), 256):
        flip(path, each)
    return place


def wrong_clock(shift: Path, seconds: float) -> dict[str, str]:
    """Return the environment of a process whose clock differs; `shift` is a file by which to change it while it runs.

    Needs libfaketime (in Debian: the package faketime). Its monotonic clock is left alone, as a clock that is set wrong
    leaves it.
    """
    tool = shutil.which("faketime")
    if tool is None:
        raise FileNotFoundError("there is no `faketime` here (in Debian: apt install faketime)")
    set_clock(shift, seconds)
    # Without a fixed FAKETIME in the environment the file decides, and is read again whenever the time is asked.
    found = subprocess.run([tool, "-f", "+0", "env"], capture_output=True, text=True, check=True).stdout
    preload = next(line for line in found.splitlines() if line.startswith("LD_PRELOAD="))
    return {
        "LD_PRELOAD": preload.partition("=")[2],
        "FAKETIME_TIMESTAMP_FILE": str(shift),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def set_clock(shift: Path, seconds: float) -> None:
    """Set how far a process's clock is off; it sees the file whole or as it was."""
    part = shift.with_suffix(".part")
    part.write_text(f"{seconds:+.0f}\n")
    os.replace(part, shift)
