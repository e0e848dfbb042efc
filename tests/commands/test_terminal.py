"""What is printed is text: brackets in advice, names and paths are no markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bristle
from bristle.cli import app
from bristle.commands import status
from bristle.commands.progress import patient_bar, terminal
from bristle.peer.status import ClassCount, NeighbourStatus, Status

ADVICE = "pip install '.[plots]' and bristle report out/[bold]/rows.jsonl"


def test_brackets_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    terminal().print(ADVICE, soft_wrap=True)
    terminal(stderr=True).print(ADVICE, soft_wrap=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ADVICE + "\n"


def test_a_status_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    held = ClassCount(name="[red]one[/]", training=1, held_out=2)
    status.show(
        Status(
            running=False,
            key_id="ab" * 20,
            application="[bold]digits",
            iteration=3,
            samples=(held,),
            counters={},
            bytes_last_day=0,
        )
    )
    printed = capsys.readouterr().out
    assert "[bold]digits" in printed
    assert "[red]one[/]: 1+2" in printed


def test_a_bar_shows_its_description_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with patient_bar("features of [bold]", console=terminal(stderr=True), patience=-1) as watch:
        watch(1, 2)
    assert "features of [bold]" in capsys.readouterr().err


def test_help_shows_the_extra_to_install() -> None:
    printed = CliRunner().invoke(app, ["pretrain", "--help"], env={"COLUMNS": "150"}).output
    assert "pip install '.[pretrain]'" in printed


def test_every_console_is_made_in_one_place() -> None:
    made = [
        path.name
        for path in Path(bristle.__file__).parent.rglob("*.py")
        if re.search(r"\bConsole\(|TextColumn\(\"[^\"]*description}\"\)", path.read_text(encoding="utf-8"))
    ]
    assert made == ["progress.py"]


def test_a_status_says_how_neighbours_are_reached(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    neighbours = (
        NeighbourStatus(key_id="aa" * 20, address="192.0.2.1:7700", silent=0.5),
        NeighbourStatus(key_id="bb" * 20, address="192.168.1.3:7700", silent=1.0, reached="locally"),
        NeighbourStatus(key_id="cc" * 20, address=None, silent=2.0, reached="forwarded", forwarder="aa" * 20),
    )
    counters = {"bytes_forwarded": 12_000}
    about = {"key_id": "ab" * 20, "application": "digits", "iteration": 3, "samples": (), "bytes_last_day": 0}
    status.show(Status(running=True, counters=counters, neighbours=neighbours, **about))  # type: ignore[arg-type]
    printed = capsys.readouterr().out
    assert "directly at 192.0.2.1:7700" in printed
    assert "locally at 192.168.1.3:7700" in printed
    assert "forwarded by aaaaaaaaaaaaaaaa" in printed
    assert "12.0 kB forwarded for others" in printed
