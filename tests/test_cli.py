from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bristle
from bristle.cli import app

RUNNER = CliRunner()


def test_help_teaches() -> None:
    shown = RUNNER.invoke(app, ["--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    for word in ("demo", "simulate", "pretrain", "peer", "status", "Exit codes"):
        assert word in shown.output
    for command in ("demo", "simulate", "pretrain", "peer", "status"):
        shown = RUNNER.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        assert "Example: bristle" in shown.output


def test_version() -> None:
    assert RUNNER.invoke(app, ["--version"]).output.strip() == f"bristle {bristle.__version__}"


def test_pretrain_makes_a_backbone_a_card_and_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    images = (rng.integers(0, 60, (120, 20, 20)) + 60 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, y=labels)
    words = ["pretrain", str(tmp_path / "mine.npz"), "--out", str(tmp_path / "mine.onnx"), "--epochs", "1"]
    done = RUNNER.invoke(app, [*words, "--json", str(tmp_path / "rows.jsonl"), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mine.onnx").exists()
    assert "--epochs 1" in (tmp_path / "mine.md").read_text()
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows[0]["epoch"] == 1
    assert len(rows[-1]["digest"]) == 64


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "nowhere.npz", "--out", "x.onnx"], "nowhere.npz"),
        (["pretrain", "mnist", "--out", "x.pt"], "name it x.onnx"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words: list[str], message: str, complaint: Callable[..., str]) -> None:
    assert message in complaint(*words)


def test_the_command_line_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "bristle", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"bristle {bristle.__version__}"
