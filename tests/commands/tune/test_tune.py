from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bristle import simulate
from bristle._core.extras import to_install
from bristle.commands.tune import Trial, TuningProgress, search_of, tune
from bristle.simulation.config import read
from bristle.simulation.experiment import Experiment, prepare_experiment

BRISTLE = [sys.executable, "-W", "error", "-c", "from bristle.cli import main; main()"]
WORLD = """
[world]
peers = 4
attackers = 3
iterations = 8
seed = 5

[data]
dataset = "blobs:blobs"
backbone = "blobs:same"

[partition]
classes_per_peer = 3
held_out = 4

[rule]
kappa = 4

[attack]
name = "label-flip"
"""


class StoppedError(Exception):
    pass


@pytest.fixture
def folder(own_folder: Callable[..., Path]) -> Path:
    return own_folder(WORLD, samples=800, train=600, features=8, apart=30, noise=40)


@pytest.fixture
def experiment(folder: Path) -> Experiment:
    return prepare_experiment(folder / "world.toml")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*BRISTLE, "tune", *words], capture_output=True, text=True, timeout=2400, check=False)


def test_the_first_trial_is_the_file_as_it_is_and_the_best_is_what_simulate_measures(
    experiment: Experiment, tmp_path: Path
) -> None:
    tuned = tune(search_of(experiment, trials=3, seeds=2), tmp_path / "out")
    assert tuned.given.config == experiment.config
    assert len(tuned.trials) == 3
    assert [trial.number for trial in tuned.trials] == list(range(3))
    assert tuned.best.accuracy == max(trial.accuracy for trial in tuned.trials if not trial.pruned)
    for trial, checked in zip((tuned.given, tuned.best), tuned.checked, strict=True):
        again = [simulate(trial.config, overrides=[f"world.seed={seed}"]).last()["accuracy_mean"] for seed in (5, 6)]
        assert list(trial.accuracies) == again
        new = [simulate(trial.config, overrides=[f"world.seed={seed}"]).last()["accuracy_mean"] for seed in (7, 8)]
        assert checked == pytest.approx(sum(new) / 2)
    tried = {json.dumps(trial.config.rule.model_dump()) for trial in tuned.trials}
    assert len(tried) == 3


def test_trials_behind_the_median_are_given_up_and_never_best(experiment: Experiment, tmp_path: Path) -> None:
    tuned = tune(search_of(experiment, trials=10, seeds=2), tmp_path / "out")
    pruned = [trial for trial in tuned.trials if trial.pruned]
    assert pruned
    assert all(len(trial.accuracies) == 1 for trial in pruned)
    assert all(len(trial.accuracies) == 2 for trial in tuned.trials if not trial.pruned)
    assert not tuned.best.pruned


def test_an_interrupted_search_goes_on_to_the_same_result(experiment: Experiment, tmp_path: Path) -> None:
    search = search_of(experiment, parameters=["alpha", "foreign"], trials=4, seeds=2)
    whole = tune(search, tmp_path / "whole")
    for stop_at in (1, 10, 30):  # iterations of 8 a world: in the first trial, within seeds and between
        done = 0

        def count(stop_at: int = stop_at) -> None:
            nonlocal done
            done += 1
            if done == stop_at:
                raise StoppedError

        with pytest.raises(StoppedError):
            tune(search, tmp_path / "parts", progress=TuningProgress(iteration=count))
    kept: list[Trial] = []
    parts = tune(search, tmp_path / "parts", progress=TuningProgress(begin=kept.extend))
    assert kept, "what was finished before was kept"
    assert parts == whole
    more = search_of(experiment, parameters=["alpha", "foreign"], trials=5, seeds=2)
    assert tune(more, tmp_path / "parts").trials[:4] == whole.trials


def test_finished_worlds_of_an_interrupted_trial_are_not_run_again(experiment: Experiment, tmp_path: Path) -> None:
    search = search_of(experiment, parameters=["eta"], trials=1, seeds=3)
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == 20:  # in the third world
            raise StoppedError

    with pytest.raises(StoppedError):
        tune(search, tmp_path, progress=TuningProgress(iteration=count))
    done = 100
    tune(search, tmp_path, progress=TuningProgress(iteration=count))
    assert done == 100 + 8 + 3 * 8, "the third world, and the three with new seeds"


def test_another_search_or_a_damaged_file_is_refused(experiment: Experiment, tmp_path: Path) -> None:
    tune(search_of(experiment, parameters=["alpha"], trials=1, seeds=1), tmp_path)
    with pytest.raises(ValueError, match="another world, other data, parameters or seeds"):
        tune(search_of(experiment, parameters=["beta"], trials=1, seeds=1), tmp_path)
    (tmp_path / "study.sqlite").write_bytes(b"no database, whatever its name says" * 100)
    with pytest.raises(ValueError, match="not a study, or is damaged"):
        tune(search_of(experiment, parameters=["alpha"], trials=1, seeds=1), tmp_path)


def test_a_folder_serves_one_search_at_a_time(experiment: Experiment, tmp_path: Path) -> None:
    search = search_of(experiment, parameters=["alpha"], trials=1, seeds=1)

    def intrude() -> None:
        with pytest.raises(ValueError, match="already running in"):
            tune(search, tmp_path)
        raise StoppedError

    with pytest.raises(StoppedError):
        tune(search, tmp_path, progress=TuningProgress(iteration=intrude))
    assert len(tune(search, tmp_path).trials) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "--trials must be at least 1, not 0"),
        ({"seeds": 0}, "--seeds must be at least 1, not 0"),
        ({"seed": -1}, "--seed must be 0 or more, not -1"),
        ({"parameters": ["alfa"]}, "no such parameter; did you mean 'alpha'"),
        ({"parameters": ["omega"]}, "familiar and foreign"),
    ],
)
def test_what_cannot_be_searched_is_refused(experiment: Experiment, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search_of(experiment, **options)  # type: ignore[arg-type]


def test_the_command_writes_what_simulate_takes(folder: Path) -> None:
    words = [
        "world.toml",
        "--trials",
        "3",
        "--seeds",
        "1",
        "--set",
        "world.iterations=5",
        "--parameters",
        "eta,foreign",
    ]
    done = command(*words, "--out", "found", "--json", "rows.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 trials, ")
    assert "as given" in done.stdout
    assert "with new seeds" in done.stdout
    assert "trial 3 of 3: best " in done.stderr
    assert "iterations/s, " in done.stderr
    assert "left" in done.stderr
    assert "Trial" not in done.stderr, "Optuna's own log"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert [row["trial"] for row in rows] == [0, 1, 2]
    assert rows[0]["eta"] == 10
    best = max(rows, key=lambda row: row["accuracy_mean"])
    found = read(folder / "found" / "tuned-world.toml")
    assert found.rule.options["eta"] == best["eta"]
    assert found.rule.options["kappa"] == 4
    assert found.world.iterations == 5
    assert simulate(folder / "found" / "tuned-world.toml").last()["accuracy_mean"] == best["accuracy_mean"]
    again = command(*words, "--out", "found", "--json", "again.jsonl")
    assert "continuing after 3 finished trials" in again.stderr
    assert again.stdout == done.stdout
    assert (folder / "again.jsonl").read_bytes() == (folder / "rows.jsonl").read_bytes()


def test_ctrl_c_says_how_to_go_on(folder: Path, interrupted: Callable[..., str]) -> None:
    words = ["world.toml", "--trials", "500", "--seeds", "1", "--out", "found", "--json", "rows.jsonl"]
    rows, best = folder / "rows.jsonl", folder / "found" / "tuned-world.toml"
    errors = interrupted(
        [*BRISTLE, "tune", *words], lambda: best.exists() and rows.exists() and rows.stat().st_size > 0
    )
    assert "interrupted; finished trials are in found, and the same command continues from there" in errors
    assert read(best).rule.options["kappa"], "the best so far is there"
    kept = len(rows.read_text().splitlines())
    words[words.index("500")] = str(kept + 1)
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert f"{kept + 1} trials" in done.stdout


def test_without_the_extra_one_line_says_what_to_install(folder: Path) -> None:
    code = "import sys; sys.modules['optuna'] = None; from bristle.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "tune", "world.toml"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"bristle: bristle tune needs Optuna: {to_install('tune')}\n"
    assert not (folder / "tuning").exists()
