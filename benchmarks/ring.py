"""Real peers in a ring where each hears two: what they know, how good they are, newcomers, and kills.

`python benchmarks/ring.py` starts 30 peers, `bristle.Peer` with their stores, sockets and signatures, two in a process,
first in a ring, then in a full mesh of the same peers. Each holds 4 of the 10 digits of MNIST, 12 samples of each, and
exchanges evidence. In the ring a newcomer that knows one address joins; then a third of all peers is killed by SIGKILL,
again and again, and comes back. `--json FILE` adds a row for every run to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from bristle import Peer
from bristle.backbones.backbone import bundled
from bristle.backbones.features import extract
from bristle.data import load
from bristle.p2p import Limits
from bristle.peer.pace import Pace

SPAWN = multiprocessing.get_context("spawn")
CLASSES = tuple(str(digit) for digit in range(10))
EACH, HELD = 12, 4
IN_A_PROCESS = 2
TESTED = 2_000
PATIENCE = 240.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """A peer: where its state is, where it listens, whom it knows, how many neighbours it may have, and its samples."""

    folder: str
    port: int
    known: tuple[int, ...]
    neighbours: int
    features: NDArray[np.float32] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one peer has to say of itself."""

    key_id: str
    numbers: dict[str, int]
    equivocators: int
    neighbours: int
    weighed: int
    accuracy: float
    sent: int
    statements_in: int
    statements_out: int
    bytes_out: int


async def live(places: list[Place], test: tuple[Any, Any], pipe: Connection) -> None:
    """Run some peers until the pipe says so, and answer what they know."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    async with AsyncExitStack() as exits:
        peers: list[Peer] = []
        for place in places:
            peer = Peer(
                application="ring",
                classes=CLASSES,
                folder=place.folder,
                backbone=bundled(threads=1),
                listen=("127.0.0.1", place.port),
                known=[("127.0.0.1", port) for port in place.known],
                limits=Limits(neighbours=place.neighbours),
                pace=Pace(interval=0.2),
            )
            peers.append(await exits.enter_async_context(peer))
            peer.add(place.features, place.labels, features=True)

        def commanded() -> None:
            try:
                command = pipe.recv()
            except EOFError:
                command = None
            if command is None:
                stopped.set()
            elif command == "grow":
                for peer, place in zip(peers, places, strict=True):
                    noise = np.random.default_rng().normal(0, 0.05, place.features.shape)
                    peer.add((place.features + noise).astype(np.float32), place.labels, features=True)
                pipe.send(None)
            else:
                pipe.send([seen(peer, test if command else None) for peer in peers])

        pipe.send(time.time())
        loop.add_reader(pipe.fileno(), commanded)
        running = [loop.create_task(peer.run()) for peer in peers]
        await stopped.wait()
        loop.remove_reader(pipe.fileno())
        for peer in peers:
            peer.stop()
        await asyncio.gather(*running)


def seen(peer: Peer, test: tuple[Any, Any] | None) -> Seen:
    """Return what a peer knows, and how good it is on a test set."""
    network, status = peer._network, peer.status()
    counters = network.counters
    return Seen(
        key_id=peer.key_id,
        numbers={one.author.hex(): one.number for one in network.statements()},
        equivocators=len(network.equivocators()),
        neighbours=len(status.neighbours),
        weighed=0 if status.decided is None else len(status.decided.heard),
        accuracy=0.0 if test is None else float(np.mean(peer.predict(test[0], features=True) == test[1])),
        sent=counters.datagrams_out,
        statements_in=counters.statements_in,
        statements_out=counters.statements_out,
        bytes_out=counters.bytes_out,
    )


def work(places: list[Place], test: tuple[Any, Any], pipe: Connection) -> None:
    """Be a process with some peers."""
    asyncio.run(live(places, test, pipe))


class Process:
    """A process with some peers."""

    def __init__(self, places: list[Place], test: tuple[Any, Any]) -> None:
        self.places, self._test = places, test
        self.start()

    def start(self) -> None:
        """Start it, also again."""
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=work, args=(self.places, self._test, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def started(self) -> float:
        """Wait until its peers run; return when that was, in seconds since 1970."""
        at: float = self.pipe.recv()
        return at

    def ask(self, *, test: bool = False) -> list[Seen]:
        """Return what its peers know."""
        self.pipe.send(test)
        answer: list[Seen] = self.pipe.recv()
        return answer

    def grow(self) -> None:
        """Let its peers have twelve more samples of each of their classes."""
        self.pipe.send("grow")
        self.pipe.recv()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()
        self.process.join()

    def stop(self) -> None:
        """Let it end."""
        try:
            self.pipe.send(None)
        except OSError:
            return
        self.process.join(30)
        if self.process.is_alive():
            self.process.kill()


def ports(count: int) -> list[int]:
    """Return free ports."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def places_of(count: int, folder: Path, *, ring: bool) -> tuple[list[Place], tuple[Any, Any]]:
    """Return so many peers, and one more that is to join later; and a test set."""
    data, backbone = load("mnist"), bundled(threads=1)
    rng = np.random.default_rng(11)
    where, places = ports(count + 1), []
    for member in range(count + 1):
        mine = [(member * 3 + step) % 10 for step in range(HELD)]
        rows = np.concatenate(
            [rng.choice(np.flatnonzero(data.y_train == digit), EACH, replace=False) for digit in mine]
        )
        beside = (where[(member - 1) % count], where[(member + 1) % count])
        known = beside if ring else where[: min(member, 1)]
        if member == count:
            known = where[:1]
        places.append(
            Place(
                folder=str(folder / f"peer-{member}"),
                port=where[member],
                known=tuple(known),
                # The newcomer's neighbour has room for it.
                neighbours=(3 if member == 0 else 2) if ring else 64,
                features=extract(backbone, data.x_train[rows], cache=False),
                labels=data.y_train[rows].astype(np.int64),
            )
        )
    tested = rng.choice(len(data.y_test), TESTED, replace=False)
    return places, (extract(backbone, data.x_test[tested], cache=False), data.y_test[tested])


def until_all_know(processes: list[Process], authors: int, *, weighed: bool = True) -> tuple[float, list[Seen]]:
    """Wait until all peers know statements of so many others, and have weighed them; return when, and what was seen."""
    end = time.time() + PATIENCE
    while time.time() < end:
        found = seen_by(processes)
        known = min(len(one.numbers) for one in found)
        if known >= authors and (not weighed or min(one.weighed for one in found) >= authors):
            return time.time(), found
        time.sleep(0.1)
    print(sorted((len(one.numbers), one.weighed, one.neighbours) for one in found), file=sys.stderr)
    raise TimeoutError(f"after {PATIENCE:.0f} s somebody knows {known} of {authors} others")


def run(count: int, *, ring: bool, kills: int, soaked: float, seed: int) -> dict[str, Any]:
    """Run peers, in a ring or in a full mesh; return what was seen."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        places, test = places_of(count, Path(folder), ring=ring)
        processes = [Process(places[at : at + IN_A_PROCESS], test) for at in range(0, count, IN_A_PROCESS)]
        try:
            began = max(process.started() for process in processes)
            heard, _ = until_all_know(processes, count - 1, weighed=False)
            learned, found = until_all_know(processes, count - 1)
            good = [one.accuracy for process in processes for one in process.ask(test=True)]
            row: dict[str, Any] = {
                "topology": "ring" if ring else "mesh",
                "peers": count,
                "seed": seed,
                "neighbours": [min(one.neighbours for one in found), max(one.neighbours for one in found)],
                "all_know_all_s": round(heard - began, 2),
                "all_learned_s": round(learned - began, 2),
                "accuracy": round(mean(good), 4),
                "worst": round(min(good), 4),
                "statements_sent": sum(one.statements_out for one in found),
                "statements_taken": sum(one.statements_in for one in found),
                "statements_needed": count * (count - 1),
                "bytes_out_per_peer": round(mean(one.bytes_out for one in found)),
            }
            if ring:
                row["newcomer"] = newcomer(places[count], test, count, processes)
                row["kills"] = [kill(processes, count + 1, chance, which) for which in range(kills)]
                if soaked:
                    row["soak"] = soak(processes, chance, soaked)
            row["load"] = round(os.getloadavg()[0], 1)
            return row
        finally:
            for process in processes:
                process.stop()


def newcomer(place: Place, test: tuple[Any, Any], others: int, processes: list[Process]) -> dict[str, Any]:
    """Let a peer join that knows one address; return after how many seconds it knew all, and was as good as that.

    When all others know what it stated, it is killed.
    """
    process = Process([place], test)
    try:
        began = process.started()
        knew, _ = until_all_know([process], others, weighed=False)
        learned, _ = until_all_know([process], others)
        known, _ = until_all_know(processes, others, weighed=False)
        (one,) = process.ask(test=True)
        return {
            "knew_all_s": round(knew - began, 2),
            "learned_s": round(learned - began, 2),
            "known_to_all_s": round(known - began, 2),
            "accuracy": round(one.accuracy, 4),
            "neighbours": one.neighbours,
        }
    finally:
        process.kill()


def kill(processes: list[Process], authors: int, chance: random.Random, which: int) -> dict[str, Any]:
    """Kill a third of all peers, neighbours of each other or anywhere; look what the rest knows; start them again."""
    third = len(processes) // 3
    first = chance.randrange(len(processes))
    beside = [(first + step) % len(processes) for step in range(third)]
    dead = beside if which == 0 else chance.sample(range(len(processes)), third)
    before = {one.key_id for process in processes for one in process.ask()}
    for place in dead:
        processes[place].kill()
    rest = [process for place, process in enumerate(processes) if place not in dead]
    # Of all peers and the newcomer, which is gone as well.
    missing = sum(authors - 1 - len(one.numbers) for process in rest for one in process.ask())
    for place in dead:
        processes[place].start()
    back = max(processes[place].started() for place in dead)
    again, found = until_all_know(processes, authors - 1, weighed=False)
    return {
        "killed": "side by side" if which == 0 else "anywhere",
        "peers_killed": third * IN_A_PROCESS,
        "statements_missing_meanwhile": missing,
        "all_know_all_again_s": round(again - back, 2),
        "equivocators": sum(one.equivocators for one in found),
        "same_identities": {one.key_id for one in found} == before,
    }


def soak(processes: list[Process], chance: random.Random, seconds: float) -> dict[str, Any]:
    """Kill and start peers for a while, and let all have more samples; return whether all agree in the end.

    Three processes are spared: they show whether memory or open files grow.
    """
    spared, others = processes[:3], processes[3:]
    watched = [psutil.Process(process.process.pid) for process in spared]

    def sizes() -> tuple[float, float]:
        return mean(one.memory_info().rss for one in watched) / 2**20, mean(one.num_fds() for one in watched)

    before, start = sizes(), {key: number for one in seen_by(processes) for key, number in one.numbers.items()}
    began, killed = time.time(), 0
    while time.time() < began + seconds:
        victim = chance.choice(others)
        chance.choice(processes).grow()
        time.sleep(chance.uniform(0.0, 1.0))
        victim.kill()
        killed += len(victim.places)
        chance.choice(spared).grow()
        time.sleep(chance.uniform(0.0, 2.0))
        victim.start()
        victim.started()
    ended = time.time()
    while len({pair for one in seen_by(processes) for pair in one.numbers.items()}) > len(start):
        if time.time() > ended + PATIENCE:
            raise TimeoutError("peers do not agree on what was stated last")
        time.sleep(0.2)
    found, after = seen_by(processes), sizes()
    last = {key: number for one in found for key, number in one.numbers.items()}
    return {
        "seconds": round(ended - began),
        "peers_killed": killed,
        "authors": len(last),
        "authors_that_stated_anew": sum(last[key] > number for key, number in start.items()),
        "all_agree_after_s": round(time.time() - ended, 2),
        "equivocators": sum(one.equivocators for one in found),
        "least_known": min(len(one.numbers) for one in found),
        "mib_before_and_after": [round(before[0], 1), round(after[0], 1)],
        "open_files_before_and_after": [before[1], after[1]],
    }


def seen_by(processes: list[Process]) -> list[Seen]:
    """Return what all peers know."""
    return [one for process in processes for one in process.ask()]


def main() -> None:
    """Measure, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topologies", nargs="*", help="of ring and mesh; both unless named")
    parser.add_argument("--peers", type=int, default=30)
    parser.add_argument("--kills", type=int, default=5, help="times that a third of the ring is killed")
    parser.add_argument("--soak", type=float, default=0.0, help="seconds of further kills, while all get more samples")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="add a row for every run to this file")
    options = parser.parse_args()
    for topology in options.topologies or ["ring", "mesh"]:
        row = run(options.peers, ring=topology == "ring", kills=options.kills, soaked=options.soak, seed=options.seed)
        print(json.dumps(row, indent=1))
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
