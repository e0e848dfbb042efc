"""Two versions of the sources side by side: the processor time of rules, receivers, rounds and scale, as ratios.

    python benchmarks/versions.py OLD [NEW] [--turns 15] [--out docs/benchmarks-versions.md]

OLD and NEW are what `same_rows.py` takes: commits, or folders that contain `src/bristle`; NEW defaults to the working
tree. For every case each version has three processes with one thread, one after the other, since the same code takes
longer where memory lies badly. Versions take turns on the same numbers; the medians of their processor time are
compared, which other work on the machine disturbs less than the clock, and so are the shortest, which it disturbs
least. Above 1 the new version takes longer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from same_rows import Side, side_of

HERE = Path(__file__).resolve().parent
PROCESSES = 3
LEAST = 0.02
"""Seconds of a turn at least: shorter calls are repeated."""


def all_cases() -> Iterator[tuple[str, str, Callable[[], Callable[[], object]]]]:
    """Yield group, name and what returns the work of every case, by names that all versions have."""
    from bristle import Evaluation, Pool, attacks, rules  # noqa: PLC0415
    from bristle.simulation import FeatureData, RandomNeighbours, Scenario, World  # noqa: PLC0415

    rng = np.random.default_rng(0)

    def iteration(scenario: Any) -> Callable[[], object]:
        return partial(World(scenario, data).advance, weigh=False)

    def numbers(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    uniforms = rng.random(64, dtype=np.float32)
    compared = ("fedavg", "median", "trimmed-mean", "krum", "bulyan", "geometric-median", "mozi", "bristle")
    for rule in compared:
        made = rules.create(rule)
        for models, classes, features in ((10, 10, 800), (64, 16, 4096)):
            own, received = numbers(classes, features), numbers(models, classes, features)
            tests = Evaluation(numbers(40, features), np.arange(40) % 4)
            group = f"rules, {models} models of {classes * features:,} numbers"
            yield group, rule, partial(partial, made, own, received, evaluation=tests, rng=uniforms[:models])
        heads, tests = numbers(15, 10, 800), Evaluation(numbers(10, 40, 800), np.tile(np.arange(40) % 4, (10, 1)))
        pool = Pool(heads, np.stack([np.delete(np.arange(15), peer) for peer in range(10)]))
        draws = np.tile(uniforms[:14], (10, 1))
        work = partial(partial, made, heads[:10], pool, evaluation=tests, rng=draws)
        yield "10 receivers of a pool of 15", rule, work
    labels = np.arange(20_000) % 10
    data = FeatureData(numbers(20_000, 800), labels, numbers(100, 800), labels[:100], tuple("0123456789"))
    for rule in ("fedavg", "krum", "bristle"):
        scenario = Scenario(rule=rules.create(rule), attack=attacks.create("label-flip"), attackers=5)
        large = replace(scenario, peers=1000, topology=RandomNeighbours(k=10), reuse=True)
        yield "an iteration of 10 peers and 5 attackers", rule, partial(iteration, scenario)
        yield "an iteration of 1,000 peers that hear 15", rule, partial(iteration, large)


def serve(group: str, name: str) -> None:
    """Measure a case whenever a line comes on stdin, and print the seconds."""
    work = next(make for where, rule, make in all_cases() if (where, rule) == (group, name))()
    began = time.process_time()
    work()
    repeats = max(1, round(LEAST / max(time.process_time() - began, 1e-6)))
    for _ in sys.stdin:
        began = time.process_time()
        for _ in range(repeats):
            work()
        print((time.process_time() - began) / repeats, flush=True)


class Worker:
    """A process that measures a case in one version."""

    def __init__(self, side: Side, group: str, name: str) -> None:
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": f"{side.sources}{os.pathsep}{HERE}"}
        command = [sys.executable, "-P", str(HERE / "versions.py"), "--serve", group, name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env={**os.environ, **alone}, stdin=pipe, stdout=pipe, text=True)

    def seconds(self) -> float:
        """Measure once."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main() -> None:
    """Compare two versions and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="a commit, or a folder that contains src/bristle")
    parser.add_argument("new", metavar="NEW", nargs="?", default=str(HERE.parent), help="likewise (the working tree)")
    parser.add_argument("--only", default="", metavar="WORDS", help="only cases whose group has these words in it")
    parser.add_argument("--turns", type=int, default=15, help="turns of each version (default: 15)")
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="versions-") as folder:
        sides = [side_of(name, where, Path(folder)) for name, where in (("old", given.old), ("new", given.new))]
        lines = ["| | rule | before, ms | after, ms | after / before | at best |", "|---|---|---|---|---|---|"]
        for group, name in (case[:2] for case in all_cases() if given.only in case[0]):
            turns = []
            for _ in range(PROCESSES):
                old, new = (Worker(side, group, name) for side in sides)
                with old.process, new.process:
                    # The first turn warms up.
                    turns += [(old.seconds(), new.seconds()) for _ in range(given.turns // PROCESSES + 1)][1:]
            (before, best), (after, now) = (
                (1e3 * median(found), 1e3 * min(found)) for found in zip(*turns, strict=True)
            )
            ratios = f"{after / before:.2f} | {now / best:.2f}"
            lines.append(f"| {group} | {name} | {before:.3g} | {after:.3g} | {ratios} |")
            print(lines[-1], flush=True)
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1:2] == ["--serve"] else main()
