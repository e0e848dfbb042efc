"""What one peer costs: memory, processor, bytes and disk, at rest and at work, measured from outside its process.

`python benchmarks/peer_cost.py` prints a table; `--out docs/peer.md` puts it between that page's markers. The peer
runs in a process of its own, its neighbours in another one, on loopback, with the bundled backbone and images.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bristle import Peer, rules
from bristle.backbones.backbone import bundled
from bristle.backbones.features import extract
from bristle.commands.status import get_status
from bristle.data import load
from bristle.peer.http import HttpEndpoint
from bristle.peer.pace import Pace

CLASSES = tuple(str(digit) for digit in range(10))
START, END = "<!-- cost: written by benchmarks/peer_cost.py -->", "<!-- end of cost -->"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to run a peer."""

    name: str
    neighbours: int
    interval: float = 1.0
    rests: bool = False


CASES = (
    Case(name="alone, resting", neighbours=0, rests=True),
    Case(name="10 neighbours, resting", neighbours=10, rests=True),
    Case(name="alone, every second", neighbours=0),
    Case(name="10 neighbours, every second", neighbours=10),
    Case(name="10 neighbours, every 10 seconds", neighbours=10, interval=10.0),
    Case(name="10 neighbours, as fast as it goes", neighbours=10, interval=0.0),
)


def prepare(path: Path) -> None:
    """Write the features that the peers use."""
    data = load("mnist")
    chosen = np.concatenate([np.flatnonzero(data.y_train == digit)[:20] for digit in range(10)])
    np.savez(path, x=extract(bundled(), data.x_train[chosen], cache=False), y=data.y_train[chosen])


def never() -> bool:
    """Do not train: the peer is in touch with others, and rests."""
    return False


def make(folder: Path, number: int, data: Any, case: Case, known: list[tuple[str, int]]) -> tuple[Peer, Any, Any]:
    """Return a peer that holds four of the ten classes, and what it holds."""
    pace = Pace(interval=case.interval, train_when=never) if case.rests else Pace(interval=case.interval)
    peer = Peer(
        application="cost",
        classes=CLASSES,
        folder=folder / f"peer-{number}",
        known=known,
        pace=pace,
        rule=rules.create("bristle"),
    )
    mine = np.isin(data["y"], [(number + step) % 10 for step in range(4)])
    return peer, data["x"][mine], data["y"][mine]


async def serve(folder: Path, first: int, count: int, case: Case, known: list[tuple[str, int]]) -> None:
    """Run peers until the process is ended; say where the first one listens."""
    data = dict(np.load(folder / "features.npz"))
    made = [make(folder, first + place, data, case, known) for place in range(count)]
    for peer, features, labels in made:
        await peer.__aenter__()
        peer.add(features, labels, features=True)
    async with HttpEndpoint(made[0][0]):
        print(json.dumps(made[0][0].address), flush=True)
        await asyncio.gather(*(peer.run() for peer, _, _ in made))


def start(folder: Path, first: int, count: int, case: Case, known: list[Any]) -> tuple[psutil.Popen, Any]:
    """Start a process of peers; return it and the address of its first one."""
    words = [str(folder), str(first), str(count), json.dumps(vars(case)), json.dumps(known)]
    process = psutil.Popen([sys.executable, __file__, "--serve", *words], stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())


def measure(case: Case, seconds: float) -> dict[str, float]:
    """Run one case and return what the peer used, per second where that makes sense."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder / "features.npz")
        peer, address = start(folder, 0, 1, case, [])
        others = []
        if case.neighbours:
            # The neighbours of a peer that rests go on as usual.
            usual = Case(name="", neighbours=0, interval=case.interval)
            others.append(start(folder, 1, case.neighbours, usual, [address])[0])
        try:
            deadline = time.monotonic() + 60
            while len(get_status(folder / "peer-0").neighbours) < case.neighbours and time.monotonic() < deadline:
                time.sleep(0.2)
            time.sleep(3)
            return _watch(peer, folder / "peer-0", max(seconds, 3 * case.interval))
        finally:
            for process in (peer, *others):
                process.kill()
                process.wait()


def _watch(peer: psutil.Popen, folder: Path, seconds: float) -> dict[str, float]:
    before, cpu, disk, began = get_status(folder), peer.cpu_times(), peer.io_counters(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    after, cpu_after, disk_after = get_status(folder), peer.cpu_times(), peer.io_counters()
    used = (cpu_after.user + cpu_after.system) - (cpu.user + cpu.system)
    iterations = after.iteration - before.iteration
    return {
        "iterations": iterations / took,
        "memory": peer.memory_info().rss / 2**20,
        "cpu": 100 * used / took,
        "cpu_each": 1000 * used / iterations if iterations else float("nan"),
        "out": (after.counters["bytes_out"] - before.counters["bytes_out"]) / took,
        "in": (after.counters["bytes_in"] - before.counters["bytes_in"]) / took,
        "disk": (disk_after.write_bytes - disk.write_bytes) / took,
    }


def table(rows: list[tuple[Case, dict[str, float]]], seconds: float) -> str:
    """Return the figures as a page has them."""
    lines = [
        f"Measured over {seconds:.0f} s or more each on {psutil.cpu_count()} processors shared with other work "
        f"({platform.machine()}, Python {platform.python_version()}); heads of 10 x 800 numbers, rule `bristle`.",
        "",
        "| | iterations/s | memory | processor | per iteration | sent/s | received/s | written/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, row in rows:
        each = f"{row['cpu_each']:.1f} ms" if row["iterations"] else "-"
        lines.append(
            f"| {case.name} | {row['iterations']:.2g} | {row['memory']:.0f} MiB | {row['cpu']:.1f} % | {each} | "
            f"{row['out'] / 1000:.1f} kB | {row['in'] / 1000:.1f} kB | {row['disk'] / 1000:.0f} kB |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure all cases, or serve peers for a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each case is watched")
    parser.add_argument("--out", type=Path, help="a page with markers for the table")
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        folder, first, count, case, known = options.serve
        addresses = [(host, port) for host, port in json.loads(known)]
        asyncio.run(serve(Path(folder), int(first), int(count), Case(**json.loads(case)), addresses))
        return
    rows = []
    for case in CASES:
        rows.append((case, measure(case, options.seconds)))
        print(case.name, {name: round(value, 2) for name, value in rows[-1][1].items()}, file=sys.stderr)
    text = table(rows, options.seconds)
    print(text)
    if options.out is not None:
        page = options.out.read_text(encoding="utf-8")
        head, rest = page.split(START)
        options.out.write_text(f"{head}{START}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
