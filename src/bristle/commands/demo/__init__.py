"""Definition of the demo: peers with a few digits each on a real network, attackers among them, and baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from bristle import attacks, rules
from bristle.attacks import Knowledge
from bristle.backbones.backbone import bundled
from bristle.backbones.base import Backbone
from bristle.commands.demo.relay import Impairment
from bristle.data import Dataset, mnist
from bristle.peer.learner import live_rule
from bristle.simulation import FeatureData, Precision, Scenario, World, prepare
from bristle.simulation.population import oracle_accuracy
from bristle.simulation.run import Watch
from bristle.simulation.run import run as simulate

Row = dict[str, Any]

FIGURE = "demo"
APPLICATION = "bristle demo: digits"
# Enough images for a hundred peers, and features in a few seconds.
TRAINING_IMAGES = 12_000
EVALUATE_EVERY = 5
ROW_EVERY = 10
PROCESSES = 1
"""Default number of worker processes. On two busy cores a second one did not pay: see docs/network.md."""

COMPARED = 300
"""Largest number of iterations of the simulated baselines: the length of the paper's runs."""

SIMULATED = ("evidence", "bristle", "fedavg", "local")
"""The rules that the network is compared with."""

MOST_MEMBERS = 200
"""Largest full mesh: a larger one would only overload the machine."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Settings of the demo.

    Parameters
    ----------
    peers, attackers : int
        Number of benign peers, and of attackers in addition; each has its own socket and identity.
    attack : str
        Name of the attack.
    rule : str
        Name of the benign peers' rule.
    classes_per_peer : int
        Peer i holds the digits i, ..., i + k - 1, modulo 10.
    impairment : Impairment, optional
        What a relay between the peers does to datagrams; None for no relay.
    iterations : int
        Number of iterations of rules that exchange heads; with evidence peers stop when they know all statements.
    interval : float
        Minimum seconds between iterations of a peer.
    processes : int
        Number of processes for the peers.
    seed : int
        Seed of all random draws except the network's.
    """

    peers: int = 10
    attackers: int = 5
    attack: str = "label-flip"
    rule: str = "evidence"
    classes_per_peer: int = 4
    impairment: Impairment | None = None
    iterations: int = 100
    interval: float = 0.3
    processes: int = PROCESSES
    seed: int = 0

    @property
    def evidence(self) -> bool:
        """Whether peers exchange evidence, and not heads."""
        return rules.create(self.rule).shares == "evidence"

    @property
    def members(self) -> int:
        """Number of peers and attackers; benign peers are numbered first."""
        return self.peers + self.attackers

    def shortened(self) -> Demo:
        """Return a demo that takes seconds; fewer peers hold more digits each, so that all are covered."""
        return replace(
            self,
            peers=min(self.peers, 5),
            attackers=min(self.attackers, 2),
            classes_per_peer=max(self.classes_per_peer, 6),
            iterations=min(self.iterations, 20),
        )

    def scenario(self, rule: str) -> Scenario:
        """Return the same world for the simulator, with another rule."""
        found = rules.create(rule)
        return Scenario(
            peers=self.peers,
            attackers=self.attackers,
            rule=found,
            attack=attacks.create(self.attack),
            classes_per_peer=self.classes_per_peer,
            precision=Precision(shared="grid" if found.shares == "heads" else "same"),  # As peers on a network do.
            iterations=1 if found.shares == "evidence" else min(self.iterations, COMPARED),
            seed=self.seed,
        )

    def holds(self, peer: int) -> str:
        """Return the digits that a benign peer holds."""
        return " ".join(str((peer + step) % 10) for step in range(self.classes_per_peer))

    def check(self) -> None:
        """Raise ValueError for impossible settings, before anything takes time."""
        if self.iterations < 1:
            raise ValueError(f"iterations must be at least 1, not {self.iterations}")
        if not 0 <= self.interval <= 60:
            raise ValueError(f"interval must lie between 0 and 60 seconds, not {self.interval}")
        if self.members > MOST_MEMBERS:
            raise ValueError(
                f"{self.members} peers and attackers in one full mesh are more than {MOST_MEMBERS}; "
                "use `bristle simulate` for larger worlds"
            )
        if not 1 <= self.processes <= self.members:
            raise ValueError(f"processes must lie between 1 and {self.members}, not {self.processes}")
        live_rule(rules.create(self.rule))
        _check_attack(self.attack)
        few = _few(mnist())  # Without features: enough to see whether a world can be made of them.
        World(self.scenario(self.rule), FeatureData.labels_only(few.y_train, few.classes))


def _check_attack(name: str) -> None:
    why = _why_simulated(name)
    if why is not None:
        possible = ", ".join(each for each in attacks.names() if _why_simulated(each) is None)
        raise ValueError(
            f"the attack {name!r} {why}: it needs the simulator (`bristle simulate`). Over a network: {possible}"
        )


def _why_simulated(name: str) -> str | None:
    """Return why an attack cannot go over a network; None where it can."""
    attack = attacks.create(name)
    if attack.knows == Knowledge.EVERYTHING:
        return "knows what no peer sends, such as a victim's gradient, and sends each victim something else"
    if attack.equivocates:
        return "sends each victim something else"
    return None if attack.finite else "sends numbers that the wire format has no way to carry"


@lru_cache(maxsize=1)
def backbone() -> Backbone:
    """Return the bundled backbone, with one thread: other processes need the cores."""
    return bundled(threads=1)


@lru_cache(maxsize=1)
def digits(progress: Callable[[int, int], None] | None = None) -> FeatureData:
    """Return the features of MNIST, from the cache after the first time."""
    return prepare(_few(mnist()), backbone(), progress=progress)


def references(demo: Demo, *, row: Callable[[Row], None]) -> dict[str, float]:
    """Run the baselines in the simulator, on the same samples; return their accuracies at the end.

    All rules meet the same attackers: evidence, the paper's `bristle` and FedAvg. Local-only peers never integrate. The
    oracle is one head trained on the samples of all benign peers together.
    """
    data, ends = digits(), dict[str, float]()

    def simulated(found: Row) -> None:
        row({**found, "engine": "simulation"})

    for rule in SIMULATED:
        if rule != demo.rule or demo.evidence:
            results = simulate(demo.scenario(rule), data, figure=FIGURE, every=ROW_EVERY, watch=Watch(row=simulated))
            ends[rule] = results.last()["accuracy_mean"]
    ends["oracle"] = oracle_accuracy(World(demo.scenario("local"), data).held, data)
    return ends


def _few(dataset: Dataset) -> Dataset:
    return Dataset(
        dataset.x_train[:TRAINING_IMAGES],
        dataset.y_train[:TRAINING_IMAGES],
        dataset.x_test,
        dataset.y_test,
        classes=dataset.classes,
        name=dataset.name,
    )
