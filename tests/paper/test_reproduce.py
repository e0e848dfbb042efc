"""Reproducing: the same bytes whoever runs it, nothing lost, nothing run twice, and mistakes said first."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bristle import simulate
from bristle.backbones import bundled
from bristle.paper import RunTask, entries, tasks
from bristle.paper.report import findings_of, report_of, said
from bristle.paper.reproduce import (
    COLUMNS,
    QUICK,
    Reproduction,
    ReproductionProgress,
    contender,
    reproduce,
    wanted_of,
    write_rows,
)
from bristle.rules import Local
from bristle.simulation import FeatureData
from bristle.simulation.build import make_data, scenario_of
from bristle.simulation.config import DataSection, read
from bristle.simulation.population import populate

COMMAND = [sys.executable, "-c", "from bristle.cli import main; main()", "reproduce"]
SMALL = ("bristle", "bridge", "local")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False)


def small(
    out: Path, engine: str = "local", progress: ReproductionProgress | None = None
) -> tuple[Reproduction, dict[str, bytes]]:
    wanted = wanted_of(["intro"], rules=SMALL, quick=True)
    assert engine in ("local", "ray")
    made = reproduce(wanted, out, engine="ray" if engine == "ray" else "local", processes=2, progress=progress)
    write_rows(made, out)
    return made, {name: (out / name).read_bytes() for name in ("rows.jsonl", "rows.csv")}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduction, dict[str, bytes]]:
    out = tmp_path_factory.mktemp("first")
    return (out, *small(out))


def test_quick_worlds_have_samples_enough() -> None:
    wanted = wanted_of(quick=True)
    dataset, _ = make_data(DataSection(train_samples=wanted.size.train_samples), backbone=bundled())
    data = FeatureData.labels_only(dataset.y_train, dataset.classes)
    worlds = {replace(scenario_of(read(task.config)), rule=Local()) for task in tasks(entries(wanted))}
    assert len(worlds) > 10
    for world in worlds:
        populate(world, data)  # raises if there are too few


def test_rows_are_tidy(first: tuple[Path, Reproduction, dict[str, bytes]]) -> None:
    _, _, files = first
    rows = [json.loads(line) for line in files["rows.jsonl"].decode().splitlines()]
    assert [row["iteration"] for row in rows] == [10, 20, 30, 40, 50] * 3 + [50]
    assert list(dict.fromkeys(row["rule"] for row in rows)) == [*SMALL, "oracle"]
    assert {(row["figure"], row["panel"], row["attack"], row["peers"], row["attackers"]) for row in rows} == {
        ("intro", "10+7", "label-flip", 10, 7)
    }
    table = list(csv.DictReader(files["rows.csv"].decode().splitlines()))
    assert tuple(table[0]) == COLUMNS
    assert [float(row["accuracy_mean"]) for row in table] == [row["accuracy_mean"] for row in rows]


def test_the_same_seed_gives_the_same_bytes(first: tuple[Path, Reproduction, dict[str, bytes]], tmp_path: Path) -> None:
    assert small(tmp_path)[1] == first[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
def test_ray_gives_the_same_bytes(first: tuple[Path, Reproduction, dict[str, bytes]], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    assert small(tmp_path, "ray")[1] == first[2]


def test_a_declared_world_is_what_simulate_runs(first: tuple[Path, Reproduction, dict[str, bytes]]) -> None:
    """One world, run here by the other command: to the bit where the threads are as many, near it elsewhere."""
    line = next(line for line in entries(first[1].wanted) if line.label == "bristle")
    ours = [row for row in first[1].rows if row["rule"] == "bristle"]
    theirs = simulate(line.task.config).rows
    assert [row["iteration"] for row in ours] == [row["iteration"] for row in theirs]
    np.testing.assert_allclose(
        [row["accuracy_mean"] for row in ours], [row["accuracy_mean"] for row in theirs], atol=2e-3
    )


def test_what_is_finished_is_not_run_again(first: tuple[Path, Reproduction, dict[str, bytes]]) -> None:
    out, made, files = first
    began: list[tuple[int, int]] = []
    told = ReproductionProgress(begin=lambda missing, finished: began.append((len(missing), finished)))
    again, bytes_again = small(out, progress=told)
    assert began == [(0, 4)]
    assert (again.rows, bytes_again) == (made.rows, files)


def test_what_is_missing_is_run(first: tuple[Path, Reproduction, dict[str, bytes]], tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    kept = sorted((first[0] / "runs").iterdir())
    for path in kept[:2]:
        (tmp_path / "runs" / path.name).write_bytes(path.read_bytes())
    missing: list[RunTask] = []
    ticked: set[int] = set()
    done: list[int] = []
    told = ReproductionProgress(
        begin=lambda some, finished: missing.extend(some), tick=lambda n, i: ticked.add(n), done=done.append
    )
    assert small(tmp_path, progress=told)[1] == first[2]
    assert len(missing) == 2
    assert sorted(done) == [0, 1]


def test_a_report_is_made_of_it(first: tuple[Path, Reproduction, dict[str, bytes]]) -> None:
    report = report_of(first[1])
    (section,) = report.sections
    labels = {(line.label, str(line.kind)) for line in section.panels[0].lines}
    assert labels == {
        ("bristle", "rule"), ("bridge", "rule"), ("local", "reference"), ("oracle", "reference"), ("bristle", "author"),
    }  # fmt: skip
    assert ("numpy", np.__version__) in report.facts
    assert all(finding.held is None for finding in findings_of(first[1]))  # too short to judge
    assert said(findings_of(first[1])) == ["1 claims were not measured in this run"]


def test_evidence_is_a_flat_line_and_takes_the_same_columns(tmp_path: Path) -> None:
    made = reproduce(wanted_of(["intro"], rules=["evidence", "local"], quick=True), tmp_path / "one", processes=1)
    rows = [row for row in made.rows if row["rule"] == "evidence"]
    assert [row["iteration"] for row in rows] == [10, 20, 30, 40, 50]
    assert len({row["accuracy_mean"] for row in rows}) == 1
    assert set(rows[0]) == set(next(row for row in made.rows if row["rule"] == "local"))
    again = reproduce(wanted_of(["intro"], rules=["evidence"], quick=True), tmp_path / "two", processes=2)
    assert [row for row in again.rows if row["rule"] == "evidence"] == rows
    (section,) = report_of(made).sections
    assert "evidence" in {line.label for line in section.panels[0].lines}


def test_the_speed_of_evidence_is_that_of_a_decision(tmp_path: Path) -> None:
    made = reproduce(wanted_of(["speed"], rules=["evidence"], quick=True), tmp_path, processes=1)
    times = [row["milliseconds"] for row in made.others()]
    assert len(times) == len({row["connected"] for row in made.others()}) == 8
    assert times[-1] > times[0] > 0


def test_formulas_need_no_run(tmp_path: Path) -> None:
    made = reproduce(wanted_of(["traffic", "curves"]), tmp_path)
    assert made.rows == ()
    report = report_of(made)
    assert [section.name for section in report.sections] == ["traffic", "curves"]
    shares = report.sections[1].panels[0].lines
    assert np.allclose(np.sum([line.y for line in shares], axis=0), 1)
    (finding,) = report.sections[0].findings
    assert finding.held is False


def test_distances_and_speed_are_measured(tmp_path: Path) -> None:
    made = reproduce(wanted_of(["distances", "speed"], rules=["fedavg"], quick=True), tmp_path, processes=2)
    distances = {(row["attack"], row["model"]): row["distance"] for row in made.rows if "model" in row}
    assert {attack for attack, _ in distances} == {"label-flip", "additive-noise", "krum", "trimmed-mean"}
    flip = {model: value for (attack, model), value in distances.items() if attack == "label-flip"}
    assert 0 < flip["3 classes shared"] < flip["0 classes shared"]
    times = [row["milliseconds"] for row in made.rows if "connected" in row]
    assert len(times) == 8
    assert all(value > 0 for value in times)
    write_rows(made, tmp_path)
    assert len((tmp_path / "measurements.jsonl").read_text().splitlines()) == len(made.rows)
    assert [section.name for section in report_of(made).sections] == ["distances", "speed"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["intor"], "there is no figure 'intor'; did you mean 'intro'?"),
        (["--rules", "bristel"], "there is no rule 'bristel'; did you mean 'bristle'?"),
        (["--rules", "krum,"], "there is no rule ''"),
        (["--rules", "nowhere:rule", "intro"], "there is no module 'nowhere'"),
        (["--seeds", "0"], "--seeds must be at least 1, not 0"),
        (["intro", "--address", "auto"], "add --engine ray"),
    ],
)
def test_mistakes_are_said_in_a_line_before_anything_is_run(words: list[str], said: str, tmp_path: Path) -> None:
    done = run(*words, "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_list_counts_shared_runs_once() -> None:
    done = run("--list", "attackers", "degree", "--rules", "bristle", "--seeds", "2")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["attackers", "12", "12", "12"] in [words[:4] for words in lines]
    assert ["degree", "13", "12", "8"] in [words[:4] for words in lines]
    assert f"{len(tasks(entries(wanted_of(['attackers', 'degree'], rules=['bristle'], seeds=2))))} runs" in done.stdout


def test_contenders_by_label_by_rule_and_by_module() -> None:
    assert contender("bridge").rule == "trimmed-mean"
    assert contender("trimmed-mean").label == "trimmed-mean"
    assert contender("bristle-cubic").options == {"score": "cubic"}
    assert contender("bristle.rules:Krum").rule == "bristle.rules:Krum"


def test_sizes() -> None:
    assert (wanted_of().seeds, wanted_of().size.iterations, wanted_of().size.test_samples) == (3, 300, None)
    assert (wanted_of(quick=True).seeds, wanted_of(quick=True).size) == (1, QUICK)
    assert {figure.name for figure in wanted_of(full=True).figures} - {
        figure.name for figure in wanted_of().figures
    } == {"red-team"}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
def test_an_interruption_loses_nothing_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = [*COMMAND, "intro", "--rules", "bristle,fedavg,krum,mozi", "--quick", "--out", str(tmp_path)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    runs = tmp_path / "runs"
    deadline = time.monotonic() + 200
    while not (runs.exists() and any(runs.glob("*.json"))) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues from there" in stderr
    assert "Traceback" not in stderr
    finished = len(list(runs.glob("*.json")))
    assert finished >= 1
    assert not (tmp_path / "rows.jsonl").exists()
    again = run(*words[len(COMMAND) :])
    assert again.returncode == 0
    assert f"{finished} done before" in again.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "intro.png").read_bytes()[:4] == b"\x89PNG"
