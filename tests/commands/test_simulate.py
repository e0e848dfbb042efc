"""Experiments as people describe them: TOML, overrides, mistakes, things of their own, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bristle
from bristle import simulate
from bristle.simulation import Watch
from bristle.simulation.build import scenario_of
from bristle.simulation.config import SimulationConfig, read

BRISTLE = [sys.executable, "-c", "from bristle.cli import main; main()"]

# Rule, attack, partition and topology of one's own; data and backbone are in blobs.py.
MINE = """
from dataclasses import dataclass

from bristle.attacks import SignFlip
from bristle.data.partitions import IID
from bristle.rules import FedAvg
from bristle.simulation import Ring


@dataclass(frozen=True, kw_only=True)
class MyRule(FedAvg):
    strength: int = 1


class MyAttack(SignFlip):
    pass


class MyPartition(IID):
    pass


class MyRing(Ring):
    pass
"""

WORLD = """
[world]
peers = 5
iterations = 30

[data]
dataset = "blobs:blobs"
backbone = "blobs:same"

[partition]
classes_per_peer = 2
"""


@pytest.fixture
def folder(own_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_folder(WORLD, samples=2000, train=1600, features=16, apart=40, noise=20)
    (folder / "mine.py").write_text(MINE)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return folder


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BRISTLE, "simulate", *words], capture_output=True, text=True, timeout=2400, check=False)


def test_everything_may_be_your_own(folder: Path) -> None:
    own = ["rule.name=mine:MyRule", "rule.strength=2", "attack.name=mine:MyAttack", "partition.name=mine:MyPartition",
           "topology.name=mine:MyRing", "world.attackers=2"]  # fmt: skip
    (folder / "world.toml").write_text(WORLD.replace("classes_per_peer = 2", "samples = 3"))
    results = simulate("world.toml", overrides=own)
    assert [row["iteration"] for row in results.rows] == [10, 20, 30]
    last = results.last()
    assert (last["rule"], last["attack"], last["classes_per_peer"]) == ("MyRule", "MyAttack", 4)


BROKEN = """
from dataclasses import dataclass

from bristle.attacks import SignFlip
from bristle.rules import FedAvg


@dataclass(frozen=True, kw_only=True)
class Divided(FedAvg):
    parts: int = 0

    def __post_init__(self):
        1 / self.parts


class Lost(SignFlip):
    def __init__(self, where="nowhere"):
        [][{}[where]]


class Adding(FedAvg):
    def __init__(self, value):
        "text" + value
"""


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["rule.name=broken:Divided"], "'broken:Divided' cannot be created: ZeroDivisionError: .*line 13 of broken.py"),
        (["rule.name=broken:Adding", "rule.value=3"], "'broken:Adding' cannot be created with value = 3: .*line 23"),
        (["rule.name=broken:Adding"], "'broken:Adding' does not take these options: .*'value'"),
        (["attack.name=broken:Lost", "attack.where=here"], "cannot be created with where = 'here': KeyError"),
        (["rule.name=unreadable:Rule"], "'unreadable:Rule': unreadable cannot be imported: SyntaxError: .*fix it"),
        (["rule.name=stopping:Rule"], "stopping cannot be imported: RuntimeError: not today .line 2 of stopping.py"),
    ],
)  # fmt: skip
def test_errors_in_things_of_your_own_are_told_in_one_line(
    folder: Path, overrides: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "broken.py").write_text(BROKEN)
    (folder / "unreadable.py").write_text("class Rule(:\n")
    (folder / "stopping.py").write_text("\nraise RuntimeError('not today')\n")
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(ValueError, match=message) as told:
        scenario_of(read("world.toml", overrides))
    assert len(str(told.value).splitlines()) == 1


def test_from_python(folder: Path) -> None:
    rows: list[Any] = []
    results = bristle.simulate(folder / "world.toml", watch=Watch(row=rows.append))
    assert results.rows == rows
    assert results.last()["accuracy_mean"] > 0.8
    config = SimulationConfig.model_validate(read(folder / "world.toml").model_dump())
    assert bristle.simulate(config).rows == rows
    with pytest.raises(AttributeError, match="simulat"):
        bristle.simulat  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("attack", ["label-flip", "sybil"])
def test_attacks_learn_how_many_classes_there_are(folder: Path, attack: str) -> None:
    row = simulate("world.toml", overrides=["world.attackers=2", f"attack.name={attack}", "world.iterations=3"]).last()
    assert row["attack"] == attack


def test_importing_the_name_costs_nothing() -> None:
    code = "import sys, bristle; print([name for name in ('pydantic', 'rich', 'onnxruntime') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_command_writes_rows_and_says_how_it_ended(folder: Path) -> None:
    done = command("world.toml", "--set", "world.figure=mine", "--json", "out/rows.jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "out" / "rows.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [10, 20, 30]
    assert rows[0]["figure"] == "mine"
    assert f"accuracy {rows[-1]['accuracy_mean']:.2%}" in done.stdout
    assert "iteration 30 of 30" in done.stderr
    assert "left" in done.stderr


@pytest.mark.usefixtures("folder")
def test_the_command_says_once_that_peers_learn_alone_where_they_can_test_nothing() -> None:
    short = ["--set", "world.iterations=2", "--set", "rule.name=bristle"]
    alone = command("world.toml", *short, "--set", "partition.held_out=9", "--seeds", "2")
    assert alone.returncode == 0, alone.stderr
    said = [line for line in alone.stderr.splitlines() if "learn alone" in line]
    assert len(said) == 1
    assert said[0].startswith("bristle: all peers learn alone; too few held-out samples to test received heads")
    able = command("world.toml", *short)
    assert able.returncode == 0, able.stderr
    assert "alone" not in able.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_rows_and_a_checkpoint_that_goes_on_to_the_same_bytes(
    folder: Path, interrupted: Callable[..., str]
) -> None:
    long = ["world.toml", "--set", "world.iterations=600"]
    assert command(*long, "--json", "whole.jsonl").returncode == 0
    words = [*long, "--json", "rows.jsonl", "--checkpoint", "run.npz"]
    rows = folder / "rows.jsonl"
    errors = interrupted([*BRISTLE, "simulate", *words], lambda: rows.exists() and rows.stat().st_size > 0)
    assert "interrupted; the rows so far are in rows.jsonl and --resume continues from run.npz" in errors
    before = [json.loads(line) for line in rows.read_text().splitlines()]
    assert 0 < len(before) < 60
    refused = command(*words, "--resume", "--set", "world.seed=5")
    assert refused.returncode == 2
    assert "checkpoint of another configuration" in refused.stderr
    assert [json.loads(line) for line in rows.read_text().splitlines()] == before, "a refusal leaves the rows"
    assert command(*words, "--resume").returncode == 0
    assert rows.read_bytes() == (folder / "whole.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.toml"], "bristle: nowhere.toml: no such file"),
        (["mine.py"], "bristle: mine.py is not TOML"),
        (["world.toml", "--set", "world.peers=0"], "bristle: world.toml: world.peers"),
        (["world.toml", "--set", "partition.classes_per_peer=5"], "bristle: classes_per_peer must lie between 1 and 4"),
        (["world.toml", "--resume"], "bristle: --resume needs the checkpoint to continue from"),
        (["world.toml", "--set", "rule.name=broken:Rule"], "bristle: rule 'broken:Rule' cannot be created: KeyError"),
        (["world.toml", "--set", "data.dataset=nowhere.npz"], "bristle: nowhere.npz: no such file"),
    ],
)
def test_the_command_answers_mistakes_in_one_line(folder: Path, words: list[str], message: str) -> None:
    (folder / "broken.py").write_text("def Rule():\n    return {}['x']\n")
    done = command(*words, "--json", "rows.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


@pytest.mark.slow
def test_digits_are_learned_among_attackers(tmp_path: Path) -> None:
    config = {
        "world": {"attackers": 5, "iterations": 60},
        "data": {"train_samples": 12_000, "test_samples": 2_000},
        "attack": {"name": "label-flip"},
    }
    row = simulate(config).last()
    assert row["accuracy_mean"] > 0.92
    assert row["weight_malicious"] < 0.02
    assert np.isfinite(row["bytes_sent"])


def test_seeds_and_baselines_on_the_command_line(folder: Path) -> None:
    done = command("world.toml", "--seeds", "2", "--baselines", "--set", "world.iterations=10", "--json", "rows.jsonl")
    assert done.returncode == 0, done.stderr
    assert "95 % interval" in done.stdout
    assert "seeds 0, 1" in done.stdout
    assert "\nlocal: accuracy " in done.stdout
    assert "\noracle: accuracy " in done.stdout
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert [(row["rule"], row.get("seed")) for row in rows] == [
        *((rule, seed) for seed in (0, 1) for rule in ("local", "oracle", "bristle")),
        *((rule, None) for rule in ("local", "oracle", "bristle")),
    ]
    assert all(row["accuracy_low"] <= row["accuracy_mean"] <= row["accuracy_high"] for row in rows[6:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "--seeds must be 1 or more, not 0"),
        (["--seeds", "2", "--checkpoint", "run.npz"], "--checkpoint is for one run: leave it out, or run seeds one by"),
        (["--seeds", "2", "--decisions", "--json", "rows.jsonl"], "--decisions is for one run"),
    ],
)
def test_several_seeds_are_refused_in_one_line(words: list[str], message: str, folder: Path) -> None:
    done = command("world.toml", *words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"bristle: {message}")
    assert not (folder / "rows.jsonl").exists()
    assert not (folder / "run.npz").exists()
