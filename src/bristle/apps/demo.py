"""The demo: peers with a few classes each learn digits together while attackers send them flipped heads."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, Queue
from typing import Any

import numpy as np

from bristle import attacks, rules
from bristle.arrays import to_numpy
from bristle.data import Dataset, mnist
from bristle.learning.backbone import bundled
from bristle.learning.metrics import accuracy
from bristle.learning.oracle import train_oracle
from bristle.rules import Decision
from bristle.simulation import FeatureData, Scenario, World, prepare

# Enough images for a hundred peers, and features in a few seconds.
TRAINING_IMAGES = 12_000
EVALUATE_EVERY = 5

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What the demo shows: the rules that are compared, and the world they are compared in."""

    rules: tuple[str, ...] = ("bristle", "fedavg", "median", "krum", "local")
    peers: int = 10
    attackers: int = 5
    attack: str = "label-flip"
    classes_per_peer: int = 4
    iterations: int = 100
    seed: int = 0

    def scenario(self, rule: str) -> Scenario:
        """Return the world in which peers use `rule`."""
        return Scenario(
            peers=self.peers,
            attackers=self.attackers,
            rule=rules.create(rule),
            attack=attacks.create(self.attack),
            classes_per_peer=self.classes_per_peer,
            iterations=self.iterations,
            seed=self.seed,
        )

    def check(self) -> None:
        """Find mistakes before anything takes time."""
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, not {self.iterations}")
        for rule in self.rules:
            if rule not in rules.names():
                rules.create(rule)  # Says what is wrong with it.
                raise ValueError(f"{rule!r} is a step, not a rule; choose from {', '.join(rules.names())}")
            World(self.scenario(rule), _digits_without_features())


@lru_cache(maxsize=1)
def digits(progress: Callable[[int, int], None] | None = None) -> FeatureData:
    """Return the features of MNIST, from the cache after the first time."""
    return prepare(_few(mnist()), bundled(), progress=progress)


def run(demo: Demo) -> Iterator[Row]:
    """Run the demo, a process for each rule, and yield rows as they come; the last of a rule holds its reasons."""
    # Heads are small: with one thread each, worlds run side by side instead of waiting for each other.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(os.cpu_count(), mp_context=context) as workers:
        queue: Queue[Row] = manager.Queue()
        futures = [workers.submit(_run_world, demo, rule, queue) for rule in demo.rules]
        try:
            while not all(future.done() for future in futures) or not queue.empty():
                try:
                    yield queue.get(timeout=0.1)
                except Empty:
                    continue
        except (KeyboardInterrupt, GeneratorExit):
            workers.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        for future in futures:
            future.result()


def oracle_accuracy(demo: Demo) -> float:
    """Accuracy of one head that is trained on the benign peers' samples together: as good as it can get."""
    data = digits()
    held = World(demo.scenario("local"), data).held
    assert held.index is not None
    index = held.index[held.index >= 0]
    head = train_oracle(data.train[index], data.train_labels[index], len(data.classes))
    return float(accuracy(data.test @ to_numpy(head).T, data.test_labels))


def _run_world(demo: Demo, rule: str, queue: Queue[Row]) -> None:
    world = World(demo.scenario(rule), digits())
    for iteration in range(1, demo.iterations + 1):
        decision = world.advance().decision
        if iteration % EVALUATE_EVERY == 0 or iteration == demo.iterations:
            queue.put(_row(demo, rule, world, decision))


def _row(demo: Demo, rule: str, world: World, decision: Decision) -> Row:
    scores, weights = to_numpy(world.accuracy()), to_numpy(decision.weights)
    received, benign = float(weights.sum()), demo.peers - 1
    row: Row = {
        "figure": "demo",
        "engine": "simulation",
        "rule": rule,
        "attack": demo.attack if demo.attackers else "none",
        "peers": demo.peers,
        "attackers": demo.attackers,
        "classes_per_peer": demo.classes_per_peer,
        "samples_per_class": world.scenario.samples_per_class,
        "seed": demo.seed,
        "iteration": world.iteration,
        "accuracy_mean": float(scores.mean()),
        "accuracy_min": float(scores.min()),
        "attacker_weight": float(weights[:, benign:].sum()) / received if received else 0.0,
    }
    if world.iteration == demo.iterations:
        row["reasons"] = [decision.explain((0, model)) for model in range(weights.shape[1])]
    return row


def _few(dataset: Dataset) -> Dataset:
    return Dataset(
        dataset.x_train[:TRAINING_IMAGES],
        dataset.y_train[:TRAINING_IMAGES],
        dataset.x_test,
        dataset.y_test,
        classes=dataset.classes,
        name=dataset.name,
    )


@lru_cache(maxsize=1)
def _digits_without_features() -> FeatureData:
    """The same samples with empty features: enough to see whether a world can be made of them."""
    few = _few(mnist())
    labels = np.asarray(few.y_train, dtype=np.int64)
    nothing = np.zeros((len(labels), 1), dtype=np.float32)
    return FeatureData(nothing, labels, nothing[:1], labels[:1], few.classes)


def said_of(rows: Mapping[str, Row], demo: Demo) -> list[tuple[str, str]]:
    """Return who sent a model to the first peer, and what became of it, in words."""
    others = [f"peer {peer}" for peer in range(1, demo.peers)]
    names = others + [f"attacker {number}" for number in range(1, demo.attackers + 1)]
    return list(zip(names, rows["bristle"]["reasons"], strict=True)) if "bristle" in rows else []
