"""Build the scenario, rule, attack, data and backbone that a configuration describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bristle import attacks, rules
from bristle._core.registry import Registry, did_you_mean
from bristle.attacks import ATTACKS, Attack
from bristle.backbones import Backbone, find_backbone
from bristle.backbones.backbone import load_for
from bristle.data import Dataset, load, partitions
from bristle.data.partitions import PARTITIONS, Partitioner
from bristle.data.partitions.base import ReusingPartitioner
from bristle.learning import TrainingSettings
from bristle.peer.step import Sharing
from bristle.rules import Rule, chain
from bristle.simulation import (
    All,
    Asynchrony,
    Edges,
    Grid,
    Precision,
    RandomNeighbours,
    Ring,
    Scenario,
    SmallWorld,
    Topology,
)
from bristle.simulation.config import (
    AttackSection,
    DataSection,
    Named,
    PartitionSection,
    RuleSection,
    SimulationConfig,
    TopologySection,
)

_TOPOLOGIES: dict[str, type[Topology]] = {
    "all": All,
    "random": RandomNeighbours,
    "ring": Ring,
    "grid": Grid,
    "small-world": SmallWorld,
    "edges": Edges,
}
TOPOLOGIES: Registry[Topology] = Registry("topology", Topology, _TOPOLOGIES, "bristle.topologies")
"""Topologies by name, as `[topology]` of a world file takes them."""


def scenario_of(config: SimulationConfig, *, classes: int | None = None) -> Scenario:
    """Return the scenario; `classes` is the number of classes in the data, which some attacks need."""
    world, partition = config.world, config.partition
    return Scenario(
        peers=world.peers,
        attackers=world.attackers,
        rule=make_rule(config.rule),
        attack=make_attack(config.attack, classes=classes),
        classes_per_peer=partition.classes_per_peer,
        samples_per_class=partition.samples,
        held_out=partition.held_out,
        reuse=partition.reuse,
        partition=make_partition(partition),
        user_shift=config.data.user_shift,
        claiming=world.claiming,
        branches=tuple(world.branches),
        topology=TOPOLOGIES.create(
            config.topology.name, _frozen(config.topology.options), keys=TopologySection.model_fields
        ),
        attackers_in_graph=config.topology.attackers == "in-graph",
        asynchrony=Asynchrony(**_frozen(config.asynchrony.model_dump())),
        iterations=world.iterations,
        seed=world.seed,
        training=TrainingSettings(**config.training.model_dump()),
        receivers_at_once=world.receivers_at_once,
        precision=Precision(moments=world.moments, shared=world.shared),
        sharing=Sharing(clip=world.share_clip, noise=world.share_noise),
    )


def make_rule(section: RuleSection) -> Rule:
    """Return the rule, with the steps before it."""
    rule = rules.create(section.name, **_frozen(section.options))
    if not section.before:
        return rule
    named = [Named(name=step) if isinstance(step, str) else step for step in section.before]
    return chain(*(rules.create_step(step.name, **_frozen(step.options)) for step in named), rule)


def make_attack(section: AttackSection, *, classes: int | None = None) -> Attack:
    """Return the attack, with the data's number of classes if it has that option and no value for it."""
    options = section.options
    if section.name == "sybil":
        inner = options.get("inner", "label-flip")
        named = {"name": inner} if isinstance(inner, str) else inner
        options["inner"] = make_attack(AttackSection.model_validate(named), classes=classes)
    if classes is not None and ATTACKS.accepts(section.name, "classes"):
        options.setdefault("classes", classes)
    return attacks.create(section.name, **_frozen(options))


def make_partition(section: PartitionSection) -> Partitioner | None:
    """Return the partition; None for the paper's, which `populate` makes."""
    if section.name == "consecutive":
        for option in section.options:
            hint = did_you_mean(option, PartitionSection.model_fields)
            raise ValueError(f"partition 'consecutive' has no option {option!r}; {hint}")
        return None
    options: dict[str, Any] = dict(section.options)
    for name in ("classes_per_peer", "samples", "held_out", "reuse"):
        if name in section.model_fields_set:
            options[name] = section.model_dump()[name]
    return partitions.create(section.name, **_frozen(options))


def make_data(
    section: DataSection, *, data: Dataset | None = None, backbone: Backbone | None = None
) -> tuple[Dataset, Backbone]:
    """Return a dataset with at most `train_samples` training samples, and the backbone, or what is given of them."""
    if backbone is None and section.backbone != "none":
        backbone = find_backbone(section.backbone)
    if data is None:
        data = load(section.dataset) if backbone is None else load_for(section.dataset, backbone)
    backbone = backbone or find_backbone("none", like=data.x_train)
    wanted = section.train_samples
    if wanted is None:
        return data, backbone
    user = None if data.user is None else data.user[:wanted]
    few = Dataset(
        data.x_train[:wanted], data.y_train[:wanted], data.x_test, data.y_test,
        classes=data.classes, user=user, name=data.name, test_user=data.test_user,
    )  # fmt: skip
    return few, backbone


def config_notes(config: SimulationConfig, dataset: Dataset) -> Iterator[str]:
    """Yield a sentence for each default of the paper's world that does not hold for the partition."""
    partition, given = config.partition, config.partition.model_fields_set
    kind = PARTITIONS.own.get(partition.name)
    if partition.name == "consecutive" or kind is None:
        return
    if "samples" not in given and isinstance(kind, type) and issubclass(kind, ReusingPartitioner):
        yield (
            f"the partition {partition.name!r} uses all {len(dataset.y_train):,} training samples; the default of 2 "
            "per class and peer applies to 'consecutive' only: set partition.samples"
        )
    if partition.name == "natural" and dataset.user is not None and "peers" not in config.world.model_fields_set:
        users = len(np.unique(dataset.user))
        if users > config.world.peers:
            yield (
                f"the data have {users:,} users, but the default is {config.world.peers} peers, drawn from them: "
                f"set world.peers, e.g. to {users}"
            )


def _frozen(value: Any) -> Any:
    """Return options with tuples in place of TOML's lists, at all depths."""
    if isinstance(value, list):
        return tuple(_frozen(entry) for entry in value)
    return {key: _frozen(entry) for key, entry in value.items()} if isinstance(value, dict) else value
