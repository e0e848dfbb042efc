"""Attacks on live peers beside the same attacks in simulation: ten peers, three attackers, evidence, real sockets.

    python benchmarks/live_attacks.py [--data mnist] [--samples 2] [--seeds 300,301]

Every peer and attacker has an identity and a UDP socket of its own. Attackers state the same to everybody, in both:
whoever does not is found out on a network. Those that know everything are handed it. Prints a Markdown table of
accuracies, mean of all peers (worst peer of any seed).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bristle import Pace, Peer, attacks, rules
from bristle.backbones import NoBackbone
from bristle.commands.demo.attackers import StatementAttackers
from bristle.p2p import Limits
from bristle.peer.record import Turn
from bristle.simulation import FeatureData, Scenario, World
from bristle.simulation.exchange import Exchange
from bristle.simulation.population import populate
from bristle.wire import Group
from evidence import features

ATTACKS: dict[str, dict[str, Any]] = {
    "none": {},
    "label-flip": {},
    "additive-noise": {},
    "statement-edge": {"size": 3.0, "everybody": 3},
    "partisans": {"noise": 1.0, "everybody": 3},
    "poisoned-scatter": {"times": 100.0, "everybody": 3},
}
APPLICATION = "live attacks"
PATIENCE = 120.0
"""Seconds in which all statements arrive, or something is wrong."""


def simulated(scenario: Scenario, data: FeatureData) -> list[float]:
    """Return the accuracies of a simulated world."""
    world = World(scenario, data)
    world.advance()
    return [float(value) for value in np.asarray(world.accuracy())]


async def live(scenario: Scenario, data: FeatureData, folder: Path) -> list[float]:
    """Return the accuracies of live peers once each has decided about all others."""
    backbone, everybody = NoBackbone(data.train.shape[1]), scenario.peers + scenario.attackers
    exchange = Exchange(scenario, populate(scenario, data), len(data.classes))
    group = Group(application=APPLICATION, backbone=backbone.digest, classes=data.classes, features=backbone.features)
    limits, latest = Limits(neighbours=everybody), dict[int, float]()
    decided = asyncio.Event()

    def watch(number: int, turn: Turn) -> None:
        if len(turn.record.heard) == everybody - 1 and turn.record.accuracy is not None:
            latest[number] = turn.record.accuracy
            if len(latest) == scenario.peers:
                decided.set()

    async with AsyncExitStack() as exits:
        peers: list[Peer] = []
        for number, held in enumerate(exchange.samples):
            peer = Peer(
                application=APPLICATION,
                classes=data.classes,
                folder=folder / str(number),
                backbone=backbone,
                known=[one.address for one in peers[:1]],
                rule=scenario.rule,
                pace=Pace(interval=0.1),
                limits=limits,
                test=(data.test, data.test_labels),
                on_iteration=partial(watch, number),
            )
            peers.append(await exits.enter_async_context(peer))
            peer.add(held.features, held.labels, features=True)
        running = [asyncio.create_task(peer.run()) for peer in peers]
        if scenario.attackers:
            numbers = range(scenario.peers, everybody)
            liars = StatementAttackers(numbers, group=group, limits=limits, exchange=exchange, honest=scenario.peers)
            exits.push_async_callback(liars.stop)
            await liars.start([[peers[0].address]] * scenario.attackers)
            attacking = asyncio.create_task(liars.run())
            exits.callback(attacking.cancel)
        async with asyncio.timeout(PATIENCE):
            await decided.wait()
        for peer in peers:
            peer.stop()
        await asyncio.gather(*running)
    return [latest[number] for number in range(scenario.peers)]


def main() -> None:
    """Print the table."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", default="mnist", help="mnist, or a file or folder")
    words.add_argument("--samples", type=int, default=2, help="training samples of a class and peer, beside 10 (2)")
    words.add_argument("--attackers", type=int, default=3)
    words.add_argument("--seeds", default="300,301", help="comma-separated")
    chosen = words.parse_args()
    data = features(chosen.data)
    print(f"| {chosen.data}, {chosen.samples} + 10 | simulated | live | points apart |\n|---|---|---|---|")
    for name, options in ATTACKS.items():
        both: dict[str, list[float]] = {"simulated": [], "live": []}
        for seed in map(int, chosen.seeds.split(",")):
            scenario = Scenario(
                peers=10,
                attackers=chosen.attackers,
                attack=attacks.create(name, **options),
                rule=rules.create("evidence"),
                samples_per_class=chosen.samples,
                iterations=1,
                seed=seed,
            )
            if name == "none":
                scenario = replace(scenario, attackers=0)
            both["simulated"] += simulated(scenario, data)
            with tempfile.TemporaryDirectory() as folder:
                both["live"] += asyncio.run(live(scenario, data, Path(folder)))
        cells = [f"{np.mean(values):.4f} ({min(values):.4f})" for values in both.values()]
        apart = 100 * abs(np.mean(both["simulated"]) - np.mean(both["live"]))
        print(f"| `{name}` | {' | '.join(cells)} | {apart:.2f} |", flush=True)


if __name__ == "__main__":
    main()
