"""How large a world can be, and how fast: on one CUDA device, or on the processor.

    python benchmarks/scale.py million  --out docs/scale/rows.jsonl     # a million peers on a CUDA device
    python benchmarks/scale.py precision --out docs/scale/rows.jsonl    # does accuracy suffer from 16 bits?
    python benchmarks/scale.py curves   --out docs/scale/rows.jsonl     # time against peers, neighbours, classes, ...
    python benchmarks/scale.py cpu      --out docs/scale/rows.jsonl     # 1,000 and 10,000 peers, NumPy, 2 threads

Rows are JSON Lines, added to the file; `benchmarks/scale_report.py` draws them and fits the model of docs/scale.md.
Worlds are of MNIST features by the bundled backbone, or, where classes or features vary, of features that are made up.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bristle import attacks, rules
from bristle.backbones.backbone import bundled
from bristle.data import load
from bristle.simulation import FeatureData, Precision, RandomNeighbours, Scenario, World, prepare
from bristle.simulation.large.device import on_device
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.measurement import evaluated_peers, measure, measure_large
from bristle.simulation.population import Population, populate

Row = dict[str, Any]
NARROW = Precision(moments="bfloat16", shared="bfloat16")
FLIPPERS = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("million", "precision", "curves", "cpu"))
    parser.add_argument("--out", type=Path, help="add rows to this file")
    parser.add_argument("--device", default="cuda", help="for all but cpu (default: cuda)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="make all worlds smaller by this factor, to try it out"
    )
    options = parser.parse_args()
    parts = {"million": million, "precision": precision, "curves": curves, "cpu": processor}
    for row in parts[options.what](options.device, options.scale):
        where = machine(None if options.what == "cpu" else options.device)
        add_row({"what": options.what, **row, **where}, options.out)


def add_row(row: Row, out: Path | None) -> None:
    """Print a row, and add it to a file."""
    print(json.dumps(row), flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def machine(device: str | None) -> Row:
    found = {"python": platform.python_version(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    if device is None:
        return found
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "processor"
    return {**found, "torch": torch.__version__, "device": name}


def mnist() -> FeatureData:
    return prepare(load("mnist"), bundled())


def made_up(classes: int, features: int) -> FeatureData:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((classes, features), dtype=np.float32)
    labels = np.repeat(np.arange(classes), 20_000 // classes)
    x = truth[labels] + rng.standard_normal((len(labels), features), dtype=np.float32)
    return FeatureData(x, labels, x[:1000], labels[:1000], tuple(map(str, range(classes))))


def world_of(nodes: int, *, k: int = 10, classes: int = 10, **options: Any) -> Scenario:
    """Return a world of so many nodes, 30 % of them label flippers, each hearing k random others."""
    nodes = max(nodes, 30)  # Fewer, where all is made smaller, would be too few for ten neighbours.
    attackers = round(FLIPPERS * nodes)
    settings = {
        "peers": nodes - attackers,
        "attackers": attackers,
        "attack": attacks.create("label-flip", classes=classes),
        "topology": RandomNeighbours(k=min(k, nodes - 1)),
        "attackers_in_graph": True,
        "reuse": True,
        "iterations": 100,
        "precision": NARROW,
    }
    return Scenario(**{**settings, **options})


def synchronised(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def copy_ceiling(device: str) -> float:
    """Return the bytes a second that a large copy on the device moves, read and written; the median of ten."""
    source = torch.randn(1 << 30 if device.startswith("cuda") else 1 << 26, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(11):
        begin = synchronised(device)
        target.copy_(source)
        times.append(synchronised(device) - begin)
    return 2 * source.nbytes / float(np.median(times[1:]))


def peak_bytes(device: str) -> int:
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_reserved())
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def fresh(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def least_bytes(scenario: Scenario, shape: tuple[int, int], models: int) -> float:
    """Return what an iteration of Bristle must move through memory at the very least.

    Every head that is heard is read once to be tested, with the samples; own heads, moments of trained rows and what is
    shared are read and written once. Reading rows again to mix them is not counted, nor anything in between.
    """
    size, narrow = shape[0] * shape[1], scenario.precision == NARROW
    shared, moment = (2, 2) if narrow else (4, 4)
    tests = scenario.held_out * scenario.classes_per_peer
    trained = scenario.classes_per_peer * shape[1]
    benign = (models + 1) * size * shared + tests * shape[1] * shared + 8 * size + size * shared + 4 * trained * moment
    attacker = 8 * size + size * shared + 4 * size * moment
    return scenario.peers * benign + scenario.attackers * attacker


def million(device: str, scale: float) -> Iterator[Row]:
    ceiling = copy_ceiling(device)
    fresh(device)
    data = on_device(mnist(), device)
    total = round(1_000_000 * scale)
    worlds = [(world_of(total), (rules.Bristle(), rules.FedAvg())), (world_of(round(total / 0.7)), (rules.Bristle(),))]
    for scenario, contenders in worlds:
        begin = time.perf_counter()
        population = populate(scenario, data)
        populated = time.perf_counter() - begin
        for rule in contenders:
            fresh(device)
            row = one_run(replace(scenario, rule=rule), data, population, device)
            yield {**row, "copy_bytes_a_second": ceiling, "seconds_to_populate": populated}


def one_run(scenario: Scenario, data: FeatureData, population: Population, device: str) -> Row:
    begin = synchronised(device)
    world = LargeWorld(scenario, data, population=population)
    built = synchronised(device) - begin
    chosen = evaluated_peers(scenario, None)
    curve, spent, evaluating = [], [], 0.0
    begin = synchronised(device)
    while world.iteration < scenario.iterations:
        evaluates = (world.iteration + 1) % 10 == 0
        started = synchronised(device)
        given = world.advance(weigh=evaluates)
        spent.append(synchronised(device) - started)
        if given is not None:
            started = time.perf_counter()
            found = measure_large(world, given, peers=chosen)
            evaluating += time.perf_counter() - started
            accuracy = [float(found.accuracy.mean()), float(found.accuracy.min())]
            curve.append([world.iteration, *accuracy, found.weight_benign, found.weight_malicious])
    whole = synchronised(device) - begin
    models = int(world.territory.index.shape[1])
    floor = least_bytes(scenario, world.head_shape, models)
    return {
        "rule": type(scenario.rule).__name__.lower(),
        "peers": scenario.peers,
        "attackers": scenario.attackers,
        "neighbours": models,
        "iterations": scenario.iterations,
        "seconds": whole,
        "seconds_evaluating": evaluating,
        "seconds_to_build": built,
        "seconds_an_iteration": float(np.median(spent)),
        "seconds_first_iteration": spent[0],
        "least_bytes_an_iteration": floor,
        "planned_bytes": world.plan.total,
        "peak_bytes": peak_bytes(device),
        "captured": world.captured,
        "evaluated_peers": len(chosen),
        "evaluated_images": len(data.test_labels),
        "bytes_sent_a_peer": float(world.bytes_sent.mean()),
        "curve": curve,
    }


def precision(device: str, scale: float) -> Iterator[Row]:
    data = on_device(mnist(), device)
    kinds = (Precision(), Precision(moments="bfloat16"), Precision(shared="bfloat16"), NARROW)
    for seed in range(3):
        for rule in (rules.Bristle(), rules.FedAvg()):
            for kind in kinds:
                scenario = world_of(round(20_000 * scale), rule=rule, seed=seed, precision=kind)
                population = populate(scenario, data)
                row = one_run(scenario, data, population, device)
                yield {**row, "seed": seed, "moments": kind.moments, "shared": kind.shared}


def curves(device: str, scale: float) -> Iterator[Row]:
    """One thing varies at a time, about 100,000 nodes that hear 10 others, 10 classes of 800 features."""
    nodes, data = round(100_000 * scale), on_device(mnist(), device)
    for size in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
        yield timed("nodes", size, world_of(round(size * scale)), data, device)
    for k in (1, 2, 5, 10, 20, 30):
        yield timed("neighbours", k, world_of(nodes, k=k), data, device)
    few = round(nodes / 10)
    for k in (20, 40, 60):
        for beta in (5, 10, 30):
            rule = rules.Bristle(beta=beta)
            yield timed("beta", beta, world_of(few, k=k, rule=rule), data, device)
    for classes in (5, 10, 20, 40):
        some = on_device(made_up(classes, 800), device)
        yield timed("classes", classes, world_of(nodes, classes=classes), some, device)
    for features in (100, 200, 400, 800, 1600):
        some = on_device(made_up(10, features), device)
        yield timed("features", features, world_of(nodes), some, device)
    for size in (1_000, 10_000, 100_000):
        yield timed("fedavg nodes", size, world_of(round(size * scale), rule=rules.FedAvg()), data, device)


def timed(varied: str, value: int, scenario: Scenario, data: FeatureData, device: str) -> Row:
    fresh(device)
    world = LargeWorld(scenario, data)
    for _ in range(3):
        world.advance()
    least, most = 5, 50
    times: list[float] = []
    begin = synchronised(device)
    while len(times) < least or (len(times) < most and time.perf_counter() - begin < 1.5):
        started = synchronised(device)
        world.advance()
        times.append(synchronised(device) - started)
    return {
        "varied": varied,
        "value": value,
        "peers": scenario.peers,
        "attackers": scenario.attackers,
        "neighbours": int(world.territory.index.shape[1]),
        "classes": world.head_shape[0],
        "features": world.head_shape[1],
        "beta": scenario.rule.beta if isinstance(scenario.rule, rules.Bristle) else None,
        "rule": type(scenario.rule).__name__.lower(),
        "seconds_an_iteration": float(np.median(times)),
        "planned_bytes": world.plan.total,
        "peak_bytes": peak_bytes(device),
        "captured": world.captured,
    }


def processor(_: str, scale: float) -> Iterator[Row]:
    """NumPy, each size in a process of its own (memory is that of the process)."""
    for nodes in (300, 1_000, 3_000, 10_000):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield pool.apply(numpy_run, (round(nodes * scale),))


def numpy_run(peers: int) -> Row:
    data = mnist()
    scenario = world_of(10, rule=rules.Bristle(), precision=Precision())
    scenario = replace(scenario, peers=peers, attackers=round(FLIPPERS / (1 - FLIPPERS) * peers))
    world = World(scenario, data)
    world.advance(weigh=False)
    before = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 20 and len(times) < 30):
        begin = time.perf_counter()
        world.advance(weigh=False)
        times.append(time.perf_counter() - begin)
    return {
        "varied": "peers",
        "peers": peers,
        "attackers": scenario.attackers,
        "seconds_an_iteration": float(np.median(times)),
        "peak_bytes": max(before, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "accuracy": float(measure(world, world.advance()).accuracy.mean()),
        "iteration": world.iteration,
    }


if __name__ == "__main__":
    main()
