"""Which scenarios can be large worlds, and whom their peers hear."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from bristle.attacks.data_free import LabelFlip, NoAttack
from bristle.simulation.asynchrony import Asynchrony
from bristle.simulation.device import free_bytes
from bristle.simulation.features import FeatureData
from bristle.simulation.memory_plan import plan_for
from bristle.simulation.neighbourhood import Neighbourhood
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Integers, RandomNeighbours, Ring


def suits(scenario: Scenario, data: FeatureData) -> str | None:
    """Say why a scenario cannot be a large world; None where it can."""
    if not array_api_compat.is_torch_array(data.train):
        return "its data must be torch tensors: give it a device"
    return suits_scenario(scenario)


def suits_scenario(scenario: Scenario) -> str | None:
    """Say why a scenario cannot be a large world, whatever its data are; None where it can."""
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
    if scenario.rule.heeds_claims:
        return "its rule must not heed claims"
    if not scenario.sharing.plain:
        return "its peers must share heads as they are"
    most = scenario.rule.looks_at
    if most is not None and heard_by_each(scenario) > most:
        return f"its peers must not hear more others than their rule looks at, which is {most}"
    return None


def check_memory(scenario: Scenario, *, classes: int, features: int, samples: int, device: Any) -> None:
    """Refuse a large world that would not fit on a torch device, before anything of it is made."""
    models = heard_by_each(scenario)
    sizes = {"classes": classes, "features": features, "samples": samples, "models": models}
    plan_for(scenario, kind=device.type, **sizes).check(free_bytes(device), where=str(device))


def heard_by_each(scenario: Scenario) -> int:
    """Return how many others each peer of a large world hears."""
    nodes, topology = scenario.peers + scenario.attackers, scenario.topology
    if isinstance(topology, Ring):
        return 2 * topology.reach
    assert isinstance(topology, RandomNeighbours)
    return topology.count(nodes)


def one_list(around: Neighbourhood, peers: int) -> Integers:
    """Return whom each benign peer hears as one list of nodes: benign peers first, then attackers from `peers` on."""
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
