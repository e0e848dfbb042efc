"""What the network does: real peers on loopback and in network namespaces, measured from outside.

`python benchmarks/network.py` runs all cases, `python benchmarks/network.py mesh rough` some, and prints their tables.
`--json FILE` adds a row for every run to a file, of which `--tables` makes tables later; `--quick` shrinks it all, to
see that it works. `benchmarks/peer_cost.py` measures what one peer costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bristle.commands.demo import Demo, digits
from bristle.commands.demo.relay import ROUGH
from bristle.commands.demo.run import running
from bristle.commands.demo.tally import Tally
from bristle.learning.baselines import train_oracle
from bristle.p2p import Limits, Overlay
from bristle.wire import Group, Identity
from bristle.wire.sizes import DATAGRAM
from network_churn import NotPermittedError, churn, enter_own_network

Row = dict[str, Any]
GOOD = 0.91


def network(demo: Demo, *, name: str) -> Row:
    """Run a network of the demo; return what it reached and what that took."""
    demo.check()
    digits()
    with running(demo) as started:
        began = time.monotonic()
        met = started.meet()
        meeting = time.monotonic() - began
        tally = Tally(demo, started.members, samples_per_class=2)
        used = started.processor_seconds
        rows = [row for event in started.learn() if (row := tally.take(event)) is not None]
        used = started.processor_seconds - used
    good = next((row for row in rows if row["accuracy_mean"] >= GOOD), None)
    return {
        "case": name,
        "peers": demo.peers,
        "attackers": demo.attackers,
        "processes": demo.processes,
        "seed": demo.seed,
        "iterations": demo.iterations,
        "accuracy": rows[-1]["accuracy_mean"],
        "worst": rows[-1]["accuracy_min"],
        "attacker_weight": tally.whole.attackers,
        "heard": tally.heard,
        "seconds_per_iteration": rows[-1]["seconds"] / demo.iterations,
        "processor": used / demo.iterations / demo.members,
        "good_at_iteration": good and good["iteration"],
        "good_after_s": good and good["seconds"],
        "neighbours": min(met.values()),
        "meeting_s": meeting,
        "bytes_per_head": sum(peer.bytes_out for peer in tally.peers) / max(1, tally.heads_in),
        "retransmissions": tally.retransmissions,
        "load": os.getloadavg()[0],
    }


def of_demo(quick: bool, seed: int) -> list[Row]:
    """Label flippers among peers, as `make demo` has them."""
    return [network(Demo(rule="bristle", seed=seed, **_length(quick)), name="demo")]


def of_mesh(quick: bool, seed: int) -> list[Row]:
    """Peers without attackers: in step, and fast; in one process and in two; with fewer bytes."""
    mesh = Demo(rule="bristle", attackers=0, seed=seed, **_length(quick))
    cases = [mesh] if quick else [mesh, replace(mesh, processes=2), replace(mesh, interval=0.0, processes=2)]
    return [network(case, name="mesh" if case.interval else "mesh at full speed") for case in cases]


def of_rough(quick: bool, seed: int) -> list[Row]:
    """The same peers with and without a bad line between them."""
    still = Demo(rule="bristle", attackers=0, seed=seed, **_length(quick))
    if quick:
        still = replace(still, iterations=2 * still.iterations)  # It takes longer to learn as much.
    cases = [replace(still, impairment=ROUGH)] if quick else [still, replace(still, impairment=ROUGH)]
    return [network(case, name="rough" if case.impairment else "smooth") for case in cases]


def of_bytes(quick: bool, seed: int) -> list[Row]:
    """Send trained heads over a path with small datagrams, as on the internet; count every byte, both ways."""
    data = digits()
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(data.train_labels), 20 if quick else 100, replace=False)
    head = np.asarray(train_oracle(data.train[chosen], data.train_labels[chosen], len(data.classes)), np.float32)
    whole, difference = asyncio.run(_bytes(head, rng))
    return [
        {"case": "bytes", "sent": "in full", "seed": seed, "bytes_per_head": whole},
        {"case": "bytes", "sent": "as differences", "seed": seed, "bytes_per_head": difference},
    ]


async def _bytes(head: np.ndarray[Any, np.dtype[np.float32]], rng: np.random.Generator) -> tuple[float, float]:
    """Return what the first head takes, and each of the next ten, which change by a hundredth at a time."""
    group = Group(application="bytes", backbone="any", classes=tuple("0123456789"), features=head.shape[1])
    limits = Limits(loopback_datagram=DATAGRAM)
    near = Overlay(identity=Identity.generate(), group=group, limits=limits)
    await near.start()
    far = Overlay(identity=Identity.generate(), group=group, limits=limits, known=[near.address])
    await far.start()
    try:
        async with asyncio.timeout(30):
            while not near.neighbours() or not far.neighbours():
                await asyncio.sleep(0.01)
            taken = []
            for iteration in range(11):
                before = near.counters
                near.share(head, iteration=iteration, claims=np.ones(10, np.bool))
                await far.arrival()
                await near.sent()
                far.take()
                after = near.counters
                taken.append(after.bytes_in + after.bytes_out - before.bytes_in - before.bytes_out)
                head = head + np.float32(0.01) * head.std() * rng.normal(size=head.shape).astype(np.float32)
    finally:
        await near.stop()
        await far.stop()
    return taken[0], sum(taken[1:]) / 10


def of_churn(quick: bool, seed: int) -> list[Row]:
    """Peers that are killed, come back, come late, leave for good, and are parted."""
    with tempfile.TemporaryDirectory(prefix="bristle-churn-") as folder:
        return [{"case": "churn", "seed": seed, **churn(Path(folder), quick=quick), "load": os.getloadavg()[0]}]


CASES: dict[str, Callable[[bool, int], list[Row]]] = {
    "demo": of_demo, "mesh": of_mesh, "rough": of_rough, "bytes": of_bytes, "churn": of_churn,
}  # fmt: skip


def _length(quick: bool) -> dict[str, Any]:
    return {"peers": 5, "iterations": 20, "classes_per_peer": 6} if quick else {}


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "accuracy": ("accuracy", "{:.4f}".format),
    "worst": ("worst peer", "{:.4f}".format),
    "attacker_weight": ("attackers' weight", "{:.3%}".format),
    "heard": ("newest heads heard", "{:.0%}".format),
    "seconds_per_iteration": ("s an iteration", "{:.2f}".format),
    "processor": ("processor, ms a peer and iteration", lambda value: f"{1e3 * value:.1f}"),
    "good_at_iteration": (f"{GOOD} at iteration", "{:.0f}".format),
    "good_after_s": ("after s", "{:.1f}".format),
    "bytes_per_head": ("bytes a head", "{:,.0f}".format),
    "retransmissions": ("sent again", "{:,.0f}".format),
    "load": ("load", "{:.1f}".format),
}


def tables(rows: list[Row]) -> str:
    """Return medians over the runs: a line for every network, and what became of peers that came and went."""
    machine = (
        f"{os.cpu_count()} processors shared with other work, {platform.machine()}, Python {sys.version.split()[0]}"
    )
    lines = [f"Medians over the runs ({machine}). Load is the system's at the end of a run.", ""]
    networks = [row for row in rows if "heard" in row]
    if networks:
        lines += ["| | runs | " + " | ".join(head for head, _ in COLUMNS.values()) + " |"]
        lines += ["|---" * (len(COLUMNS) + 2) + "|"]
    for way in dict.fromkeys(map(_way, networks)):
        some = [row for row in networks if _way(row) == way]
        cells = [_median([row[column] for row in some], told) for column, (_, told) in COLUMNS.items()]
        lines.append(f"| {way} | {len(some)} | {' | '.join(cells)} |")
    for case, columns in (("bytes", ["sent", "bytes_per_head"]), ("churn", None)):
        some = [row for row in rows if row["case"] == case]
        for row in some:
            shown = columns or [column for column in row if column not in ("case", "seed")]
            lines += ["", *(f"- {case}: {column.replace('_', ' ')}: {_word(row[column])}" for column in shown)]
    return "\n".join(lines)


def _way(row: Row) -> str:
    told = [row["case"], f"{row['peers']} + {row['attackers']}", f"{row['processes']} process"]
    return ", ".join(told) + ("es" if row["processes"] > 1 else "")


def _median(values: list[float | None], told: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return told(median(known)) if len(known) == len(values) else "-"


def _word(value: object) -> str:
    return (
        ("yes" if value else "no")
        if isinstance(value, bool)
        else f"{value:.3f}"
        if isinstance(value, float)
        else str(value)
    )


def main() -> None:
    """Measure, and write down what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"which, of {', '.join(CASES)}; all unless named")
    parser.add_argument("--runs", type=int, default=1, help="how often, with another seed each time")
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    parser.add_argument("--json", type=Path, help="add a row for every run to this file")
    parser.add_argument("--tables", action="store_true", help="measure nothing; make tables of the file's rows")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}")
    if options.tables:
        print(tables([json.loads(line) for line in options.json.read_text(encoding="utf-8").splitlines()]))
        return
    names = options.cases or list(CASES)
    if "churn" in names:
        try:
            enter_own_network()
        except NotPermittedError as error:
            print(f"churn is left out: {error}", file=sys.stderr)
            names = [name for name in names if name != "churn"]
    rows = []
    for seed in range(options.runs):
        for name in names:
            for row in CASES[name](options.quick, seed):
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
                if options.json is not None:
                    with options.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
    print(tables(rows) if rows else "")


if __name__ == "__main__":
    main()
