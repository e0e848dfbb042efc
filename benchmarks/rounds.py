"""Simulated rounds: our worlds against ByzFL's training loop and ByzPy's peers, with one head and with a whole CNN.

    python benchmarks/rounds.py [--quick] [--json rows.json]

10 honest peers with 4 of 10 digits each, 2 images a class, mini-batches of 5, and 5 attackers that send the honest
mean, turned and shortened (inner-product manipulation). The head is 10 x 800 on frozen features; the CNN has 20,750
parameters and is trained from the first layer on. No evaluation is timed. Contenders take turns, ten rounds at a time;
medians count. Times are processor time, which other work on the machine disturbs less than the clock; that of ByzPy's
runner, which sleeps, is by the clock as well.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import numpy as np
import torch

from bristle import attacks, rules
from bristle._core import Pool, to_numpy
from bristle._core.rng import Stream, draw
from bristle.commands.demo import digits
from bristle.data import mnist
from bristle.learning.baselines import accuracy_on
from bristle.learning.optimiser import HeadState
from bristle.paper.regular import ConvolutionalNetwork, regular_step
from bristle.rules import Rule
from bristle.simulation import FeatureData, Scenario, World
from bristle.simulation.population import populate
from peers import load
from rounds_peers import ByzFL, ByzPyNodes, ByzPyRunner, Samples

PEERS, ATTACKERS, ROUNDS, AT_ONCE = 10, 5, 100, 10
Row = dict[str, Any]


class Contender(Protocol):
    """Something that does rounds."""

    def advance(self, rounds: int) -> None:
        """Do so many rounds."""

    def accuracy(self, test: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the mean accuracy of the honest."""

    def close(self) -> None:
        """Let go of what runs."""


class OurWorld:
    """Heads: a world as `bristle simulate` has it."""

    def __init__(self, rule: Rule, data: FeatureData) -> None:
        self.world = World(scenario(rule), data)

    def advance(self, rounds: int) -> None:
        """Do so many rounds."""
        for _ in range(rounds):
            self.world.advance(weigh=False)

    def accuracy(self, test: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the mean accuracy of the honest."""
        return float(np.mean(to_numpy(accuracy_on(self.world.heads, test.numpy(), labels.numpy()))))

    def close(self) -> None:
        """Nothing is left running."""


class OurNetworks:
    """Whole CNNs: every peer trains one, and aggregates all that it hears, attackers included."""

    def __init__(self, rule: Rule, data: FeatureData, images: torch.Tensor) -> None:
        self.rule, self.images, self.network = rule, images, ConvolutionalNetwork()
        held = populate(scenario(rule), data).held
        self.index, self.labels = torch.tensor(to_numpy(held.index)), torch.tensor(to_numpy(held.labels))
        self.state = HeadState.start(self.network.initial([0] * PEERS))
        self.senders = np.array([[j for j in range(PEERS + ATTACKERS) if j != i] for i in range(PEERS)])
        self.iteration = 0

    def advance(self, rounds: int) -> None:
        """Do so many rounds."""
        for _ in range(rounds):
            self.iteration += 1
            heads = self.state.head
            bad = (-0.1 * heads.mean(dim=0, keepdim=True)).expand(ATTACKERS, *heads.shape[1:])
            heard = Pool(torch.cat([heads, bad]), torch.tensor(self.senders))
            mixed = HeadState(self.rule(heads, heard).head, self.state.first, self.state.second, self.state.steps)
            draws = draw(0, Stream.BATCHES, np.arange(PEERS), self.iteration, self.labels.shape[1]).astype(np.float32)
            self.state = regular_step(self.network, mixed, self.images, self.labels, draws, index=self.index)

    def accuracy(self, test: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the mean accuracy of the honest."""
        return float(self.network.accuracy_on(self.state.head, test, labels).mean())

    def close(self) -> None:
        """Nothing is left running."""


class TorchCNN(torch.nn.Module):
    """The same network as ours, as torch users write it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 10, 5, bias=False), torch.nn.LeakyReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(10, 50, 5, bias=False), torch.nn.LeakyReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(800, 10, bias=False),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return outputs [n, 10] for images [n, 28, 28] with values from 0 to 1."""
        seen: torch.Tensor = self.layers(((images - 0.1307) / 0.3081)[:, None])
        return seen


def torch_head() -> torch.nn.Module:
    """Return an untrained head as torch users write it."""
    head = torch.nn.Linear(800, 10, bias=False)
    torch.nn.init.zeros_(head.weight)
    return head


def scenario(rule: Rule) -> Scenario:
    attack = attacks.create("inner-product")
    return Scenario(peers=PEERS, attackers=ATTACKERS, rule=rule, attack=attack, iterations=1_000_000)


def contests(quick: bool) -> list[tuple[str, str, dict[str, Callable[[], Contender]]]]:
    """Return for every network and rule who competes: how each is made."""
    data, f = digits(), ATTACKERS
    pictures = mnist()
    images = torch.tensor(pictures.x_train[: len(data.train)]).float() / 255
    held = populate(scenario(rules.create("fedavg")), data).held
    index, labels = torch.tensor(to_numpy(held.index)), torch.tensor(to_numpy(held.labels))
    features = torch.tensor(data.train)
    of_heads: Samples = [(features[rows], classes) for rows, classes in zip(index, labels, strict=True)]
    of_images: Samples = [(images[rows], classes) for rows, classes in zip(index, labels, strict=True)]
    byzpy = load()[1]
    median_of, trimmed = (
        byzpy.median.CoordinateWiseMedian(),
        byzpy.trimmed_mean.CoordinateWiseTrimmedMean(f=f),
    )
    chained = rules.chain(rules.NearestNeighbourMixing(f=f), rules.TrimmedMean(f=f))
    lineup: dict[str, tuple[Rule, dict[str, Any] | None, Any]] = {
        "fedavg": (rules.FedAvg(), {"rule": "Average"}, None),
        "median": (rules.Median(), {"rule": "Median"}, median_of),
        "trimmed mean": (rules.TrimmedMean(f=f), {"rule": "TrMean"}, trimmed),
        "mixing, then trimmed mean": (chained, {"rule": "TrMean", "mixing": True}, None),
        "bristle": (rules.Bristle(), None, None),
    }
    if quick:
        lineup = {name: lineup[name] for name in ("median", "bristle")}
    found = []
    for name, (rule, byzfl, aggregator) in lineup.items():
        contenders: dict[str, Callable[[], Contender]] = {"Bristle": partial(OurWorld, rule, data)}
        if byzfl is not None:
            contenders["ByzFL"] = partial(ByzFL, torch_head, of_heads, f, **byzfl)
        if aggregator is not None:
            contenders["ByzPy nodes"] = partial(ByzPyNodes, torch_head, of_heads, f, aggregator)
        if name == "median":
            contenders["ByzPy runner"] = partial(ByzPyRunner, torch_head, of_heads, f)
        found.append(("head", name, contenders))
    for name in ("median",) if quick else ("fedavg", "trimmed mean", "mixing, then trimmed mean"):
        rule, byzfl, aggregator = lineup[name]
        contenders = {"Bristle": partial(OurNetworks, rule, data, images)}
        contenders["ByzFL"] = partial(ByzFL, TorchCNN, of_images, f, **(byzfl or {}))
        if aggregator is not None:
            contenders["ByzPy nodes"] = partial(ByzPyNodes, TorchCNN, of_images, f, aggregator)
        found.append(("CNN", name, contenders))
    return found


def compete(contenders: dict[str, Callable[[], Contender]], tests: Any, *, rounds: int) -> dict[str, dict[str, float]]:
    """Let all do equally many rounds, taking turns; return milliseconds a round and the accuracy in the end."""
    made = {name: make() for name, make in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in made}
    clocks: dict[str, list[float]] = {name: [] for name in made}
    for contender in made.values():
        contender.advance(1)
    for turn in range(max(1, rounds // AT_ONCE)):
        for name, contender in made.items():
            # Its sleeps take most of a minute otherwise.
            if name == "ByzPy runner" and turn >= 2:
                continue
            begin, at, some = time.process_time(), time.perf_counter(), min(rounds, AT_ONCE)
            contender.advance(some)
            times[name].append(1e3 * (time.process_time() - begin) / some)
            clocks[name].append(1e3 * (time.perf_counter() - at) / some)
    found = {
        name: {
            "milliseconds": median(times[name]),
            "by_the_clock": median(clocks[name]),
            "accuracy": contender.accuracy(*tests),
        }
        for name, contender in made.items()
    }
    for contender in made.values():
        contender.close()
    return found


def measure(quick: bool = False) -> list[Row]:
    """Return a row for every network and rule."""
    torch.set_num_threads(1)
    data, pictures, some = digits(), mnist(), 2000
    test_labels = torch.tensor(data.test_labels[:some])
    tests = {
        "head": (torch.tensor(data.test[:some]), test_labels),
        "CNN": (torch.tensor(pictures.x_test[:some]).float() / 255, test_labels),
    }
    rows = []
    for network, rule, contenders in contests(quick):
        found = compete(contenders, tests[network], rounds=2 if quick else ROUNDS)
        rows.append({"network": network, "rule": rule, "found": found, "load": os.getloadavg()[0]})
    return rows


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table: milliseconds a round, and accuracy."""
    names = ("Bristle", "ByzFL", "ByzPy nodes", "ByzPy runner")
    lines = [
        "| network | rule | " + " | ".join(f"{name}, ms" for name in names) + " | the same by the clock "
        "| quickest other / Bristle | accuracy |",
        "|---|---|" + "---|" * (len(names) + 3),
    ]
    for row in rows:
        found = row["found"]
        cells = [f"{found[name]['milliseconds']:.3g}" if name in found else "-" for name in names]
        clock = f"{found['ByzPy runner']['by_the_clock']:.3g}" if "ByzPy runner" in found else "-"
        others = [found[name]["milliseconds"] for name in names[1:] if name in found]
        ratio = f"{min(others) / found['Bristle']['milliseconds']:.1f}" if others else "-"
        accuracy = ", ".join(f"{name} {found[name]['accuracy']:.3f}" for name in names if name in found)
        lines.append(f"| {row['network']} | {row['rule']} | {' | '.join(cells)} | {clock} | {ratio} | {accuracy} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds of few, to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    rows = measure(options.quick)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
