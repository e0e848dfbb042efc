"""Eligibility of scenarios as large worlds, and their memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np

from bristle.attacks.data_free import LabelFlip, NoAttack
from bristle.rules import Bristle, FedAvg, Local, Rule
from bristle.simulation.large.device import free_bytes
from bristle.simulation.large.fused import MOST_CLASSES, MOST_MODELS
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.population import FeatureData
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Integers, Neighbourhood, RandomNeighbours, Ring

# Rules that never ask for copies of the models, as long as no prioritiser has to choose among them.
SPARING: tuple[type[Rule], ...] = (Bristle, FedAvg, Local)
# Rules that never ask for the own head before its latest training.
FORGETFUL: tuple[type[Rule], ...] = (Bristle, FedAvg, Local)
WORKING_BYTES = {"cuda": 6 << 30, "cpu": 256 << 20}


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Memory of a large world in bytes: `nodes` times the bytes per node, tables, and working memory.

    Parameters
    ----------
    nodes : int
        Benign peers and attackers.
    heads, shared, moments, previous, lists : int
        Kept of each node: its head, what it shares, Adam's moments, the head before training where the rule asks for
        it, and lists of neighbours and samples.
    tables : int
        Features of all samples.
    working : int
        Room for a chunk of receivers.
    chunk : int
        How many receivers that is.
    shared_width : int
        Bytes of a number that is shared.
    """

    nodes: int
    heads: int
    shared: int
    moments: int
    previous: int
    lists: int
    tables: int
    working: int
    chunk: int
    shared_width: int

    @property
    def per_node(self) -> int:
        """Bytes kept of each node."""
        return self.heads + self.shared + self.moments + self.previous + self.lists

    @property
    def total(self) -> int:
        """All bytes."""
        return self.nodes * self.per_node + self.tables + self.working

    def fits(self, free: int) -> int:
        """Return how many nodes such as these fit into `free` bytes."""
        return max(0, (free - self.tables - self.working) // self.per_node)

    def check(self, free: int, *, where: str) -> None:
        """Refuse a world that does not fit, with what would."""
        if self.total <= free:
            return
        parts = ", ".join(
            f"{name} {_gb(self.nodes * size)}"
            for name, size in (
                ("heads", self.heads),
                ("what is shared", self.shared),
                ("moments", self.moments),
                ("heads before training", self.previous),
                ("lists", self.lists),
            )
            if size
        )
        advice = [f"make it {self.fits(free):,} nodes"] if self.fits(free) else []
        narrow = replace(self, shared=self.shared * 2 // self.shared_width, moments=self.heads)
        if narrow.per_node < self.per_node:
            advice.append(
                f"keep moments and share heads as bfloat16, which takes {_gb(narrow.total)} and fits "
                f'{narrow.fits(free):,} nodes (moments = "bfloat16", shared = "bfloat16")'
            )
        advice.append("split it over several workers")
        raise ValueError(
            f"a world of {self.nodes:,} nodes takes {_gb(self.total)} ({parts}, tables {_gb(self.tables)}, "
            f"room to work {_gb(self.working)}), but {where} has {_gb(free)} free: {', or '.join(advice)}"
        )


def plan_for(
    scenario: Scenario,
    *,
    classes: int,
    features: int,
    samples: int,
    models: int,
    kind: str,
    nodes: int | None = None,
    halo: int = 0,
) -> MemoryPlan:
    """Plan a world whose peers hear `models` others each, with tables of `samples` samples, on a device of a `kind`.

    `nodes` are those of this worker (all by default), and `halo` counts heads of other workers' nodes that it keeps.
    """
    nodes = scenario.peers + scenario.attackers if nodes is None else nodes
    size, width = classes * features, 2 if scenario.precision.shared != "same" else 4
    tests = scenario.held_out * scenario.classes_per_peer
    most = scenario.rule.beta if isinstance(scenario.rule, Bristle) else models  # Others do not choose among models.
    # What is computed of F1, for every model and class, with positions of 8 bytes; draws and mini-batches.
    working = 81 * (models + 1) * classes + 64 * (models + scenario.samples_per_class * scenario.classes_per_peer)
    choosing = type(scenario.rule) not in SPARING or models > most
    if choosing or kind != "cuda" or classes > MOST_CLASSES or models > MOST_MODELS:
        # Outputs and what is counted of them, for every model and test; the new head.
        working += 10 * (models + 1) * tests * classes + 8 * size
    if choosing or kind != "cuda":
        working += 16 * (models + 1) * size + 8 * tests * features
    chunk = scenario.receivers_at_once or max(1, min(1 << 16, WORKING_BYTES[kind] // working))
    chunk = min(chunk, max(1, nodes))
    return MemoryPlan(
        nodes=nodes,
        heads=4 * size,
        shared=width * size * (nodes + halo) // max(1, nodes),
        moments=2 * size * (4 if scenario.precision.moments == "same" else 2),
        previous=0 if type(scenario.rule) in FORGETFUL else 4 * size,
        lists=8 * (2 * models + 2 * tests + 4 * scenario.samples_per_class * classes)
        + (classes if scenario.rule.uses_claims else 0),
        tables=samples * features * (4 if width == 4 else 6),
        working=working * chunk,
        chunk=chunk,
        shared_width=width,
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"


def suits(scenario: Scenario, data: FeatureData) -> str | None:
    """Return why a scenario cannot be a large world; None where it can."""
    if not array_api_compat.is_torch_array(data.train):
        return "its data must be torch tensors: give it a device"
    return suits_scenario(scenario)


def suits_scenario(scenario: Scenario) -> str | None:
    """Return why a scenario cannot be a large world, whatever its data; None where it can."""
    if scenario.rule.shares != "heads" or scenario.precision.shared == "grid":
        shared = "heads on a grid" if scenario.rule.shares == "heads" else scenario.rule.shares
        return f"its peers must exchange plain heads, not {shared}"
    if scenario.attackers and type(scenario.attack) not in (NoAttack, LabelFlip):
        return "its attackers must send what they trained: the attack none or label-flip"
    if scenario.attackers and not scenario.attackers_in_graph:
        return "its attackers must be in the graph, not heard by all"
    if type(scenario.topology) not in (RandomNeighbours, Ring) or not scenario.topology.fixed:
        return "all its peers must hear equally many others, always the same: the topology random or ring"
    if scenario.asynchrony != Asynchrony():
        return "all its peers must act in every iteration, and no message be lost or late"
    if scenario.user_shift:
        return "its users must not differ"
    if type(scenario.rule).__call__ is not Rule.__call__:
        return f"its rule must not override __call__, as {type(scenario.rule).__name__} does"
    if scenario.rule.initial_state(np.zeros((1, 2, 1), dtype=np.float32)) is not None:
        return "its rule must not remember anything from call to call"
    if not scenario.sharing.plain:
        return "its peers must share heads as they are"
    if scenario.head is not None:
        return "its peers must start from nothing"
    most = scenario.rule.max_candidates
    if most is not None and heard_by_each(scenario) > most:
        return f"its peers must not hear more others than their rule looks at, which is {most}"
    return None


def check_memory(scenario: Scenario, *, classes: int, features: int, samples: int, device: Any) -> None:
    """Refuse a large world that would not fit on a torch device, before anything of it is made."""
    models = heard_by_each(scenario)
    sizes = {"classes": classes, "features": features, "samples": samples, "models": models}
    plan_for(scenario, kind=device.type, **sizes).check(free_bytes(device), where=str(device))


def check_ordinary_memory(scenario: Scenario, *, classes: int, features: int, samples: int, device: Any) -> None:
    """Refuse an ordinary world whose heads alone would not fit on a torch device."""
    moments, in_flight = 4 if scenario.precision.moments == "same" else 2, scenario.asynchrony.depth
    # The head, that before its training, those that are under way, and Adam's moments.
    per_node = classes * features * (4 * (2 + in_flight) + 2 * moments)
    nodes, free = scenario.peers + scenario.attackers, free_bytes(device)
    total = nodes * per_node + 4 * samples * features
    if total > free:
        raise ValueError(
            f"a world of {nodes:,} nodes that runs the ordinary way takes at least {_gb(total)}, but {device} has "
            f"{_gb(free)} free: make it {max(0, free - 4 * samples * features) // per_node:,} nodes, or a large world, "
            "which keeps no checkpoint and shows no decisions"
        )


def heard_by_each(scenario: Scenario) -> int:
    """Return how many others each peer of a large world hears."""
    nodes, topology = scenario.peers + scenario.attackers, scenario.topology
    if isinstance(topology, Ring):
        return 2 * topology.reach
    assert isinstance(topology, RandomNeighbours)
    return topology.count(nodes)


def one_list(around: Neighbourhood, peers: int) -> Integers:
    """Return the senders of each benign peer as nodes: benign peers, then attackers from `peers` on."""
    last = np.iinfo(np.int64).max
    if not around.attackers.index.size and around.peers.mask is None:
        return around.peers.index
    parts = [
        values.index + first if values.mask is None else np.where(values.mask, values.index + first, last)
        for values, first in ((around.peers, 0), (around.attackers, peers))
    ]
    together = np.concatenate(parts, axis=1)
    count = int((together[0] < last).sum())
    return together if count == together.shape[1] else np.sort(together, axis=1)[:, :count]
