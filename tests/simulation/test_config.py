"""Worlds as people describe them: tables, overrides and mistakes, down to what the engine takes."""

from __future__ import annotations

from typing import Any

import pytest

from bristle import attacks, rules
from bristle.data import partitions
from bristle.simulation import Asynchrony, Edges, RandomNeighbours, Ring, Scenario
from bristle.simulation.build import scenario_of
from bristle.simulation.config import read


def test_an_empty_configuration_is_the_papers_world() -> None:
    assert scenario_of(read({})) == Scenario()


def test_every_table_reaches_the_engine() -> None:
    config = {
        "world": {"peers": 20, "attackers": 3, "iterations": 50, "seed": 7, "receivers_at_once": 4},
        "data": {"user_shift": 0.5},
        "partition": {"classes_per_peer": 3, "samples": 4, "held_out": 5, "reuse": True},
        "rule": {"name": "krum", "f": 2, "before": ["bucketing", {"name": "nearest-neighbour-mixing", "f": 2}]},
        "attack": {"name": "sybil", "inner": "krum", "jitter": 0.01},
        "topology": {"name": "random", "ratio": 0.2, "redraw": True, "attackers": "in-graph"},
        "asynchrony": {"slow": 0.1, "period": 3, "absences": [[1, 2, 3]], "loss": 0.1, "delay": [0, 2]},
        "training": {"learning_rate": 0.01, "batch": 3},
    }
    found = scenario_of(read(config))
    assert (found.peers, found.attackers, found.iterations, found.seed, found.receivers_at_once) == (20, 3, 50, 7, 4)
    assert (found.classes_per_peer, found.samples_per_class, found.held_out, found.reuse) == (3, 4, 5, True)
    assert found.rule == rules.chain(rules.Bucketing(), rules.NearestNeighbourMixing(f=2), rules.Krum(f=2))
    assert found.attack == attacks.create("sybil", inner="krum", jitter=0.01)
    assert found.topology == RandomNeighbours(ratio=0.2, redraw=True)
    assert found.attackers_in_graph
    assert found.user_shift == 0.5
    assert found.asynchrony == Asynchrony(slow=0.1, period=3, absences=((1, 2, 3),), loss=0.1, delay=(0, 2))
    assert (found.training.learning_rate, found.training.batch) == (0.01, 3)


def test_options_of_rules_and_topologies_are_values() -> None:
    found = scenario_of(
        read({"rule": {"familiar": [10, 4], "score": "cubic"}, "topology": {"name": "edges", "edges": [[0, 1]]}})
    )
    assert found.rule == rules.Bristle(familiar=(10, 4), score="cubic")
    assert found.topology == Edges(edges=((0, 1),))
    found = scenario_of(read({"partition": {"name": "dirichlet", "alpha": 0.1, "samples": 5}}))
    assert found.partition == partitions.create("dirichlet", alpha=0.1, samples=5)


def test_overrides_are_toml_or_bare_words() -> None:
    words = [
        "world.peers=3",
        "rule.name=krum",
        "rule.f=1",
        'topology.name = "ring"',
        "asynchrony.delay=[1, 2]",
        "data.user_shift=0.5",
    ]
    found = scenario_of(read({"world": {"peers": 9, "seed": 2}}, words))
    assert (found.peers, found.seed, found.user_shift) == (3, 2, 0.5)
    assert found.rule == rules.Krum(f=1)
    assert found.topology == Ring()
    assert found.asynchrony.delay == (1, 2)
    config = read({"world": {"peers": 9}})
    assert read(config, ["world.seed=1"]).world.peers == 9
    assert config.world.seed == 0


@pytest.mark.parametrize(
    ("overrides", "expected", "told"),
    [
        (["rule.name=median"], {"name": "median", "before": ["bucketing"]}, "left out alpha = 0.2, beta = 5 of"),
        (["rule.f=2", "rule.name=krum"], {"name": "krum", "f": 2, "before": ["bucketing"]}, "left out alpha = 0.2"),
        (["rule.name=bristle"], {"name": "bristle", "alpha": 0.2, "beta": 5, "before": ["bucketing"]}, ""),
        (["rule.alpha=0.3"], {"alpha": 0.3, "beta": 5, "before": ["bucketing"]}, ""),
        (["rule.name=krum", "rule.name=bristle"], {"name": "bristle", "alpha": 0.2, "beta": 5, "before": ["bucketing"]},
         ""),
    ],
)  # fmt: skip
def test_another_name_takes_out_the_options_of_the_old_one(
    overrides: list[str], expected: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"rule": {"alpha": 0.2, "beta": 5, "before": ["bucketing"]}}
    assert read(config, overrides).rule.model_dump(exclude_unset=True) == expected
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == bool(told)
    assert config == {"rule": {"alpha": 0.2, "beta": 5, "before": ["bucketing"]}}


def test_attacks_topologies_and_partitions_lose_their_options_too(capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "attack": {"name": "sybil", "jitter": 0.01},
        "topology": {"name": "random", "k": 4, "attackers": "in-graph"},
        "partition": {"classes_per_peer": 3, "samples": 4},
    }
    found = read(config, ["attack.name=alie", "topology.name=ring", "partition.name=iid"])
    assert found.attack.options == found.topology.options == {}
    assert found.topology.attackers == "in-graph"
    assert scenario_of(found).partition == partitions.create("iid", samples=4)
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"world": {"peeers": 3}}, "no key 'world.peeers'; did you mean 'peers'"),
        ({"wurld": {}}, "no key 'wurld'; did you mean 'world'"),
        ({"world": {"peers": 0}}, "world.peers: .* not 0"),
        ({"world": {"peers": "ten"}}, "world.peers: .* not 'ten'"),
        ({"world": {"peers": 2.5}}, "world.peers: .* not 2.5"),
        ({"world": 3}, "world"),
        ({"world": {"attackers": 3}}, "no \\[attack\\]"),
        ({"rule": {"name": "krumm"}}, "no rule 'krumm'; did you mean 'krum'"),
        ({"rule": {"name": "krum", "ff": 1}}, "rule 'krum' has no option 'ff'; did you mean 'f'"),
        ({"rule": {"befor": ["bucketing"]}}, "did you mean 'before'"),
        ({"rule": {"name": "bucketing"}}, "'bucketing' is a step, not a rule: .* rule.before = \\['bucketing'\\]"),
        ({"rule": {"name": "clipping"}}, "'clipping' is a step, not a rule"),
        ({"rule": {"name": "nearest-neighbour-mixing", "alpha": 1}}, "'nearest-neighbour-mixing' is a step"),
        ({"rule": {"before": ["krum"]}}, "'krum' is a rule, not a step"),
        ({"rule": {"name": "krum", "f": "x"}}, "f must be a whole number"),
        ({"attack": {"name": "label-flop"}}, "did you mean 'label-flip'"),
        ({"attack": {"name": "label-flip", "clases": 4}}, "did you mean 'classes'"),
        ({"topology": {"name": "rin"}}, "no topology 'rin'; did you mean 'ring'"),
        ({"topology": {"name": "ring", "rech": 2}}, "did you mean 'reach'"),
        ({"topology": {"name": "edges"}}, "'edges' needs the option"),
        ({"topology": {"name": "random"}}, "either k="),
        ({"topology": {"attackers": "everywhere"}}, "topology.attackers"),
        ({"partition": {"name": "dirichle"}}, "did you mean 'dirichlet'"),
        ({"partition": {"clases_per_peer": 3}}, "did you mean 'classes_per_peer'"),
        ({"partition": {"name": "dirichlet", "alpha": "x"}}, "partition 'dirichlet'"),
        ({"asynchrony": {"delay": [3]}}, "delay"),
        ({"asynchrony": {"absences": [[1, 2]]}}, "must be \\[peer, first iteration, last iteration\\]"),
        ({"training": {"batch": 0}}, "batch"),
        ({"rule": {"name": "nowhere:Rule"}}, "there is no module 'nowhere'"),
        ({"rule": {"name": "math:pi"}}, "is float, which is no rule"),
        ({"rule": {"name": "math:nothing"}}, "math has no 'nothing'"),
        ({"rule": {"name": "builtins:dict"}}, "returned dict, which is no rule"),
        ({"attack": {"name": "bristle.rules:FedAvg"}}, "returned FedAvg, which is no attack"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as told:
        scenario_of(read(config))
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize("override", ["world.peers", "=3", "world..peers=3", "world.peers.more=3"])
def test_overrides_that_are_none(override: str) -> None:
    with pytest.raises(ValueError, match="--set"):
        read({"world": {"peers": 4}}, [override])
