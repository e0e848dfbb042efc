"""`bristle report`: from a simulated world to a page, and what is said about files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bristle import simulate
from bristle.cli import main

GOOD = json.dumps({"rule": "krum", "iteration": 10, "accuracy_mean": 0.5})


def run(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr("sys.argv", ["bristle", "report", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_a_simulated_world_on_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "cache"))
    files = []
    for rule in ("bristle", "fedavg"):
        world = {
            "world": {"peers": 4, "attackers": 2, "iterations": 20, "figure": "tiny"},
            "data": {"train_samples": 1500, "test_samples": 200},
            "attack": {"name": "label-flip"},
            "rule": {"name": rule},
        }
        files.append(tmp_path / f"{rule}.jsonl")
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in simulate(world).rows))
    assert run(monkeypatch, *files, "--out", tmp_path / "out", "--title", "Tiny & mine") == 0
    assert capsys.readouterr().out.strip().endswith("report.html, run.html and 2 figure files beside it")
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["report.html", "run.html", "tiny.png", "tiny.svg"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for words in ("<h1>Tiny &amp; mine</h1>", "label-flip", "bristle.jsonl, fedavg.jsonl", "2 runs of 2 rules"):
        assert words in page


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{GOOD}\nnot json\n{GOOD}\n", "rows.jsonl line 2 is not JSON"),
        ("[1, 2]\n", "rows.jsonl line 1 must be an object"),
        (f'{GOOD}\n\n{{"rule": "krum"}}\n', "rows.jsonl line 3: a row lacks iteration, accuracy_mean"),
        (GOOD.replace("0.5", "NaN") + "\n", "line 1: accuracy_mean must be a number, and is nan"),
        ("", "no rows"),
        ("\udcff\udcfe", "is not a text file"),
    ],
)
def test_bad_files_are_one_line_and_exit_code_2(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert run(monkeypatch, file, "--out", tmp_path / "out") == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("bristle: ")
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_no_such_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, tmp_path / "none.jsonl") == 2
    assert "none.jsonl is not a file" in capsys.readouterr().err


def test_a_last_line_cut_short_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{GOOD}\n{GOOD[:20]}")
    assert run(monkeypatch, file, "--out", tmp_path / "out") == 0
    assert "line 2 was cut short and is left out" in capsys.readouterr().err
    assert (tmp_path / "out" / "report.html").exists()


def test_what_a_peer_wrote_is_a_results_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = {"sender": "ab" * 20, "iteration": 2, "share": 0.5, "reason": "kept", "words": "kept"}
    record = {"iteration": 3, "at": 1.0, "seconds": 0.1, "heard": [heard], "trained": True, "accuracy": None}
    file = tmp_path / "peer.jsonl"
    file.write_text(json.dumps({**record, "shared": True}) + "\n")
    assert run(monkeypatch, file, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out" / "run.html"), "no accuracy: nothing to compare"
    assert "abababab" in (tmp_path / "out" / "run.html").read_text(encoding="utf-8")
