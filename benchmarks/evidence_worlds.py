"""Worlds of docs/evidence.md without attackers: beside an oracle, unequal amounts, people who differ, sparse graphs.

    python benchmarks/evidence_worlds.py accuracy --data mnist --seeds 200,201,202
    python benchmarks/evidence_worlds.py shapes --data mnist --seeds 200,201,202
    python benchmarks/evidence_worlds.py large --peers 10000

Each prints a line per world. The oracle is logistic regression on the samples of all peers, its l2 chosen by
cross-validation on them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import resource
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle import rules
from bristle.data.partitions import Partitioner
from bristle.data.partitions.allocation import Cells, Pools
from bristle.data.partitions.base import SampleSource
from bristle.simulation import FeatureData, RandomNeighbours, Scenario, World, measure
from evidence import features
from logistic import oracle

SIZES = (2, 15, 150)


@dataclass(frozen=True, kw_only=True)
class Unequal(Partitioner):
    """Peer i has four consecutive classes, and of each a number of samples drawn log-uniformly: some hold 4, some 160.

    Half of them are held out, ten at the most.
    """

    least: int = 4
    most: int = 160

    def demand(self, source: SampleSource, peers: int, rng: np.random.Generator) -> tuple[Pools, Cells]:
        """Return the number of samples that each peer gets from each pool."""
        drawn = np.exp(rng.uniform(np.log(self.least), np.log(self.most), size=peers))
        share = np.repeat(np.round(drawn).astype(np.int64), 4)
        classes = np.sort((np.arange(peers)[:, None] + np.arange(4)) % len(source.classes), axis=1)
        held = np.minimum(10, share // 2)
        return source.class_pools(), Cells(np.repeat(np.arange(peers), 4), classes.ravel(), share - held, held)


def told(values: Any) -> str:
    """Return mean and least of some peers' accuracies."""
    return f"{float(np.mean(values)):.4f} ({float(np.min(values)):.4f})"


def exchanged(data: FeatureData, *, rule: dict[str, Any] | None = None, **options: Any) -> tuple[World, Any]:
    """Return a world after one exchange of evidence, and the accuracies [peers]."""
    world = World(Scenario(rule=rules.create("evidence", **(rule or {})), iterations=1, **options), data)
    return world, measure(world, world.advance()).accuracy


def best(world: World, data: FeatureData) -> float:
    """Return the oracle of a world: logistic regression on all that its peers made statements of."""
    assert world.exchange is not None
    samples = world.exchange.samples
    x = np.concatenate([np.asarray(one.features) for one in samples])
    y = np.concatenate([np.asarray(one.labels) for one in samples])
    return oracle(x, y, len(data.classes), np.asarray(data.test), np.asarray(data.test_labels))


def trained(data: FeatureData, rule: str, **options: Any) -> Any:
    """Return the accuracies of peers that exchange heads for 300 iterations."""
    world = World(Scenario(rule=rules.create(rule), **options), data)
    for _ in range(300):
        latest = world.advance()
    return measure(world, latest).accuracy


def accuracy(data: FeatureData, seed: int, chosen: argparse.Namespace) -> None:
    """Print evidence beside the oracle and heads that were exchanged 300 times."""
    peers = 26 if len(data.classes) == 26 else 10
    for samples in SIZES if peers == 10 else (15,):
        options: dict[str, Any] = {"peers": peers, "samples_per_class": samples, "seed": seed}
        world, found = exchanged(data, **options)
        _, alone = exchanged(data, rule={"held_out": False}, **options)
        line = f"{samples} + 10, seed {seed}: evidence {told(found)}, training samples alone {told(alone)}"
        line += f", oracle {best(world, data):.4f}"
        for rule in () if chosen.quick else ("bristle", "fedavg"):
            line += f", {rule} {told(trained(data, rule, **options))}"
        print(line, flush=True)


def shapes(data: FeatureData, seed: int, chosen: argparse.Namespace) -> None:
    """Print unequal amounts, people who differ, and a hundred peers that hear few."""
    world, found = exchanged(data, peers=10, partition=Unequal(), seed=seed)
    print(f"unequal amounts, seed {seed}: {told(found)}, oracle {best(world, data):.4f}", flush=True)
    for shift in (0.3, 1.0):
        options: dict[str, Any] = {"peers": 10, "samples_per_class": 15, "user_shift": shift, "seed": seed}
        line = f"people who differ by {shift}, seed {seed}: {told(exchanged(data, **options)[1])}"
        line += "" if chosen.quick else f", fedavg {told(trained(data, 'fedavg', **options))}"
        print(line, flush=True)
    options = {"peers": 100, "samples_per_class": 2, "seed": seed, "reuse": True}
    print(f"100 peers that hear all, seed {seed}: {told(exchanged(data, **options)[1])}", flush=True)
    for heard in (2, 5):
        graph = RandomNeighbours(k=heard)
        scenario = Scenario(rule=rules.create("evidence"), topology=graph, iterations=20, **options)
        world = World(scenario, data)
        exchanges, known = 0, -1
        assert world.exchange is not None
        while int(world.exchange.known.sum()) > known:
            known = int(world.exchange.known.sum())
            latest = world.advance()
            exchanges += 1
        reached = told(measure(world, latest).accuracy)
        print(f"100 peers that hear {heard}, seed {seed}: {reached} after {exchanges - 1} exchanges", flush=True)


def large(data: FeatureData, chosen: argparse.Namespace) -> None:
    """Print how long one exchange of very many peers takes, and in how much memory."""
    world = World(
        Scenario(
            peers=chosen.peers,
            rule=rules.create("evidence"),
            topology=RandomNeighbours(k=10),
            iterations=1,
            reuse=True,
        ),
        data,
    )
    began = time.monotonic()
    latest = world.advance()
    spent = time.monotonic() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    reached = told(measure(world, latest).accuracy)
    print(f"{chosen.peers} peers that hear 10: {spent:.0f} s an exchange, {memory:.1f} GiB at most, {reached}")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=("accuracy", "shapes", "large"))
    words.add_argument("--data", default="mnist", help="mnist, or a file or folder that bristle.data.load reads")
    words.add_argument("--seeds", default="200,201,202", help="comma-separated")
    words.add_argument("--peers", type=int, default=10_000, help="of the large world (10000)")
    words.add_argument("--quick", action="store_true", help="without the heads that are exchanged 300 times")
    chosen = words.parse_args()
    data = features(chosen.data)
    if chosen.what == "large":
        large(data, chosen)
        return
    for seed in chosen.seeds.split(","):
        (accuracy if chosen.what == "accuracy" else shapes)(data, int(seed), chosen)


if __name__ == "__main__":
    main()
