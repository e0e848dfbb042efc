"""The tables of docs/evidence.md: accuracy of `evidence` without attackers, and what every attack costs it.

    python benchmarks/evidence.py run --data mnist --seeds 100,101,102 --out out/evidence-mnist.jsonl
    python benchmarks/evidence.py table out/evidence-*.jsonl

`run` adds a row for every cell (samples, seed, attackers, attack, options) that the file does not have yet, in several
processes; Ctrl-C loses nothing. With `--top 10`, only the settings that cost most among the cells with `--like`
attackers that the file has: by the accuracy on a peer's own classes, and over all classes. `adaptive` runs if named.
`--data` is `mnist`, any file or folder that `bristle.data.load` reads, or an .npz of ready features (train,
train_labels, test, test_labels). `table` prints the settings that cost most, against the benign exchange of the same
seeds.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bristle import attacks, rules
from bristle.attacks.grids import GRIDS
from bristle.simulation import FeatureData, Scenario, World, measure

Row = dict[str, Any]
SAMPLES = (2, 15)
TESTABLE = ("label-flip", "additive-noise", "sign-flip", "krum", "trimmed-mean")
"""Attacks that a test on own samples can tell, for which five attackers are run as well."""
WITHIN, BEYOND = (3, 2, 1), (5, 4, 24, 100)
BENIGN_SAMPLES = (2, 15, 150)


def features(data: str) -> FeatureData:
    """Return features of a dataset, ready ones or made by the bundled backbone."""
    path = Path(data)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            if "test_labels" in file:
                train, test = file["train"].astype(np.float32), file["test"].astype(np.float32)
                labels, tests = file["train_labels"].astype(np.int64), file["test_labels"].astype(np.int64)
                names = tuple(str(number) for number in range(int(labels.max()) + 1))
                return FeatureData(train, labels, test, tests, names)
    from bristle.backbones import bundled  # noqa: PLC0415 - ready features need no backbone
    from bristle.data import load  # noqa: PLC0415
    from bristle.simulation import prepare  # noqa: PLC0415

    return prepare(load(data), bundled())


def cells(seeds: list[int], wanted: list[str], classes: int) -> Iterator[Row]:
    """Yield what is to be run."""
    peers = 26 if classes == 26 else 10
    for seed in seeds:
        for samples in BENIGN_SAMPLES if peers == 10 else (15,):
            for held_out in (True, False):
                yield _cell(peers, samples, seed, 0, "none", {}, {"held_out": held_out})
    if peers != 10:
        return
    for seed, samples in itertools.product(seeds, SAMPLES):
        for name in wanted:
            for options in GRIDS[name]:
                for liars in (*WITHIN, *((5,) if name in TESTABLE else ())):
                    yield _cell(peers, samples, seed, liars, name, options, {})
                for liars in BEYOND:
                    yield _cell(peers, samples, seed, liars, name, options, {})
                    if liars in (5, 24):
                        yield _cell(peers, samples, seed, liars, name, options, {"cautious": True})


def _cell(peers: int, samples: int, seed: int, liars: int, attack: str, options: Row, rule: Row) -> Row:
    return {
        "peers": peers,
        "samples": samples,
        "seed": seed,
        "attackers": liars,
        "attack": attack,
        "options": options,
        "rule": rule,
    }


_HONEST: dict[str, tuple[Any, ...]] = {}
"""What honest peers state, and what attackers make of it, for worlds of the same seed."""


def made(data: FeatureData, cell: Row) -> World:
    """Return the world of a cell, with honest statements made once for all cells that have the same."""
    scenario = Scenario(
        peers=cell["peers"],
        attackers=cell["attackers"],
        attack=attacks.create(cell["attack"], **cell["options"]),
        rule=rules.create("evidence", **cell["rule"]),
        samples_per_class=cell["samples"],
        seed=cell["seed"],
        iterations=1,
        reuse=cell["attackers"] > 20,
    )
    world = World(scenario, data)
    exchange = world.exchange
    assert exchange is not None
    key = json.dumps([cell[name] for name in ("peers", "samples", "seed")] + [cell["rule"].get("held_out", True)])
    if key not in _HONEST:
        _HONEST[key] = exchange.samples, exchange.statements, exchange.scene.ground
    vars(exchange)["samples"], vars(exchange)["statements"], ground = _HONEST[key]
    vars(exchange.scene)["ground"] = ground
    return world


def run_cell(data: FeatureData, cell: Row) -> Row:
    """Return a cell with the accuracy of every peer, over all classes and on its own; if benign, also alone."""
    world = made(data, cell)
    latest = world.advance()
    measured = measure(world, latest)
    exchange = world.exchange
    assert exchange is not None
    sizes = np.bincount(np.asarray(data.test_labels), minlength=len(data.classes))
    own, alone = [], []
    for peer, statement in enumerate(exchange.statements):
        held = np.asarray(statement.counts) > 0
        own.append(float((measured.class_accuracy[peer] * sizes)[held].sum() / sizes[held].sum()))
        if cell["attack"] == "none":
            answer = exchange.rule.weigh(statement, [], exchange.samples[peer]).answer
            guess = (np.asarray(data.test) @ answer.head.T + answer.bias).argmax(axis=1)
            alone.append(float((guess == np.asarray(data.test_labels)).mean()))
    found = {
        **cell,
        "accuracy": [round(float(value), 5) for value in measured.accuracy],
        "own": [round(v, 5) for v in own],
    }
    return {**found, "alone": [round(v, 5) for v in alone]} if alone else found


_DATA: FeatureData | None = None


def _work(cell: Row) -> Row:
    assert _DATA is not None
    try:
        return run_cell(_DATA, cell)
    except ValueError as error:
        return {**cell, "error": str(error)}


def run(chosen: argparse.Namespace) -> None:
    """Run what is missing."""
    global _DATA  # noqa: PLW0603 - forked processes share it
    _DATA = features(chosen.data)
    usual = [name for name in GRIDS if name not in ("none", "adaptive")]
    names = chosen.attacks.split(",") if chosen.attacks else usual
    todo = list(cells([int(seed) for seed in chosen.seeds.split(",")], names, len(_DATA.classes)))
    if chosen.attackers:
        wanted = {int(number) for number in chosen.attackers.split(",")}
        todo = [cell for cell in todo if cell["attackers"] in wanted | {0}]
    if chosen.samples:
        todo = [cell for cell in todo if cell["samples"] == chosen.samples]
    if chosen.no_cautious:
        todo = [cell for cell in todo if not cell["rule"].get("cautious")]
    if chosen.top:
        worst = top(chosen.out, chosen.like, chosen.top)
        todo = [cell for cell in todo if cell["attack"] == "none" or _setting(cell) in worst.get(cell["samples"], ())]
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if chosen.out.exists():
        done = {_key(json.loads(line)) for line in chosen.out.read_text().splitlines() if line.endswith("}")}
    todo = [cell for cell in todo if _key(cell) not in done]
    todo = list({_key(cell): cell for cell in todo}.values())
    print(f"{len(done)} cells are there, {len(todo)} to run", file=sys.stderr)
    began = time.monotonic()
    with chosen.out.open("a") as file, multiprocessing.get_context("fork").Pool(chosen.processes) as pool:
        for number, row in enumerate(pool.imap_unordered(_work, todo), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            if number % 50 == 0:
                print(f"{number} of {len(todo)} after {time.monotonic() - began:.0f} s", file=sys.stderr)
            if chosen.seconds and time.monotonic() - began > chosen.seconds:
                print("out of time: run it again to go on", file=sys.stderr)
                pool.terminate()
                break


def top(path: Path, attackers: int, most: int) -> dict[int, set[str]]:
    """Return for each number of samples the settings that cost most so far: by own classes, and by all."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row for row in rows if row["attackers"] == attackers and "accuracy" in row and not row["rule"]]
    found: dict[int, set[str]] = {}
    for samples in {row["samples"] for row in rows}:
        reached: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in rows:
            if row["samples"] == samples:
                reached[_setting(row)].append((float(np.mean(row["own"])), float(np.mean(row["accuracy"]))))
        means = {name: np.mean(values, axis=0) for name, values in reached.items()}
        found[samples] = {name for by in (0, 1) for name in sorted(means, key=lambda one: means[one][by])[:most]}
    return found


def _setting(cell: Row) -> str:
    return json.dumps([cell["attack"], cell["options"]], sort_keys=True)


def _key(cell: Row) -> str:
    names = ("peers", "samples", "seed", "attackers", "attack", "options", "rule")
    return json.dumps([cell[name] for name in names], sort_keys=True)


def table(chosen: argparse.Namespace) -> None:
    """Print what every attack costs."""
    for path in chosen.files:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        print(f"\n## {path.stem}\n")
        benign = {
            (row["samples"], row["seed"]): row
            for row in rows
            if row["attack"] == "none" and row["rule"].get("held_out", True) is not False and "accuracy" in row
        }
        for samples in sorted({key[0] for key in benign}):
            seeds = sorted(key[1] for key in benign if key[0] == samples)
            means = [np.mean(benign[samples, seed]["accuracy"]) for seed in seeds]
            least = min(min(benign[samples, seed]["accuracy"]) for seed in seeds)
            print(f"benign, {samples} + 10: {np.mean(means):.4f}, worst peer {least:.4f} (seeds {seeds})")
        costs: dict[tuple[Any, ...], list[tuple[float, ...]]] = defaultdict(list)
        for row in rows:
            if row["attack"] == "none" or "error" in row or (row["samples"], row["seed"]) not in benign:
                continue
            base = benign[row["samples"], row["seed"]]
            lost = np.array(base["accuracy"]) - np.array(row["accuracy"])
            own = np.array(base["own"]) - np.array(row["own"])
            below = np.array(base.get("alone", base["accuracy"])) - np.array(row["accuracy"])
            key = (
                row["samples"],
                bool(row["rule"].get("cautious")),
                row["attackers"],
                row["attack"],
                json.dumps(row["options"]),
            )
            costs[key].append((lost.mean(), lost.max(), own.mean(), own.max(), below.mean(), below.max()))
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for (samples, cautious, liars, attack, options), found in costs.items():
            mean, worst = np.mean(found, axis=0), np.max(found, axis=0)
            figures = [f"{100 * mean[place]:.1f} / {100 * worst[place + 1]:.1f}" for place in (0, 2, 4)]
            groups[samples, cautious, liars].append((attack, options, mean, figures))
        for (samples, cautious, liars), every in sorted(groups.items()):
            print(f"- {samples} + 10, L = {liars}{', cautious' if cautious else ''} ({len(every)} settings):")
            for place, name in enumerate(("below benign", "own classes", "below alone")):
                ordered = sorted(every, key=lambda one: -one[2][2 * place])[: chosen.most]
                print(f"  {name}: " + "; ".join(f"{one[3][place]} {one[0]} {one[1]}" for one in ordered))
            testable = [one for one in every if one[0] in TESTABLE]
            if testable:
                print("  testable: " + "; ".join(f"{one[3][0]} {one[0]} {one[1]}" for one in testable))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = words.add_subparsers(required=True)
    runs = parts.add_parser("run", help="run the cells that a file lacks")
    runs.add_argument("--data", default="mnist", help="mnist, a file or folder of data, or ready features (.npz)")
    runs.add_argument("--seeds", default="100,101,102", help="comma-separated")
    runs.add_argument("--attacks", default="", help="comma-separated names; by default all")
    runs.add_argument("--attackers", default="", help="only so many, comma-separated; by default all of the tables")
    runs.add_argument("--samples", type=int, default=0, help="only so many training samples a class")
    runs.add_argument("--no-cautious", action="store_true", help="without the cells of cautious peers")
    runs.add_argument("--top", type=int, default=0, help="only so many settings that cost most so far")
    runs.add_argument("--like", type=int, default=3, help="cells with so many attackers say which (3)")
    runs.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    runs.add_argument("--seconds", type=float, default=0, help="stop after so many")
    runs.add_argument("--out", type=Path, required=True)
    runs.set_defaults(call=run)
    tables = parts.add_parser("table", help="print Markdown")
    tables.add_argument("files", type=Path, nargs="+")
    tables.add_argument("--most", type=int, default=3, help="how many settings a line names (3)")
    tables.set_defaults(call=table)
    chosen = words.parse_args()
    chosen.call(chosen)


if __name__ == "__main__":
    main()
