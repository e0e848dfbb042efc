"""A round over real sockets: our network beside Flower 1.42 and p2pfl 0.4.4, on the same head, samples and machine.

    python benchmarks/field.py [--quick] [--json rows.json]

`make field` installs the two in environments of their own; what is missing is left out. Every system trains one
mini-batch of 5 a round at each peer. All run in one network namespace of their own, one after another and ours and
Flower's once more at the end, so that the counters of its loopback device tell what each sent, headers included;
memory is that of all their processes, without what they share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import psutil

from bristle._core import to_numpy
from bristle.commands.demo import Demo, digits
from bristle.commands.demo.run import running
from bristle.commands.demo.worker import PeerIteration
from bristle.simulation.population import populate
from field_task import Task, loopback_bytes
from network_churn import NotPermittedError, enter_own_network

Row = dict[str, Any]
HERE = Path(__file__).resolve().parent
FIELD = HERE.parent / ".field"
GOOD = 0.9
LIMIT = 240.0
"""Seconds after which a system has not finished."""

MOST_OF_P2PFL = 5
"""Fully connected nodes of p2pfl that did some rounds here; 10 never did, see docs/benchmarks.md."""

ROUNDS_OF_P2PFL, LEAST_ROUNDS = 10, 3
"""Rounds that p2pfl is asked for, since one takes seconds, and those after which its nodes may stall."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the network is: peers, digits that each holds, and rounds."""

    peers: int
    classes: int
    rounds: int

    def demo(self, rule: str) -> Demo:
        """Return the network as ours has it: nobody attacks, and iterations follow each other without a pause.

        Two processes hold its peers. The others have one for each.
        """
        return Demo(
            peers=self.peers,
            attackers=0,
            classes_per_peer=self.classes,
            rule=rule,
            interval=0.0,
            iterations=self.rounds,
            processes=2,
        )


TINY, SMALL = Size(peers=3, classes=6, rounds=10), Size(peers=5, classes=6, rounds=20)
LARGE = Size(peers=10, classes=4, rounds=30)


@dataclass
class Watch:
    """The most memory that the processes started here had, in bytes."""

    peak: int = 0
    processes: int = 0
    _done: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Look until told to stop."""
        while not self._done.wait(0.25):
            used = [memory for child in psutil.Process().children(recursive=True) if (memory := _own_memory(child))]
            if sum(used) > self.peak:
                self.peak, self.processes = sum(used), len(used)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look while something else is done."""
        thread = threading.Thread(target=self.look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()


def _own_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:  # It has ended meanwhile.
        return 0


def ours(rule: str, size: Size) -> list[Row]:
    """Run our network; return a row for every iteration after which peers were tested."""
    demo, rows = size.demo(rule), list[Row]()
    told: dict[int, list[PeerIteration]] = {}
    with running(demo) as network:
        network.meet()
        rows.append({"round": 0, "at": time.time(), "accuracy": 0.0, "bytes": loopback_bytes()})
        for event in network.learn():
            if isinstance(event, PeerIteration):
                done = told.setdefault(event.iteration, [])
                done.append(event)
                if len(done) == demo.peers and event.accuracy is not None:
                    accuracy = fmean(step.accuracy or 0.0 for step in done)
                    at = max(step.at for step in done)
                    rows.append({"round": event.iteration, "at": at, "accuracy": accuracy, "bytes": loopback_bytes()})
    return rows


def once(size: Size) -> list[Row]:
    """Run our network with evidence, whose peers exchange statements once; return a row for every decision.

    Time and bytes count from before the first datagram.
    """
    demo, latest = size.demo("evidence"), dict[int, float]()
    with running(demo) as network:
        before = loopback_bytes()
        network.meet()
        rows = [{"round": 0, "at": network.began, "accuracy": 0.0, "bytes": before}]
        for event in network.learn():
            if isinstance(event, PeerIteration) and event.accuracy is not None:
                latest[event.peer] = event.accuracy
                accuracy = sum(latest.values()) / demo.peers
                rows.append({"round": 1, "at": event.at, "accuracy": accuracy, "bytes": loopback_bytes()})
    return rows


def theirs(name: str, size: Size, task: Path) -> list[Row]:
    """Run another system in its own environment; return its rows."""
    rounds, least = (ROUNDS_OF_P2PFL, LEAST_ROUNDS) if name == "p2pfl" else (size.rounds, size.rounds)
    words = [str(python_of(name)), str(HERE / f"field_{name}.py"), str(task), "--rounds", str(rounds)]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=folder,
            env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)},
        )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"round"')]
    if done.returncode or len(rows) <= least:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return rows


def python_of(name: str) -> Path:
    """Return the interpreter of another system's environment."""
    return FIELD / name / "bin" / "python"


def available(name: str) -> bool:
    """Tell whether `make field` has made that environment."""
    return python_of(name).exists()


def summed_up(name: str, size: Size, run: Callable[[], list[Row]], counted: bool) -> Row:
    """Run a system and say what it took."""
    watch, began = Watch(), time.monotonic()
    summary: Row = {"system": name, "peers": size.peers, "load": os.getloadavg()[0]}
    try:
        with watch.looking():
            rows = run()
    except (subprocess.TimeoutExpired, RuntimeError) as error:
        why = f"not done after {LIMIT:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        return {**summary, "failed": why}
    if rows[-1]["round"] == 1:
        took, sent = [rows[-1]["at"] - rows[0]["at"]], (rows[-1]["bytes"] - rows[0]["bytes"]) / size.peers
    else:
        took = [(later["at"] - row["at"]) / (later["round"] - row["round"]) for row, later in pairwise(rows)][1:]
        # What was sent before the first of two tested rounds belongs to setting up.
        sent = (rows[-1]["bytes"] - rows[1]["bytes"]) / (rows[-1]["round"] - rows[1]["round"]) / size.peers
    good = next((row for row in rows if row["accuracy"] >= GOOD), None)
    return {
        **summary,
        "seconds": median(took),
        "rounds": rows[-1]["round"],
        "accuracy": rows[-1]["accuracy"],
        "good_at": good and good["round"],
        "bytes": sent if counted else None,
        "good_bytes": (good["bytes"] - rows[0]["bytes"]) / size.peers if good and counted else None,
        "memory": watch.peak,
        "processes": watch.processes,
        "whole": time.monotonic() - began,
    }


def write_task(size: Size, path: Path) -> None:
    """Write down what the peers of our network would learn from, for the others."""
    data = digits()
    held = populate(size.demo("fedavg").scenario("fedavg"), data).held
    assert held.index is not None
    index = to_numpy(held.index)
    Task(data.train[index], to_numpy(held.labels), data.test, np.asarray(data.test_labels)).save(path)


def measure(*, quick: bool, counted: bool, tell: Callable[[str], None] = lambda line: None) -> list[Row]:
    """Run all that is here, ours and Flower first and last."""
    rows = []
    for size in (TINY,) if quick else (SMALL, LARGE):
        with tempfile.TemporaryDirectory() as folder:
            task = Path(folder) / "task.npz"
            write_task(size, task)
            mine = [("Bristle, bristle", "bristle"), ("Bristle, fedavg", "fedavg")]
            runs: list[tuple[str, Callable[[], list[Row]]]] = [
                (name, partial(ours, rule, size)) for name, rule in mine[: 1 if quick else 2]
            ]
            runs.insert(0, ("Bristle, evidence", partial(once, size)))
            others = [("flower", "Flower 1.42, FedAvg, a server"), ("p2pfl", "p2pfl 0.4.4, FedAvg")]
            for name, told in others:
                if name == "p2pfl" and size.peers > MOST_OF_P2PFL:
                    continue
                if available(name):
                    runs.append((told, partial(theirs, name, size, task)))
                else:
                    tell(f"{told} is left out: run `make field`")
            again = [] if quick else [run for run in runs if not run[0].startswith("p2pfl")]
            for name, run in (*runs, *again):
                rows.append(summed_up(name, size, run, counted))
                tell(json.dumps(rows[-1]))
    return rows


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "rounds": ("rounds", "{:.0f}".format),
    "seconds": ("s a round", "{:.3g}".format),
    "bytes": ("KB a round and peer", lambda value: f"{value / 1e3:,.0f}"),
    "good_at": (f"{GOOD:.0%} at round", "{:.0f}".format),
    "good_bytes": (f"KB a peer to {GOOD:.0%}", lambda value: f"{value / 1e3:,.0f}"),
    "accuracy": ("accuracy in the end", "{:.3f}".format),
    "memory": ("peak memory, MB", lambda value: f"{value / 1e6:,.0f}"),
    "processes": ("processes", "{:.0f}".format),
    "load": ("load", "{:.1f}".format),
}


def table(rows: list[Row]) -> str:
    """Return a Markdown table: medians over the runs of a system."""
    heads = " | ".join(head for head, _ in COLUMNS.values())
    lines = [f"| peers | system | runs | {heads} |", "|---" * (len(COLUMNS) + 3) + "|"]
    for peers, name in dict.fromkeys((row["peers"], row["system"]) for row in rows):
        some = [row for row in rows if (row["peers"], row["system"]) == (peers, name)]
        failed = [row["failed"] for row in some if "failed" in row]
        if failed:
            cells = [failed[0], *[""] * (len(COLUMNS) - 1)]
        else:
            cells = [_median([row[column] for row in some], told) for column, (_, told) in COLUMNS.items()]
        lines.append(f"| {peers} | {name} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(values: list[float | None], told: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return told(median(known)) if len(known) == len(values) else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three peers and few rounds, to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--task", type=Path, help="measure nothing; write the task of 10 peers to this file")
    options = parser.parse_args()
    if options.task:
        write_task(LARGE, options.task)
        return
    try:
        enter_own_network()
        counted = True
    except NotPermittedError as error:
        print(f"bytes are not counted: {error}", file=sys.stderr)
        counted = False
    rows = measure(quick=options.quick, counted=counted, tell=lambda line: print(line, file=sys.stderr, flush=True))
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
