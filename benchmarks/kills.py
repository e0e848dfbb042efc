"""A peer that is killed with SIGKILL at random moments: whether every restart succeeds, and anything is lost.

The peer learns as fast as it can from two others, and gets samples over HTTP now and then; a quarter of the kills hit
it while it starts, the others while it runs. An iteration counts as acknowledged once its row is in the file that
`--json` names, or once `bristle status` told of it; samples once `/add` has answered. What the documentation has is
`python benchmarks/kills.py --kills 1000 --out docs/faults.md`; `--from` puts several shorter runs together.
"""

from __future__ import annotations

import argparse
import http.client
import json
import platform
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median

import numpy as np

import repository  # noqa: F401
from bristle.peer.status import Status
from bristle.peer.store_files import ENDPOINT, STORE, TOKEN, log_of
from sections import replace_section
from tests.support.fault_peers import Fleet, PeerProcess, free_port, wait_until, write_digits

FEATURES, EACH = 800, 20
LONGEST = 0.2
"""Seconds that a peer lives after its first iteration, at most."""


@dataclass
class Account:
    """What was promised, and what was found."""

    kills: int = 0
    while_starting: int = 0
    while_writing: int = 0
    restarts: int = 0
    iterations: int = 0
    iterations_lost: int = 0
    stored_but_not_told: int = 0
    samples_added: int = 0
    samples_lost: int = 0
    seconds_to_restart: list[float] = field(default_factory=list)
    others_iterations: int = 0
    seconds: float = 0.0

    def plus(self, other: Account) -> Account:
        """Return both together."""
        mine, theirs = vars(self), vars(other)
        return Account(**{name: mine[name] + theirs[name] for name in mine})


class Victim:
    """The peer that is killed, and what it has promised so far."""

    def __init__(self, fleet: Fleet, *, seed: int) -> None:
        self.fleet, self.chance = fleet, random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.account = Account()
        self.address = f"127.0.0.1:{free_port()}"
        self.acknowledged = self.samples = self.samples_under_way = 0
        self.key_id: str | None = None
        self._starting = 0.5
        self._lives = 0

    def start(self) -> tuple[PeerProcess, float]:
        """Start it once more; return it and when."""
        when = time.time()
        words = f"--interval 0.02 --http 0 --listen {self.address} --seed 1 --test-every 1000000".split()
        return self.fleet.start("victim", *words), when

    def live(self) -> None:
        """Start it, check that it goes on from what it has promised, let it promise more, and kill it."""
        peer, began = self.start()
        if self.chance.random() < 0.25:
            self.account.while_starting += 1
            time.sleep(self.chance.uniform(0, 1.2 * self._starting))
        else:
            self._check_start(peer, began)
            peer.reach(self.acknowledged + 1)
            if self.chance.random() < 0.3:
                self._add(peer)
            if self.chance.random() < 0.2:
                self.acknowledged = max(self.acknowledged, peer.status().iteration)
            time.sleep(self.chance.uniform(0, LONGEST))
        peer.kill()
        self._lives += 1
        self.account.kills += 1
        self.account.while_writing += was_writing(peer.home / STORE)
        self.acknowledged = max(self.acknowledged, peer.acknowledged())
        peer.log.unlink(missing_ok=True)  # It may have been too early even for that.

    def _check_start(self, peer: PeerProcess, began: float) -> Status:
        """Wait until it has started and done one more iteration; note what it has lost."""
        said = peer.event("listening")
        self._starting = datetime.fromisoformat(said["time"]).timestamp() - began
        self.account.seconds_to_restart.append(self._starting)
        self.key_id = self.key_id or said["key_id"]
        if said["key_id"] != self.key_id:
            raise RuntimeError(f"it was {self.key_id} and is {said['key_id']}")
        found = said["iteration"]
        self.account.iterations_lost += max(0, self.acknowledged - found)
        # Each life may end between storing an iteration and telling of it.
        if found > self.acknowledged + self._lives:
            raise RuntimeError(f"it had told of iteration {self.acknowledged} and goes on from {found}")
        self.account.stored_but_not_told += max(0, found - self.acknowledged)
        self._lives = 0
        peer.reach(found + 1)
        self.account.restarts += 1
        wait_until((peer.home / ENDPOINT).exists, "it listens for HTTP", watched=[peer])
        status = peer.status()
        held = sum(one.training + one.held_out for one in status.samples) - 10 * EACH
        if held < self.samples:
            self.account.samples_lost += self.samples - held
        elif held not in (self.samples, self.samples + self.samples_under_way):
            raise RuntimeError(f"it was given {self.samples} samples and has {held}")
        self.samples, self.samples_under_way = held, 0
        return status

    def _add(self, peer: PeerProcess) -> None:
        """Give it three samples over HTTP; they count once it has answered."""
        where = json.loads((peer.home / ENDPOINT).read_text(encoding="utf-8"))
        token = (peer.home / TOKEN).read_text(encoding="ascii").strip()
        features = np.abs(self.rng.normal(size=(3, FEATURES))).round(3).tolist()
        body = json.dumps({"features": features, "labels": [0, 1, 2]})
        self.samples_under_way = 3
        connection = http.client.HTTPConnection(where["host"], where["port"], timeout=60)
        with closing(connection):
            connection.request("POST", "/add", body=body, headers={"Authorization": f"Bearer {token}"})
            if connection.getresponse().status == http.client.OK:
                self.samples, self.samples_under_way = self.samples + 3, 0
                self.account.samples_added += 3

    def finish(self) -> None:
        """Start it for the last time, stop it gracefully, and look at everything that it has."""
        peer, began = self.start()
        self._check_start(peer, began)
        if peer.stop():
            raise RuntimeError(peer.log.read_text())
        with closing(sqlite3.connect(peer.home / STORE)) as database:
            found = database.execute("PRAGMA integrity_check").fetchone()[0]
        if found != "ok" or list(peer.home.glob("*damaged*")):
            raise RuntimeError(f"the store is damaged: {found}")
        told = [row["iteration"] for row in peer.all_rows()]
        if told != sorted(set(told)):
            raise RuntimeError("an iteration was reported twice")
        self.account.iterations = peer.stored().iteration


def was_writing(store: Path) -> bool:
    """Tell whether the last transaction in a store's log was never finished."""
    header, frame = struct.Struct(">8I"), struct.Struct(">6I")
    try:
        data = log_of(store).read_bytes()
    except FileNotFoundError:
        return False
    if len(data) < header.size:
        return False
    _, _, page, _, *salts, _, _ = header.unpack_from(data)
    ends = [
        bool(fields[1])
        for place in range(header.size, len(data) - frame.size - page + 1, frame.size + page)
        if list((fields := frame.unpack_from(data, place))[2:4]) == salts
    ]
    return bool(ends) and not ends[-1]


def run(kills: int, folder: Path, *, seed: int) -> Account:
    """Kill a peer so many times; return what became of it."""
    fleet = Fleet(folder, write_digits(folder / "digits.npz", each=EACH, test=50))
    began = time.monotonic()
    try:
        victim = Victim(fleet, seed=seed)
        others = [
            fleet.start(name, "--interval", "4", "--classes", digits, known=[victim.address])
            for name, digits in (("left", "0,1,2,3,4,5,6"), ("right", "3,4,5,6,7,8,9"))
        ]
        for number in range(kills):
            victim.live()
            if sys.stderr.isatty() or number % 100 == 99:
                print(f"\r{number + 1} kills, {victim.account.iterations_lost} lost", end="", file=sys.stderr)
        print(file=sys.stderr)
        victim.finish()
        for other in others:
            if not other.running:
                raise RuntimeError(f"{other.name} did not go on: {other.log.read_text()}")
            victim.account.others_iterations += other.acknowledged()
        victim.account.seconds = time.monotonic() - began
        return victim.account
    finally:
        fleet.close()


def table(account: Account) -> str:
    """Return the figures as Markdown."""
    took = sorted(account.seconds_to_restart)
    rows = [
        ("SIGKILLs", f"{account.kills:,}"),
        ("of these while it started", f"{account.while_starting:,}"),
        ("of these in the middle of writing a transaction", f"{account.while_writing:,}"),
        ("restarts that were to get as far as an iteration, and did", f"{account.restarts:,}"),
        ("iterations done", f"{account.iterations:,}"),
        ("**acknowledged iterations lost**", f"**{account.iterations_lost}**"),
        ("iterations stored when the kill came, not yet reported, and kept", f"{account.stored_but_not_told:,}"),
        ("samples added over HTTP and acknowledged", f"{account.samples_added:,}"),
        ("**acknowledged samples lost**", f"**{account.samples_lost}**"),
        (
            "seconds from the start of the process until it listens: median, 95 %, longest",
            f"{median(took):.2f}, {took[int(0.95 * (len(took) - 1))]:.2f}, {took[-1]:.2f}",
        ),
        ("iterations of the two others meanwhile", f"{account.others_iterations:,}"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="append the figures to this file")
    parser.add_argument("--out", type=Path, help="put the table into this document")
    parser.add_argument("--from", type=Path, dest="read", help="add up what earlier runs wrote with --json")
    given = parser.parse_args(words)
    if given.read is None:
        folder = Path(tempfile.mkdtemp(prefix="bristle-kills-"))
        account = run(given.kills, folder, seed=given.seed)
        shutil.rmtree(folder)  # Only here: what failed stays to be looked at.
    else:
        account = Account()
        for line in given.read.read_text(encoding="utf-8").splitlines():
            account = account.plus(Account(**json.loads(line)))
    text = (
        f"{datetime.now():%Y-%m-%d}, {account.seconds / 60:.0f} minutes on 2 processors shared with other work "
        f"({platform.machine()}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}).\n\n"
        f"{table(account)}"
    )
    print(text)
    if given.json is not None and given.read is None:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(account)) + "\n")
    if given.out is not None:
        replace_section(given.out, "kills", text)
    if account.iterations_lost or account.samples_lost:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
