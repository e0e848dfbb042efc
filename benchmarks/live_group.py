"""A group of live peers on one machine: what a peer costs, whether all hear their neighbours, and what they learn.

`python benchmarks/live_group.py` runs groups of 10, 100 and 300 peers in two processes and prints a table; `--json X`
keeps the rows, of which `--tables X` makes the table again and `--figure FILE` a picture. Every peer has a socket,
an identity, a folder and a store of its own, holds 4 of the 10 digits with 2 training and 10 held-out samples of each,
and has at most 10 neighbours, which it finds by the addresses of three others. Memory is what the two processes hold
at the end beyond what they held before the first peer; time is theirs on the processor from when everybody has found
its neighbours. The interval grows with the group, so that the machine keeps up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bristle import Peer, rules
from bristle._core import to_numpy
from bristle.commands.demo import Demo, backbone, digits
from bristle.learning.samples import Samples
from bristle.p2p import Limits
from bristle.peer.pace import Pace
from bristle.peer.record import Turn
from bristle.peer.store import PeerStore
from bristle.peer.store_files import IDENTITY, STORE, make_private
from bristle.simulation.population import populate
from bristle.wire import Group as WireGroup
from bristle.wire import Identity

Row = dict[str, Any]
APPLICATION = "live group"
LAST = 5
"""A neighbour is heard if something new of it was used in one of so many last iterations."""
PATIENCE = 120.0
"""Seconds that peers have to find each other."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group to run: peers in processes, each with so many neighbours, for so many iterations."""

    peers: int
    rule: str = "bristle"
    neighbours: int = 10
    iterations: int = 40
    processes: int = 2
    seed: int = 0

    @property
    def interval(self) -> float:
        """Seconds between the iterations of a peer."""
        return max(0.2, 0.02 * self.peers)

    @property
    def expected(self) -> int:
        """Neighbours that every peer should find."""
        return min(self.neighbours, self.peers - 1)


def ports(count: int) -> list[int]:
    """Return free ports of the loopback device."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def serve(group: Group, members: tuple[int, ...], addresses: list[int], folder: Path, pipe: Connection) -> None:
    """Run some members of a group in this process."""
    asyncio.run(_serve(group, members, addresses, folder, pipe))


async def _serve(group: Group, members: tuple[int, ...], addresses: list[int], folder: Path, pipe: Connection) -> None:
    data = digits()
    demo = Demo(peers=group.peers, attackers=0, rule=group.rule, seed=group.seed)
    population = populate(replace(demo.scenario(group.rule), reuse=True), data)
    process = psutil.Process()
    empty = process.memory_info().rss
    heard: dict[int, dict[str, int]] = defaultdict(dict)
    accuracy: dict[int, float] = {}
    counted: list[int] = []

    def took(number: int, turn: Turn) -> None:
        counted.append(len(turn.record.heard))
        for one in turn.record.heard:
            heard[number][one.sender] = turn.record.iteration
        if turn.record.accuracy is not None:
            accuracy[number] = turn.record.accuracy

    rng = np.random.default_rng([group.seed, 1])
    known = [rng.choice([one for one in range(group.peers) if one != number], min(3, group.peers - 1), replace=False)
             for number in range(group.peers)]  # fmt: skip
    of = WireGroup(
        application=APPLICATION, backbone=backbone().digest, classes=data.classes, features=backbone().features
    )
    for number in members:
        parts = _held(population.held, number), _held(population.held_out, number)
        _fill(folder / f"peer-{number}", of, *parts)
    peers = {
        number: Peer(
            application=APPLICATION,
            classes=data.classes,
            folder=folder / f"peer-{number}",
            backbone=backbone(),
            listen=("127.0.0.1", addresses[number]),
            known=[("127.0.0.1", addresses[one]) for one in known[number]],
            rule=rules.create(group.rule),
            pace=Pace(interval=group.interval),
            limits=Limits(neighbours=group.neighbours),
            seed=1000 * group.seed + number,
            test=(data.test, data.test_labels),
            test_every=group.iterations,
            on_iteration=partial(took, number),
        )
        for number in members
    }
    try:
        for peer in peers.values():
            await peer.__aenter__()
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            met = [len(peer.status().neighbours) for peer in peers.values()]
            if min(met) >= group.expected:
                break
            await asyncio.sleep(0.5)
        pipe.send({"met_after": time.monotonic() - began})
        while not pipe.poll():
            await asyncio.sleep(0.05)
        pipe.recv()
        before, start = process.cpu_times(), time.monotonic()
        await asyncio.gather(*(peer.run(group.iterations) for peer in peers.values()))
        after, seconds = process.cpu_times(), time.monotonic() - start
        rss = process.memory_info().rss
        status = {number: peer.status() for number, peer in peers.items()}
        around = {number: [one.key_id for one in found.neighbours] for number, found in status.items()}
        recent = group.iterations - LAST
        pipe.send(
            {
                "bytes": rss - empty,
                "process_bytes": rss,
                "cpu": after.user + after.system - before.user - before.system,
                "seconds": seconds,
                "neighbours": [len(found) for found in around.values()],
                "heard": [
                    sum(heard[number].get(key, 0) > recent for key in found) / max(1, len(found))
                    for number, found in around.items()
                ],
                "models": sum(counted) / max(1, len(counted)),
                "accuracy": [accuracy.get(number, float("nan")) for number in peers],
                "bytes_out": sum(found.counters["bytes_out"] for found in status.values()),
                "heads_in": sum(found.counters["heads_in"] for found in status.values()),
            }
        )
        while not pipe.poll():
            await asyncio.sleep(0.05)
    finally:
        await asyncio.gather(*(peer.__aexit__(None, None, None) for peer in peers.values()))


def _fill(folder: Path, group: WireGroup, training: Samples, held_out: Samples) -> None:
    """Put a peer's samples into its store, split as in the simulator."""
    make_private(folder)
    identity = Identity.load_or_create(folder / IDENTITY)
    store = PeerStore(folder / STORE, identity=identity.key_id.hex(), group=group)
    try:
        store.add_samples(training, held_out)
    finally:
        store.close()


def _held(samples: Samples, number: int) -> Samples:
    """Return the samples of one peer."""
    labels, index = to_numpy(samples.labels[number]), to_numpy(samples.index[number])
    there = labels >= 0
    return Samples(to_numpy(samples.features)[index[there]], labels[there].astype(np.int64))


def run(group: Group) -> Row:
    """Run a group; return what it took and what came of it."""
    context = multiprocessing.get_context("spawn")
    addresses = ports(group.peers)
    with tempfile.TemporaryDirectory(prefix="group-") as name:
        pipes, processes = [], []
        for place in range(group.processes):
            near, far = context.Pipe()
            members = tuple(range(place, group.peers, group.processes))
            process = context.Process(target=serve, args=(group, members, addresses, Path(name), far), daemon=True)
            process.start()
            far.close()
            pipes.append(near)
            processes.append(process)
        try:
            met = [pipe.recv() for pipe in pipes]
            for pipe in pipes:
                pipe.send("go")
            parts = [pipe.recv() for pipe in pipes]
            for pipe in pipes:
                pipe.send("stop")
        finally:
            for process in processes:
                process.join(30)
                if process.is_alive():
                    process.kill()
    together = {key: [value for part in parts for value in part[key]] for key in ("neighbours", "heard", "accuracy")}
    turns = group.peers * group.iterations
    return {
        "peers": group.peers,
        "rule": group.rule,
        "processes": group.processes,
        "iterations": group.iterations,
        "interval": group.interval,
        "seconds_an_iteration": max(part["seconds"] for part in parts) / group.iterations,
        "met_after": max(part["met_after"] for part in met),
        "neighbours_least": min(together["neighbours"]),
        "neighbours": float(np.mean(together["neighbours"])),
        "heard": float(np.mean(together["heard"])),
        "heard_least": min(together["heard"]),
        "new_heads": float(np.mean([part["models"] for part in parts])),
        "accuracy": float(np.mean(together["accuracy"])),
        "worst": min(together["accuracy"]),
        "mb_a_peer": sum(part["bytes"] for part in parts) / group.peers / 2**20,
        "mb_a_process": max(part["process_bytes"] for part in parts) / 2**20,
        "cpu_ms": 1000 * sum(part["cpu"] for part in parts) / turns,
        "kb_sent": sum(part["bytes_out"] for part in parts) / turns / 1000,
        "load": os.getloadavg()[0],
    }


COLUMNS = (
    "peers", "rule", "neighbours, least", "heard, least", "accuracy", "worst peer", "MB a peer", "MB a process",
    "CPU ms a peer and iteration", "s an iteration (interval)", "KB sent a peer and iteration", "load",
)  # fmt: skip


def table(rows: list[Row]) -> str:
    """Return a Markdown table of groups."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = [
            str(row["peers"]), f"`{row['rule']}`", f"{row['neighbours']:.1f}, {row['neighbours_least']}",
            f"{row['heard']:.1%}, {row['heard_least']:.0%}", f"{row['accuracy']:.3f}", f"{row['worst']:.3f}",
            f"{row['mb_a_peer']:.2f}", f"{row['mb_a_process']:.0f}", f"{row['cpu_ms']:.1f}",
            f"{row['seconds_an_iteration']:.2f} ({row['interval']:g})", f"{row['kb_sent']:.1f}", f"{row['load']:.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: list[Row], path: Path) -> None:
    """Draw memory and processor time a peer against the size of the group."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    shown = (
        ("mb_a_peer", "memory a peer, MB"),
        ("cpu_ms", "processor a peer and iteration, ms"),
        ("accuracy", "accuracy"),
    )
    for rule in dict.fromkeys(row["rule"] for row in rows):
        of_rule = sorted((row for row in rows if row["rule"] == rule), key=lambda row: row["peers"])
        for axis, (key, _) in zip(axes, shown, strict=True):
            axis.plot([row["peers"] for row in of_rule], [row[key] for row in of_rule], "o-", label=rule)
    for axis, (key, title) in zip(axes, shown, strict=True):
        most = 1.0 if key == "accuracy" else 1.2 * max(row[key] for row in rows)
        axis.set(title=title, xlabel="peers", xscale="log", ylim=(0.9 if key == "accuracy" else 0, most))
        axis.title.set_fontsize(9)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, nargs="+", default=[10, 100, 300])
    parser.add_argument("--rule", default="bristle")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--json", type=Path, help="add the rows to this file")
    parser.add_argument("--tables", type=Path, help="print the table of the rows in this file, and run nothing")
    parser.add_argument("--figure", type=Path, help="draw the rows into this file")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.tables:
        rows = [json.loads(line) for line in options.tables.read_text().splitlines()]
    else:
        os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        # Some files a peer: its socket, its store, its lock.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
        digits()  # Once, before processes ask for it.
        for peers in options.peers:
            rows.append(run(Group(peers=peers, rule=options.rule, iterations=options.iterations)))
            if options.json:
                with options.json.open("a") as lines:
                    lines.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
