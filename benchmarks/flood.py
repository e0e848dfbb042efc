"""What a flood does to a peer: its round rate, its memory, and how soon it is itself again.

`python benchmarks/flood.py` floods one peer of a small group over loopback sockets with every kind of datagram there
is, 10,000 a second from 200 identities; `python benchmarks/flood.py noise peers` with some. Floods and quiet times
take turns within a run, so that whatever else the machine does hits both alike, and in quiet times a burner uses as
much processor as the flood's generator did: what is compared is the victim's own trouble. `--json FILE` adds a row for
every kind to a file.

The group is real: `bristle.Peer` with its store, signatures, MNIST and the bundled backbone. The victim has a process
of its own, its honest neighbours have another one, and the generator a third, bound to one processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from bristle import Peer, rules
from bristle.backbones.backbone import bundled
from bristle.backbones.features import extract
from bristle.data import load
from bristle.p2p.members.roster import Roster
from bristle.peer.pace import Pace
from bristle.peer.record import Turn
from bristle.peer.roster_file import RosterFile
from bristle.peer.store_files import IDENTITY, make_private
from bristle.wire import Group, Identity
from flood_sources import FOUNDED, SEATS, SIGNED, UNSIGNED, generate, identity_of

Address = tuple[str, int]
APPLICATION = "flood"
CLASSES = tuple(str(digit) for digit in range(10))
HELD_BACK = 1.0
"""Seconds at the start of a quiet time that are not counted as quiet: the peer may still be recovering."""

SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a flood is measured.

    Parameters
    ----------
    kind : str
        What is sent.
    one_address : bool
        Whether all identities send from one address.
    rate : float
        Datagrams a second.
    identities, neighbours : int
        Who floods, and who learns with the victim.
    interval : float
        Seconds between iterations, at least.
    seconds : float
        Of each flood and of each quiet time.
    repeats : int
        Floods that are counted.
    afterwards : float
        Seconds after the last flood in which it is seen how soon the peer recovers.
    """

    kind: str
    one_address: bool = False
    rate: float = 10_000.0
    identities: int = 200
    neighbours: int = 3
    interval: float = 0.2
    seconds: float = 3.0
    repeats: int = 5
    afterwards: float = 7.0


@dataclass(frozen=True, kw_only=True)
class Round:
    """An iteration of the victim: when it ended, and how many honest heads it integrated."""

    at: float
    honest: int


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was seen. Rates are medians over the floods or quiet times of a run."""

    kind: str
    one_address: bool
    sent_per_second: float
    refused_per_second: float
    generator_cpu: float
    admitted: int
    quiet_rounds: float
    flood_rounds: float
    kept: float
    quiet_heads: float
    flood_heads: float
    kept_heads: float
    recovered_s: float
    quiet_cpu: float
    flood_cpu: float
    quiet_mib: float
    flood_mib: float
    neighbours: int
    refused: dict[str, int]
    every_quiet: list[float]
    every_flood: list[float]
    load: float


async def learn(folder: str, members: list[int], known: list[Address], interval: float, pipe: Connection) -> None:
    """Run some peers until told to stop; tell of every iteration of the first."""
    data, backbone = load("mnist"), bundled(threads=1)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    honest: set[bytes] = set()
    rounds: list[tuple[float, int]] = []

    def told(turn: Turn) -> None:
        rounds.append((time.monotonic(), sum(sender in honest for sender in turn.senders)))

    def commanded() -> None:
        try:
            command = pipe.recv()
        except EOFError:  # Whoever started this is gone.
            command = None
        if command == "rounds":
            status = peers[0].status()
            counters = {name: count for name, count in status.counters.items() if name.startswith("refused.")}
            pipe.send((list(rounds), counters, [one.key_id for one in status.neighbours]))
            rounds.clear()
        elif command is None:
            stopped.set()
        else:
            honest.update(command)

    async with AsyncExitStack() as exits:
        peers: list[Peer] = []
        for member in members:
            mine = [(member * 3 + step) % 10 for step in range(4)]
            chosen = np.concatenate([np.flatnonzero(data.y_train == digit)[12 * member :][:12] for digit in mine])
            peer = Peer(
                application=APPLICATION,
                classes=CLASSES,
                folder=Path(folder) / f"peer-{member}",
                backbone=backbone,
                known=known or [one.address for one in peers[:1]],
                rule=rules.create("bristle"),
                pace=Pace(interval=interval),
                on_iteration=None if peers else told,
            )
            peers.append(await exits.enter_async_context(peer))
            peer.add(extract(backbone, data.x_train[chosen], cache=False), data.y_train[chosen], features=True)
        pipe.send(([peer.address for peer in peers], [bytes.fromhex(peer.key_id) for peer in peers]))
        loop.add_reader(pipe.fileno(), commanded)
        running = [loop.create_task(peer.run()) for peer in peers]
        await stopped.wait()
        loop.remove_reader(pipe.fileno())
        for peer in peers:
            peer.stop()
        await asyncio.gather(*running)


def work(folder: str, members: list[int], known: list[Address], interval: float, pipe: Connection) -> None:
    """Be a process with some peers, in a session of its own: Linux shares processors out by sessions."""
    os.setsid()
    asyncio.run(learn(folder, members, known, interval, pipe))


class Processes:
    """The processes of a run, with a pipe to each."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.pipes: list[Connection] = []

    def start(self, target: Any, *arguments: Any) -> tuple[Connection, psutil.Process]:
        """Start a process that runs a function with a pipe as its last argument."""
        mine, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=target, args=(*arguments, theirs), daemon=True)
        process.start()
        theirs.close()
        self.started.append(process)
        self.pipes.append(mine)
        return mine, psutil.Process(process.pid)

    def stop(self) -> None:
        """End them all."""
        for pipe in reversed(self.pipes):
            try:
                pipe.send(None)
            except OSError:
                continue
        for process in reversed(self.started):
            process.join(20)
            if process.is_alive():
                process.kill()


@dataclass
class Window:
    """What happened between two times."""

    began: float
    ended: float
    sent: int
    share: float
    cpu: float
    mib: float
    datagrams: int
    rounds: list[Round]

    def rate(self, *, after: float = 0.0) -> float:
        """Return rounds a second."""
        return sum(one.at >= self.began + after for one in self.rounds) / (self.ended - self.began - after)

    def heads(self, *, after: float = 0.0) -> float:
        """Return honest heads that were integrated, a second."""
        return sum(o.honest for o in self.rounds if o.at >= self.began + after) / (self.ended - self.began - after)

    def recovered(self, usual: float) -> float:
        """Return after how many seconds the last second had at least 90 % of the usual rounds."""
        times = [one.at - self.began for one in self.rounds]
        for end in np.arange(1.0, self.ended - self.began, 0.25):
            if sum(end - 1.0 < at <= end for at in times) >= 0.9 * usual - 1:
                return float(end)
        return float("inf")


def _group(setting: Setting, folder: Path) -> Group:
    """Return the group of a flood; if it has to have a founder, the victim, whom all others are invited by."""
    group = Group(
        application=APPLICATION, backbone=bundled(threads=1).digest, classes=CLASSES, features=bundled().features
    )
    if setting.kind in FOUNDED:
        group = replace(group, founders=frozenset([_identity(folder, 0).key_id]))
        _invite_all(group, setting, folder)
    return group


def _identity(folder: Path, member: int) -> Identity:
    make_private(folder / f"peer-{member}")
    return Identity.load_or_create(folder / f"peer-{member}" / IDENTITY)


def _invite_all(group: Group, setting: Setting, folder: Path) -> None:
    """Let the victim invite its neighbours and all that flood it; every peer's folder knows it from the start."""
    roster, peers = Roster(group), [_identity(folder, member) for member in range(1 + setting.neighbours)]
    for one in (*peers[1:], *map(identity_of, range(setting.identities))):
        roster.accept(one, roster.invite(peers[0], one.key_id, seats=SEATS))
    for member in range(1 + setting.neighbours):
        with RosterFile(folder / f"peer-{member}") as file:
            file.roster(group)
            file.keep(roster)


def flood(setting: Setting, folder: Path) -> Result:
    """Flood a peer again and again; return how it fared."""
    processes = Processes()
    try:
        group = _group(setting, folder)
        victim, seen = processes.start(work, str(folder), [0], [], setting.interval)
        (address,), _ids = victim.recv()
        others, _ = processes.start(
            work, str(folder), list(range(1, 1 + setting.neighbours)), [address], setting.interval
        )
        _, honest = others.recv()
        victim.send(honest)
        flooding = partial(
            generate,
            kind=setting.kind,
            rate=setting.rate,
            count=setting.identities,
            one=setting.one_address,
        )
        source, _ = processes.start(flooding, group, address)
        source.recv()
        admitted = 0
        heard: dict[str, int] = {}

        def window(what: str, seconds: float) -> Window:
            nonlocal heard
            victim.send("rounds")
            _, before, _ = victim.recv()
            began, cpu = time.monotonic(), sum(seen.cpu_times()[:2])
            source.send((what, seconds))
            largest = 0
            while not source.poll(0.2):
                largest = max(largest, seen.memory_info().rss)
            sent, share = source.recv()
            ended, spent = time.monotonic(), sum(seen.cpu_times()[:2]) - cpu
            victim.send("rounds")
            rounds, heard, _ = victim.recv()
            return Window(
                began, ended, sent, share, spent / (ended - began), largest / 2**20,
                sum(heard.values()) - sum(before.values()),
                [Round(at=at, honest=heads) for at, heads in rounds if began <= at <= ended],
            )  # fmt: skip

        _tell(f"{setting.kind}: {setting.neighbours + 1} peers find each other")
        time.sleep(3.0)
        if setting.kind in SIGNED:
            # Those who are admitted keep their places for as long as they flood.
            source.send(("join", 5.0))
            admitted = source.recv()
            _tell(f"{setting.kind}: {admitted} of {setting.identities} identities have got a place")
        window("flood", 2.0)  # What the generator takes is known from here on.
        quiet, floods = [window("burn", setting.seconds + HELD_BACK)], []
        for turn in range(setting.repeats):
            _tell(f"{setting.kind}: flood {turn + 1} of {setting.repeats}")
            if turn:
                quiet.append(window("burn", setting.seconds + HELD_BACK))
            floods.append(window("flood", setting.seconds))
        _tell(f"{setting.kind}: afterwards")
        after = window("burn", setting.afterwards)
        victim.send("rounds")
        _, counters, neighbours = victim.recv()
        quiet.append(after)
    finally:
        processes.stop()
    usual = median(one.rate(after=HELD_BACK) for one in quiet)
    usual_heads = median(one.heads(after=HELD_BACK) for one in quiet)
    rate, heads = median(one.rate() for one in floods), median(one.heads() for one in floods)
    return Result(
        kind=setting.kind,
        one_address=setting.one_address,
        sent_per_second=median(one.sent / (one.ended - one.began) for one in floods),
        refused_per_second=median(one.datagrams / (one.ended - one.began) for one in floods),
        generator_cpu=median(one.share for one in floods),
        admitted=admitted,
        quiet_rounds=usual,
        flood_rounds=rate,
        kept=rate / usual,
        quiet_heads=usual_heads,
        flood_heads=heads,
        kept_heads=heads / usual_heads,
        recovered_s=after.recovered(usual),
        quiet_cpu=median(one.cpu for one in quiet),
        flood_cpu=median(one.cpu for one in floods),
        quiet_mib=max(one.mib for one in quiet[:1]),
        flood_mib=max(one.mib for one in floods),
        neighbours=len(neighbours),
        refused={name.removeprefix("refused."): n for name, n in counters.items()},
        every_quiet=[round(one.rate(after=HELD_BACK), 2) for one in quiet],
        every_flood=[round(one.rate(), 2) for one in floods],
        load=os.getloadavg()[0],
    )


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


COLUMNS: dict[str, Callable[[Result], str]] = {
    "flood": lambda one: one.kind + (", one address" if one.one_address else ""),
    "sent/s": lambda one: f"{one.sent_per_second:,.0f}",
    "generator": lambda one: f"{one.generator_cpu:.0%}",
    "rounds/s quiet": lambda one: f"{one.quiet_rounds:.1f}",
    "flooded": lambda one: f"{one.flood_rounds:.1f}",
    "kept": lambda one: f"{one.kept:.0%}",
    "honest heads kept": lambda one: f"{one.kept_heads:.0%}",
    "normal after": lambda one: f"{one.recovered_s:.1f} s",
    "victim's processor": lambda one: f"{one.quiet_cpu:.0%} to {one.flood_cpu:.0%}",
    "memory": lambda one: f"{one.quiet_mib:.0f} to {one.flood_mib:.0f} MiB",
    "load": lambda one: f"{one.load:.1f}",
}


def table(results: list[Result]) -> str:
    """Return a table, a line for each flood."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(told(one) for told in COLUMNS.values()) + " |" for one in results]
    machine = (
        f"{os.cpu_count()} processors shared with other work, {platform.machine()}, Python {sys.version.split()[0]}"
    )
    return "\n".join([*lines, "", machine])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=f"which, of {', '.join(UNSIGNED + SIGNED)}; all unless named")
    parser.add_argument("--one-address", action="store_true", help="all identities send from one address")
    parser.add_argument("--rate", type=float, default=Setting.rate, help="datagrams a second")
    parser.add_argument("--identities", type=int, default=Setting.identities)
    parser.add_argument("--neighbours", type=int, default=Setting.neighbours, help="honest peers beside the victim")
    parser.add_argument("--interval", type=float, default=Setting.interval, help="seconds between iterations")
    parser.add_argument("--seconds", type=float, default=Setting.seconds, help="of each flood and quiet time")
    parser.add_argument("--repeats", type=int, default=Setting.repeats, help="floods that are counted")
    parser.add_argument(
        "--afterwards", type=float, default=Setting.afterwards, help="seconds in which recovery is looked for"
    )
    parser.add_argument("--json", type=Path, help="add a row for every kind to this file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the other processes end, too.
    if unknown := set(options.kinds) - set(UNSIGNED + SIGNED):
        parser.error(f"there is no flood {', '.join(sorted(unknown))}; choose from {', '.join(UNSIGNED + SIGNED)}")
    chosen = {name: value for name, value in vars(options).items() if name not in ("kinds", "json")}
    results = []
    for kind in options.kinds or UNSIGNED + SIGNED:
        with tempfile.TemporaryDirectory(prefix="bristle-flood-") as folder:
            results.append(flood(Setting(kind=kind, **chosen), Path(folder)))
        print(json.dumps(asdict(results[-1])), file=sys.stderr, flush=True)
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(results[-1])) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
