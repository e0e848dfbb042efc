"""What an installed package brings: a real distribution on the path, with entry points for every kind of thing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bristle import simulate
from bristle._core import registry as bring_your_own
from bristle.paper.reproduce import contender
from bristle.simulation.build import make_backbone, make_dataset, scenario_of
from bristle.simulation.config import DataSection, read

MODULE = """
from dataclasses import dataclass

import numpy as np

from bristle.attacks import SignFlip
from bristle.data import Dataset
from bristle.data.partitions import IID
from bristle.backbones.backbone import CallableBackbone
from bristle.rules import FedAvg


@dataclass(frozen=True, kw_only=True)
class Careful(FedAvg):
    strength: int = 1


class Rude(SignFlip):
    pass


class Fair(IID):
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
[bristle.attacks]
rude = garden:Rude
[bristle.datasets]
blobs = garden:blobs
[bristle.backbones]
same = garden:same
[bristle.partitions]
fair = garden:Fair
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
        "rule": {"name": "careful", "strength": 3},
        "attack": {"name": "rude"},
    }
    found = scenario_of(read(config), classes=4)
    assert type(found.rule).__name__ == "Careful"
    assert type(found.attack).__name__ == "Rude"
    assert type(found.partition).__name__ == "Fair"
    section = DataSection(dataset="blobs", backbone="same")
    assert make_dataset(section).name == "blobs"
    assert make_backbone(section).name == "same"
    assert simulate(config).last()["rule"] == "Careful"


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
    before = bring_your_own.source_digest("careful", what="rule")
    (garden / "garden.py").write_text(MODULE + "\n# another\n")
    assert bring_your_own.source_digest("careful", what="rule") != before


def test_without_packages_there_is_nothing() -> None:
    assert "careful" not in bring_your_own.installed("rule")
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
