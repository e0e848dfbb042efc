"""Run one task of a reproduction, in any process: text in, rows out as text."""

from __future__ import annotations

import json
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from bristle._core import Array, Pool, to_numpy
from bristle.learning import Evaluation
from bristle.paper.declaration import RunTask
from bristle.paper.plan import CONNECTED
from bristle.peer.step import step
from bristle.rules import Context, Decision, Local
from bristle.simulation import FeatureData, Scenario, Watch, World, run
from bristle.simulation.build import scenario_of
from bristle.simulation.config import read
from bristle.simulation.indexing import arrays_of, state_of
from bristle.simulation.population import oracle_accuracy
from bristle.simulation.results import attack_name

Row = dict[str, Any]
Tick = Callable[[int], None]
REPEATS = 15
LEAST_REPEATS = 5
LONG_SECONDS = 0.2
"""Work that takes longer than this for LEAST_REPEATS runs is not repeated further: other cores are idle meanwhile."""


def work(text: str, data: FeatureData, tick: Tick) -> str:
    """Run a task and return its rows as JSON."""
    task = RunTask.read(text)
    config = read(task.config)
    scenario = scenario_of(config, classes=len(data.classes))
    if task.kind == "regular":
        from bristle.paper.regular import regular  # noqa: PLC0415 - it needs torch

        rows = regular(scenario, every=config.world.evaluate_every, test_samples=config.data.test_samples, tick=tick)
    else:
        rows = _WORK[task.kind](scenario, data, config.world.evaluate_every, tick)
    return json.dumps(rows, allow_nan=False)


def _world(scenario: Scenario, data: FeatureData, every: int, tick: Tick) -> list[Row]:
    return run(scenario, data, every=every, watch=Watch(row=lambda row: tick(row["iteration"]))).rows


def _oracle(scenario: Scenario, data: FeatureData, every: int, tick: Tick) -> list[Row]:
    """Train one head on the samples of all benign peers, in as many steps as iterations."""
    accuracy = oracle_accuracy(World(scenario, data).held, data, steps=scenario.iterations)
    return [{"rule": "oracle", **benign_row(scenario, scenario.iterations, accuracy, accuracy, sent=0)}]


def benign_row(scenario: Scenario, iteration: int, mean: float, worst: float, *, sent: int) -> Row:
    """Return a row of a world without attackers."""
    return {
        "attack": "none",
        "peers": scenario.peers,
        "attackers": 0,
        "classes_per_peer": scenario.classes_per_peer,
        "samples_per_class": scenario.samples_per_class,
        "seed": scenario.seed,
        "iteration": iteration,
        "accuracy_mean": mean,
        "accuracy_min": worst,
        "bytes_sent": sent,
    }


@dataclass(frozen=True, kw_only=True)
class _Listening(Local):
    """Never integrates, but records the distances of received heads from the own ones in the last iteration."""

    heard: list[np.ndarray[Any, Any]] = field(default_factory=list, compare=False)

    def __call__(
        self,
        own: Array,
        received: Array | Pool,
        *,
        context: Context | None = None,
        **given: Any,
    ) -> Decision:
        """Record the distances in the last iteration, then decide."""
        if context is not None and context.iteration == context.total:
            heads = received.gather() if isinstance(received, Pool) else received
            gaps = to_numpy(heads).astype(np.float64) - to_numpy(own).astype(np.float64)[:, None]
            self.heard.append(np.sqrt((gaps**2).sum(axis=(-2, -1))))
        return super().__call__(own, received, context=context, **given)


def _distances(scenario: Scenario, data: FeatureData, every: int, tick: Tick) -> list[Row]:
    """Measure the mean distance from a peer's head to received ones, by how many classes both sides share.

    Peers learn alone, as in the paper's figure: heads that are integrated all the time end up close to each other.
    """
    rule = _Listening()
    world = World(replace(scenario, rule=rule), data)
    latest = world.advance()
    while world.iteration < scenario.iterations:
        latest = world.advance()
        if world.iteration % every == 0:
            tick(world.iteration)
    distances, senders = rule.heard[0], latest.senders
    classes = len(data.classes)
    apart = np.abs(senders - latest.receivers[:, None])
    apart = np.minimum(apart, classes - apart)  # Class sets are consecutive, modulo all.
    shared = np.maximum(scenario.classes_per_peer - apart, 0)
    malicious = senders >= scenario.peers
    groups = [(f"{count} classes shared", ~malicious & (shared == count)) for count in (3, 2, 1, 0)]
    name = attack_name(scenario.attack)
    return [
        {"attack": name, "seed": scenario.seed, "iteration": world.iteration, "model": model}
        | {"distance": float(found.mean()), "distance_min": float(found.min()), "distance_max": float(found.max())}
        for model, found in [(model, distances[which]) for model, which in [*groups, ("malicious", malicious)]]
    ]


def _speed(scenario: Scenario, data: FeatureData, every: int, tick: Tick) -> list[Row]:
    """Measure the time of one peer's iteration by how many heads it received; two of three are benign."""
    if scenario.rule.shares == "evidence":
        return _decisions(scenario, data, tick)
    # All rules are given the same heads, those of peers that learned alone.
    world = World(replace(scenario, rule=Local()), data)
    while world.iteration < scenario.iterations:
        world.advance(weigh=False)
    benign, flipped = iter(to_numpy(world.heads)[1:]), iter(to_numpy(world.adversary.trained.head))
    heads = np.stack([next(flipped if place % 3 == 2 else benign) for place in range(max(CONNECTED))])
    state = state_of({name: values[:1] for name, values in arrays_of(world.state).items()})
    tests, samples = world.evaluation, world.population.training(np.arange(1))
    draws = np.random.default_rng(0)
    rows: list[Row] = []
    for connected in CONNECTED:
        received = np.ascontiguousarray(heads[None, :connected])
        batch = draws.random((1, samples.labels.shape[1]), dtype=np.float32)
        chosen = draws.random((1, connected), dtype=np.float32)
        one_step = partial(
            step,
            state,
            received,
            rule=scenario.rule,
            samples=samples,
            evaluation=Evaluation(tests.features[:1], tests.labels[:1]),
            batch_draws=batch,
            model_draws=chosen if scenario.rule.stochastic else None,
            iteration=2,
            total=scenario.iterations,
            settings=scenario.training,
        )
        rows.append({"connected": connected, "milliseconds": _milliseconds(one_step)})
        tick(scenario.iterations)
    return rows


def _milliseconds(work: Callable[[], object]) -> float:
    """Return the shortest time of several runs."""
    found = timeit.repeat(work, number=1, repeat=LEAST_REPEATS)
    repeats = REPEATS - LEAST_REPEATS if sum(found) < LONG_SECONDS else 0
    return 1e3 * min([*found, *timeit.repeat(work, number=1, repeat=repeats)])


def _decisions(scenario: Scenario, data: FeatureData, tick: Tick) -> list[Row]:
    """Time of one peer's decision against how many statements it received; two of three are benign."""
    exchange = World(scenario, data).exchange
    assert exchange is not None
    benign, flipped = iter(exchange.statements[1:]), iter(exchange.attackers)
    statements = [next(flipped if place % 3 == 2 else benign) for place in range(max(CONNECTED))]
    rows: list[Row] = []
    for connected in CONNECTED:
        weigh = partial(exchange.rule.weigh, exchange.statements[0], statements[:connected], exchange.samples[0])
        rows.append({"connected": connected, "milliseconds": _milliseconds(weigh)})
        tick(scenario.iterations)
    return rows


_WORK = {"world": _world, "oracle": _oracle, "distances": _distances, "speed": _speed}
