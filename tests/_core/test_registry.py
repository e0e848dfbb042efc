"""What an installed package brings: a real distribution on the path, with entry points for every kind of thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bristle
from bristle import attacks, rules, simulate
from bristle.commands.demo import Demo
from bristle.commands.peer import PeerOptions
from bristle.data import load, partitions
from bristle.paper.reproduce import contender
from bristle.rules import RULES
from bristle.simulation.build import make_data, scenario_of
from bristle.simulation.config import DataSection, read

MODULE = """
from dataclasses import dataclass

import numpy as np

from bristle.attacks import SignFlip, StatementEdge
from bristle.data import Dataset
from bristle.data.partitions import IID
from bristle.backbones.backbone import CallableBackbone
from bristle.rules import Bucketing, Evidence, FedAvg
from bristle.simulation import Ring


@dataclass(frozen=True, kw_only=True)
class Careful(FedAvg):
    strength: int = 1


@dataclass(frozen=True, kw_only=True)
class Frank(Evidence):
    candour: float


class Rude(SignFlip):
    pass


class Liar(StatementEdge):
    pass


class Fair(IID):
    pass


class Circle(Ring):
    pass


class Sack(Bucketing):
    pass


def blobs():
    rng = np.random.default_rng(0)
    y = np.arange(800) % 4
    x = (128 + 40 * rng.standard_normal((4, 8))[y] + 20 * rng.standard_normal((800, 8))).clip(0, 255)
    return Dataset(x[:600].astype(np.uint8), y[:600], x[600:].astype(np.uint8), y[600:], name="blobs")


same = CallableBackbone(lambda x: np.asarray(x, np.float32), name="same", version="1", features=8, input_shape=(8,))
"""

POINTS = """
[bristle.rules]
careful = garden:Careful
krum = garden:Careful
frank = garden:Frank
[bristle.steps]
sack = garden:Sack
[bristle.attacks]
rude = garden:Rude
liar = garden:Liar
[bristle.datasets]
blobs = garden:blobs
[bristle.backbones]
same = garden:same
[bristle.partitions]
fair = garden:Fair
[bristle.topologies]
circle = garden:Circle
"""


@pytest.fixture
def garden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution as an installer would: a module, and its dist-info beside it."""
    site = tmp_path / "site"
    info = site / "garden-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "garden.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: garden\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "garden", raising=False)
    return site


@pytest.mark.usefixtures("garden")
def test_installed_names_work_in_a_configuration() -> None:
    config = {
        "world": {"peers": 4, "attackers": 1, "iterations": 20},
        "data": {"dataset": "blobs", "backbone": "same"},
        "partition": {"name": "fair", "samples": 4, "held_out": 4},
        "rule": {"name": "careful", "strength": 3, "before": ["garden:Sack"]},
        "attack": {"name": "rude"},
        "topology": {"name": "circle"},
    }
    found = scenario_of(read(config), classes=4)
    assert repr(found.rule).startswith("Chain(steps=(Sack(s=2),), rule=Careful(strength=3")
    assert type(found.attack).__name__ == "Rude"
    assert type(found.partition).__name__ == "Fair"
    assert type(found.topology).__name__ == "Circle"
    section = DataSection(dataset="blobs", backbone="same")
    assert [each.name for each in make_data(section)] == ["blobs", "same"]
    assert simulate(config).last()["rule"] == "Sack+Careful"


@pytest.mark.usefixtures("garden")
@pytest.mark.parametrize("prefix", ["", "garden:"])
def test_all_doors_open_for_the_same_names(prefix: str, tmp_path: Path) -> None:
    """A name of a package, and a name as module:name, are made alike by every function and command that takes one."""
    rule, attack, dataset, backbone, partition = (
        prefix + (name.capitalize() if prefix and name not in ("blobs", "same") else name)
        for name in ("careful", "rude", "blobs", "same", "fair")
    )
    assert repr(rules.create(rule, strength=2)).startswith("Careful(strength=2")
    assert type(attacks.create(attack)).__name__ == "Rude"
    sybil = attacks.create("sybil", inner=attack)
    assert isinstance(sybil, attacks.Sybil)
    assert type(sybil.inner).__name__ == "Rude"
    assert type(partitions.create(partition, samples=3)).__name__ == "Fair"
    assert load(dataset).name == "blobs"
    options = PeerOptions(application="a", folder=tmp_path, rule=rule, backbone=backbone, data=dataset)
    assert type(options.make_rule()).__name__ == "Careful"
    assert options.make_backbone().name == "same"
    data = options.make_data(options.make_backbone())
    assert data is not None
    assert data.features.shape == (600, 8)
    Demo(rule=rule, attack=attack).check()
    for table, name in (("rule", rule), ("attack", attack)):
        config = {"world": {"peers": 2, "iterations": 1}, "data": {"dataset": dataset, "backbone": backbone}}
        assert bristle.simulate({**config, "partition": {"reuse": True}, table: {"name": name}}).last()


@pytest.mark.usefixtures("garden")
def test_names_are_ours_first_and_then_those_of_packages() -> None:
    assert rules.names()[0] == "local"
    assert rules.names()[-2:] == ("careful", "frank")
    assert rules.names().count("krum") == 1
    assert rules.steps()[0] == "nearest-neighbour-mixing"
    assert rules.steps()[-1] == "sack"
    assert attacks.names()[-2:] == ("liar", "rude")
    assert partitions.names()[-1] == "fair"
    assert bristle.TOPOLOGIES.names()[-1] == "circle"


@pytest.mark.usefixtures("garden")
def test_names_by_what_peers_exchange() -> None:
    assert rules.names(shares="evidence") == ("evidence", "frank")
    assert rules.names(shares="heads")[-1] == "careful"
    assert {*rules.names(shares="heads"), *rules.names(shares="evidence")} == set(rules.names())
    assert attacks.names(shares="heads")[-1] == "rude"
    assert not {"liar", "statement-edge"} & set(attacks.names(shares="heads"))
    assert attacks.names(shares="evidence") == attacks.names()


@pytest.mark.usefixtures("garden")
def test_steps_of_packages_are_steps() -> None:
    assert type(rules.create_step("sack", s=3)).__name__ == "Sack"
    with pytest.raises(ValueError, match="'sack' is a step, not a rule"):
        rules.create("sack")
    with pytest.raises(ValueError, match=r"'careful' is a rule, not a step: .* bucketing, clipping, sack"):
        rules.create_step("careful")


def test_a_step_is_no_rule_and_a_rule_is_no_step() -> None:
    with pytest.raises(ValueError, match=r"'bucketing' is a step, not a rule: .*create_step\('bucketing'\)"):
        rules.create("bucketing")
    with pytest.raises(ValueError, match="'krum' is a rule, not a step"):
        rules.create_step("krum")


@pytest.mark.usefixtures("garden")
def test_no_package_can_take_one_of_our_names() -> None:
    found = scenario_of(read({"rule": {"name": "krum", "f": 2}}))
    assert type(found.rule).__name__ == "Krum"


@pytest.mark.usefixtures("garden")
def test_a_misspelt_installed_name_gets_the_right_one() -> None:
    with pytest.raises(ValueError, match="there is no rule 'carefull'; did you mean 'careful'"):
        scenario_of(read({"rule": {"name": "carefull"}}))
    with pytest.raises(ValueError, match="there is no attack 'ruder'; did you mean 'rude'"):
        scenario_of(read({"attack": {"name": "ruder"}}))
    with pytest.raises(ValueError, match="there is no partition 'fairr'; did you mean 'fair'"):
        scenario_of(read({"partition": {"name": "fairr"}}))


@pytest.mark.usefixtures("garden")
def test_installed_rules_can_be_reproduced_with() -> None:
    assert contender("careful").rule == "careful"
    with pytest.raises(ValueError, match="there is no rule 'carefull'; did you mean 'careful'"):
        contender("carefull")


def test_a_digest_follows_the_source(garden: Path) -> None:
    before = RULES.source_digest("careful")
    (garden / "garden.py").write_text(MODULE + "\n# another\n")
    assert RULES.source_digest("careful") != before


def test_without_packages_there_is_nothing() -> None:
    assert "careful" not in rules.names()
    with pytest.raises(ValueError, match="there is no rule 'careful'"):
        scenario_of(read({"rule": {"name": "careful"}}))


def test_the_command_line_knows_installed_rules(garden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join([str(garden), *filter(None, sys.path)]))
    command = [
        sys.executable,
        "-c",
        "from bristle.cli import main; main()",
        "reproduce",
        "--rules",
        "careful",
        "--list",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "intro" in done.stdout
