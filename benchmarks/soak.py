"""Twenty peers for twenty minutes while everything goes wrong: kills, pauses, cuts, loss, late joiners, attackers.

Every peer is a process of `bristle peer` with a folder and a socket of its own; a relay between all of them loses
datagrams and is cut now and then. Peers that are never killed show whether memory or open files grow. What the
documentation has is `python benchmarks/soak.py --json soak.jsonl --out docs/faults.md --plot docs/soak.png`;
`--quick` is some seconds of it.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

import repository  # noqa: F401
from bristle.commands.demo.relay import Impairment
from bristle.peer.status import read_status
from bristle.peer.store_files import STORE
from sections import replace_section
from soak_attackers import Attack
from soak_figures import draw, table
from tests.support.fault_lines import Lines
from tests.support.fault_peers import Fleet, PeerProcess, free_port, wait_until, write_digits

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how hard.

    Parameters
    ----------
    peers, late, attackers : int
        Peers in all, how many of them come when a quarter of the time is over, and attackers on top.
    seconds, interval, look_every : float
        How long it takes, how often peers learn, and how often one looks at them.
    least : int
        Iterations that every peer must have done in the end, however long that takes.
    kills, pauses, cuts, bursts : int
        How often a peer is killed, and paused; how often a third of all are cut off, and 30 % of all datagrams are
        lost for a while.
    loss : float
        Share of datagrams that are always lost.
    """

    peers: int = 20
    late: int = 4
    attackers: int = 4
    seconds: float = 1200.0
    interval: float = 15.0
    look_every: float = 20.0
    least: int = 1
    kills: int = 24
    pauses: int = 16
    cuts: int = 4
    bursts: int = 6
    loss: float = 0.05
    seed: int = 0


QUICK = Plan(
    peers=4, late=1, attackers=1, seconds=10, interval=0.5, look_every=2, least=8, kills=2, pauses=1, cuts=1, bursts=1
)


@dataclass
class Soak:
    """A run: the peers, the lines between them, what is to happen when, and what was seen."""

    plan: Plan
    folder: Path
    rows: list[Row] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    unexpected: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        plan = self.plan
        self.chance = random.Random(plan.seed)
        self.fleet = Fleet(self.folder, write_digits(self.folder / "digits.npz", each=20, test=500))
        self.lines = Lines(plan.peers + plan.attackers, loss=plan.loss, seed=plan.seed)
        self.ports = [free_port() for _ in range(plan.peers)]
        self.alive: dict[int, PeerProcess] = {}
        self.down: set[int] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.attack = Attack(self.lines, plan.peers, plan.attackers, interval=plan.interval, seed=plan.seed)
        self.began = time.monotonic()

    @property
    def steady(self) -> range:
        """Peers that are never killed: the first half."""
        return range(self.plan.peers // 2)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let something happen, so many seconds after the beginning."""
        heapq.heappush(self._due, (when, next(self._numbers), what))

    def now(self) -> float:
        """Return how many seconds it has been going on."""
        return time.monotonic() - self.began

    def start(self, number: int) -> None:
        """Start a peer; one that was killed must go on from what it had told of."""
        before = self.alive.get(number)
        told = 0 if before is None else before.acknowledged()
        mine = ",".join(str((number + step) % 10) for step in range(5))
        words = (
            f"--interval {self.plan.interval} --classes {mine} --listen 127.0.0.1:{self.ports[number]} --seed {number} "
            "--test-every 1"
        )
        peer = self.fleet.start(f"peer-{number}", *words.split(), known=self.lines.known(number))
        self.alive[number] = peer
        self.down.discard(number)
        if before is not None:
            self.lost += max(0, told - int(peer.event("listening")["iteration"]))
            self.happened["restart"] += 1

    def kill(self) -> None:
        """Kill one, and start it again after a while."""
        there = [number for number in self.alive if number not in self.down and number not in self.steady]
        if there:
            number = self.chance.choice(there)
            self.alive[number].kill()
            self.down.add(number)
            self.happened["kill"] += 1
            self.at(self.now() + self.chance.uniform(0, 0.04) * self.plan.seconds, lambda: self.start(number))

    def pause(self) -> None:
        """Stop one for a while."""
        there = [number for number in self.alive if number not in self.down]
        number = self.chance.choice(there)
        peer = self.alive[number]
        peer.pause()
        self.down.add(number)
        self.happened["pause"] += 1

        def resume() -> None:
            peer.resume()
            self.down.discard(number)

        self.at(self.now() + self.chance.uniform(0.005, 0.04) * self.plan.seconds, resume)

    def cut(self) -> None:
        """Cut a third of all off for a while."""
        members = self.plan.peers + self.plan.attackers
        side = self.chance.sample(range(members), members // 3)
        self.lines.cut(side, [member for member in range(members) if member not in side])
        self.happened["cut"] += 1
        self.at(self.now() + 0.04 * self.plan.seconds, self.lines.cut)

    def burst(self) -> None:
        """Lose 30 % of all datagrams for a while."""
        self.lines.relay.impairment = Impairment(loss=0.3)
        self.happened["burst of loss"] += 1

        def end() -> None:
            self.lines.relay.impairment = Impairment(loss=self.plan.loss)

        self.at(self.now() + 0.04 * self.plan.seconds, end)

    def run(self) -> None:
        """Do all of it; leave whoever is there running."""
        plan = self.plan
        for number in range(plan.peers - plan.late):
            self.start(number)
        for peer in self.alive.values():
            peer.event("listening")  # What follows is to befall peers that run.
        for number in range(plan.peers - plan.late, plan.peers):
            self.at(plan.seconds / 4, partial(self._join, number))
        for what, count in (
            (self.kill, plan.kills), (self.pause, plan.pauses), (self.cut, plan.cuts), (self.burst, plan.bursts),
        ):  # fmt: skip
            for _ in range(count):
                # In the end all are there, to be seen whole.
                self.at(self.chance.uniform(0.1, 0.85) * plan.seconds, what)
        self.at(plan.look_every, self.look)
        self.began = time.monotonic()
        while self._due and self._due[0][0] <= plan.seconds:
            when, _, what = heapq.heappop(self._due)
            time.sleep(max(0.0, when - self.now()))
            what()
        time.sleep(max(0.0, plan.seconds - self.now()))
        for _, _, what in list(self._due):
            if what != self.look:  # Whoever is still away comes back.
                what()
        there = list(self.alive.values())
        wait_until(lambda: min(peer.acknowledged() for peer in there) >= plan.least, "all have learnt", watched=there)
        self.look()

    def _join(self, number: int) -> None:
        self.start(number)
        self.happened["late peer"] += 1

    def look(self) -> None:
        """Note how everybody is, from outside."""
        self.at(self.now() + self.plan.look_every, self.look)
        for number, peer in self.alive.items():
            row: Row = {"seconds": round(self.now(), 1), "peer": number, "there": number not in self.down}
            if not peer.running and number not in self.down:
                self.unexpected.append(f"peer {number} has ended: {peer.log.read_text()[-2000:]}")
                self.down.add(number)
            if number not in self.down:
                process = psutil.Process(peer.pid)
                row |= {"memory": process.memory_full_info().uss, "files": process.num_fds()}
            latest = peer.latest()
            if latest is not None:
                stored = sum(path.stat().st_size for path in peer.home.glob(f"{STORE}*"))
                row |= {"iteration": latest["iteration"], "accuracy": latest["accuracy"], "store": stored}
                row |= {"heard": len(latest["heard"])}
            self.rows.append(row)
        if sys.stderr.isatty():
            print(f"\r{self.now():.0f} s of {self.plan.seconds:.0f}: {dict(self.happened)}", end="", file=sys.stderr)

    def summary(self) -> Row:
        """Stop everybody gracefully, and say what became of all."""
        codes = {number: peer.stop() for number, peer in self.alive.items()}
        self.unexpected += [f"peer {number} ended with {code}" for number, code in codes.items() if code]
        self.unexpected += [str(path) for path in self.folder.glob("*/*damaged*")]
        stored = [read_status(peer.home, running=False) for peer in self.alive.values()]
        total = Counter[str]()
        for status in stored:
            total.update({name: count for name, count in status.counters.items() if count})
        theirs = self.attack.key_ids
        heard = [one for status in stored for one in self._heard(status.key_id)]
        return {
            **asdict(self.plan),
            "minutes": round(self.now() / 60, 1),
            "iterations": [status.iteration for status in stored],
            "lost": self.lost,
            "unexpected": self.unexpected,
            "happened": dict(self.happened),
            "counters": dict(total),
            "datagrams": self.lines.relay.relayed,
            "datagrams_lost": self.lines.relay.lost,
            "attackers_weight": _share(heard, theirs),
            "attackers_heard": sum(sender in theirs for sender, _ in heard),
            "others_heard": sum(sender not in theirs for sender, _ in heard),
            "steady": list(self.steady),
        }

    def _heard(self, key_id: str) -> list[tuple[str, float]]:
        peer = next(one for one in self.alive.values() if one.stored().key_id == key_id)
        return [(one["sender"], one["share"]) for row in peer.all_rows() for one in row["heard"]]

    def close(self) -> None:
        """End whatever still runs."""
        self.fleet.close()
        self.lines.close()


def _share(heard: list[tuple[str, float]], theirs: frozenset[str]) -> float:
    """Return which share of all that was taken from others came from some of them."""
    total = sum(share for _, share in heard)
    return sum(share for sender, share in heard if sender in theirs) / total if total else 0.0


def run(plan: Plan, folder: Path) -> tuple[list[Row], Row]:
    """Run it; return what was seen on the way, and in the end."""
    soak = Soak(plan, folder)
    try:
        soak.run()
        soak.attack.stop()
        return soak.rows, soak.summary()
    finally:
        soak.close()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="some seconds instead of twenty minutes")
    parser.add_argument("--json", type=Path, help="write what was seen to this file, the summary last")
    parser.add_argument("--out", type=Path, help="put the table into this document")
    parser.add_argument("--plot", type=Path, help="draw it")
    parser.add_argument("--from", type=Path, dest="read", help="take what an earlier run wrote with --json")
    given = parser.parse_args(words)
    if given.read is None:
        folder = Path(tempfile.mkdtemp(prefix="bristle-soak-"))
        rows, summary = run(QUICK if given.quick else Plan(), folder)
        shutil.rmtree(folder)  # Only here: what failed stays to be looked at.
        summary |= {
            "on": f"{datetime.now():%Y-%m-%d}",
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
        }
        if given.json is not None:
            given.json.write_text("".join(json.dumps(row) + "\n" for row in (*rows, summary)), encoding="utf-8")
    else:
        *rows, summary = map(json.loads, given.read.read_text(encoding="utf-8").splitlines())
    text = table(rows, summary)
    print(text)
    if given.out is not None:
        replace_section(given.out, "soak", text)
    if given.plot is not None:
        draw(rows, summary, given.plot)
    if summary["lost"] or summary["unexpected"]:
        print("\n".join(summary["unexpected"]), file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
