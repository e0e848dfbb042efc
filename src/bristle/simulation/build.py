"""What a configuration stands for: the rule, the attack, the data and all else that the engine takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal

from bristle._core import registry as bring_your_own
from bristle._core.validation import make
from bristle.attacks import Attack
from bristle.attacks.registry import ATTACKS
from bristle.backbones import backbone as backbones
from bristle.data import Dataset, partitions
from bristle.data import load as load_dataset
from bristle.data.partitions import Partitioner
from bristle.learning.optimiser import TrainingSettings
from bristle.peer.sharing import Sharing
from bristle.rules import Rule, Step, chain
from bristle.rules.registry import RULES, STEPS
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
    did_you_mean,
)

TOPOLOGIES: dict[str, type[Topology]] = {
    "all": All,
    "random": RandomNeighbours,
    "ring": Ring,
    "grid": Grid,
    "small-world": SmallWorld,
    "edges": Edges,
}
"""Topologies by name, as `[topology]` of a world file takes them."""


def scenario_of(config: SimulationConfig, *, classes: int | None = None) -> Scenario:
    """Return what the engine takes; `classes` is how many the data have, for attacks that want to know."""
    world, partition, asynchrony = config.world, config.partition, config.asynchrony
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
        topology=make_topology(config.topology),
        attackers_in_graph=config.topology.attackers == "in-graph",
        asynchrony=Asynchrony(
            **{
                **asynchrony.model_dump(),
                "absences": tuple(_triple(absence) for absence in asynchrony.absences),
                "delay": tuple(asynchrony.delay),
            }
        ),
        iterations=world.iterations,
        seed=world.seed,
        training=TrainingSettings(**config.training.model_dump()),
        receivers_at_once=world.receivers_at_once,
        precision=Precision(moments=world.moments, shared=world.shared),
        sharing=Sharing(clip=world.share_clip, noise=world.share_noise),
    )


def make_rule(section: RuleSection) -> Rule:
    """Return the rule, with the steps before it."""
    rule: Rule = _rule_or_step(section.name, section.options, kind=Rule, what="rule")
    if not section.before:
        return rule
    named = [Named(name=step) if isinstance(step, str) else step for step in section.before]
    return chain(*(_rule_or_step(step.name, step.options, kind=Step, what="step") for step in named), rule)


def _rule_or_step(name: str, options: dict[str, Any], *, kind: type, what: Literal["rule", "step"]) -> Any:
    if bring_your_own.is_foreign(name, what=what, ours={**RULES, **STEPS}):
        return bring_your_own.make(name, options, what=what, kind=kind)
    if what == "rule" and name in STEPS:
        raise ValueError(
            f"{name!r} is a step, not a rule: put it before one, e.g. rule.before = [{name!r}] and rule.name = 'krum'"
        )
    if what == "step" and name in RULES:
        raise ValueError(f"{name!r} is a rule, not a step: put it into rule.name; steps are {', '.join(STEPS)}")
    return _built_in(what, {**RULES, **STEPS}, name, options, RuleSection)


def make_attack(section: AttackSection, *, classes: int | None = None) -> Attack:
    """Return the attack; one that asks for the number of classes and is not told gets that of the data."""
    if bring_your_own.is_foreign(section.name, what="attack", ours=ATTACKS):
        attack: Attack = bring_your_own.make(section.name, section.options, what="attack", kind=Attack)
        return attack
    options = section.options
    if section.name == "sybil":
        inner = options.get("inner", "label-flip")
        named = {"name": inner} if isinstance(inner, str) else inner
        options["inner"] = make_attack(AttackSection.model_validate(named), classes=classes)
    kind = ATTACKS.get(section.name)
    if classes is not None and kind is not None and "classes" in {field.name for field in fields(kind)}:
        options.setdefault("classes", classes)
    made: Attack = _built_in("attack", ATTACKS, section.name, options, AttackSection)
    return made


def make_partition(section: PartitionSection) -> Partitioner | None:
    """Return the partition; None for the paper's, which the engine makes by itself."""
    if section.name == "consecutive":
        _refuse_options(section.options, "partition 'consecutive'", list(PartitionSection.model_fields))
        return None
    options: dict[str, Any] = dict(section.options)
    for name in ("classes_per_peer", "samples", "held_out", "reuse"):
        if name in section.model_fields_set:
            options[name] = section.model_dump()[name]
    if bring_your_own.is_foreign(section.name, what="partition", ours=partitions.names()):
        made: Partitioner = bring_your_own.make(section.name, options, what="partition", kind=Partitioner)
        return made
    if section.name not in partitions.names():
        known = [*partitions.names(), *bring_your_own.installed("partition")]
        raise ValueError(f"there is no partition {section.name!r}; {did_you_mean(section.name, known)}")
    try:
        return partitions.create(section.name, **_frozen(options))
    except TypeError as error:
        raise ValueError(f"partition {section.name!r} does not take these options: {error}") from error


def make_topology(section: TopologySection) -> Topology:
    """Return the topology."""
    options = section.options
    if bring_your_own.is_own(section.name):
        made: Topology = bring_your_own.make(section.name, options, what="topology", kind=Topology)
        return made
    topology: Topology = _built_in("topology", TOPOLOGIES, section.name, options, TopologySection)
    return topology


def make_dataset(section: DataSection) -> Dataset:
    """Return the dataset, cut down to as many training samples as wanted."""
    if bring_your_own.is_foreign(section.dataset, what="dataset", ours=("mnist",)):
        dataset: Dataset = bring_your_own.make(section.dataset, {}, what="dataset", kind=Dataset)
    else:
        dataset = load_dataset(section.dataset)
    wanted = section.train_samples
    if wanted is None:
        return dataset
    user = None if dataset.user is None else dataset.user[:wanted]
    return Dataset(
        dataset.x_train[:wanted], dataset.y_train[:wanted], dataset.x_test, dataset.y_test,
        classes=dataset.classes, user=user, name=dataset.name,
    )  # fmt: skip


def make_backbone(section: DataSection) -> backbones.Backbone:
    """Return the backbone: the bundled one, an ONNX file, or your own."""
    if section.backbone == "bundled":
        return backbones.bundled()
    if bring_your_own.is_foreign(section.backbone, what="backbone"):
        kinds = (backbones.OnnxBackbone, backbones.CallableBackbone)
        made: backbones.Backbone = bring_your_own.make(section.backbone, {}, what="backbone", kind=kinds)
        return made
    return backbones.OnnxBackbone.load(section.backbone)


def _built_in(
    what: bring_your_own.What,
    known: Mapping[str, type[Any]],
    name: str,
    options: dict[str, Any],
    section: type[Named],
) -> Any:
    """Make one of ours by name; a wrong option gets the nearest right one."""
    if name not in known:
        hint = did_you_mean(name, [*known, *bring_your_own.installed(what)])
        raise ValueError(f"there is no {what} {name!r}; {hint}")
    accepted = [field.name for field in fields(known[name])]
    for option in options:
        if option not in accepted:
            hint = did_you_mean(option, [*accepted, *section.model_fields])
            raise ValueError(f"{what} {name!r} has no option {option!r}; {hint}")
    try:
        return make(what, known, name, _frozen(options))
    except TypeError as error:
        raise ValueError(f"{what} {name!r} does not take these options: {error}") from error


def _frozen(value: Any) -> Any:
    """Turn TOML's lists into tuples, all the way down: options are values."""
    if isinstance(value, list):
        return tuple(_frozen(entry) for entry in value)
    return {key: _frozen(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _refuse_options(options: Mapping[str, Any], what: str, known: Iterable[str]) -> None:
    if options:
        word = next(iter(options))
        raise ValueError(f"{what} has no option {word!r}; {did_you_mean(word, known)}")


def _triple(absence: list[int]) -> tuple[int, int, int]:
    if len(absence) != 3:
        raise ValueError(f"absence {absence} must be [peer, first iteration, last iteration]")
    return absence[0], absence[1], absence[2]
