"""Runs, their rows, their pictures, and checkpoints."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bristle import attacks, rules
from bristle.data import partitions
from bristle.simulation import Asynchrony, FeatureData, RandomNeighbours, Results, Round, Scenario, World, run
from bristle.simulation.population import class_counts
from bristle.simulation.results import attack_name, rule_name
from bristle.simulation.run import Watch

PLAIN = Scenario(peers=4, classes_per_peer=3, iterations=25)
HARD = Scenario(
    peers=6,
    attackers=2,
    attack=attacks.create("dissensus"),
    classes_per_peer=3,
    iterations=20,
    topology=RandomNeighbours(k=3, redraw=True),
    user_shift=0.1,
    asynchrony=Asynchrony(slow=0.4, period=3, late=0.2, join_by=5, leaving=0.4, away=3, loss=0.3, delay=(0, 2)),
)


def stopped_after(iterations: int) -> Watch:
    left = iter(range(iterations))
    return Watch(stop=lambda: next(left, None) is None)


def test_rows_are_as_promised(data: FeatureData) -> None:
    results = run(PLAIN, data, figure="mine")
    assert [row["iteration"] for row in results.rows] == [10, 20, 25]
    assert list(results.rows[0])[:12] == [
        "figure", "rule", "attack", "peers", "attackers", "classes_per_peer", "samples_per_class", "seed", "iteration",
        "accuracy_mean", "accuracy_min", "bytes_sent",
    ]  # fmt: skip
    last = results.last()
    assert last == results.rows[-1]
    assert (last["figure"], last["rule"], last["attack"], last["peers"]) == ("mine", "bristle", "none", 4)
    assert (last["classes_per_peer"], last["samples_per_class"]) == (3, 2)
    assert last["accuracy_min"] <= last["accuracy_mean"]
    assert len(last["accuracy_per_class"]) == 6
    assert json.loads(json.dumps(last, allow_nan=False)) == last
    with pytest.raises(ValueError, match="there are no rows"):
        Results().last()


def test_rows_say_what_a_partition_made(data: FeatureData) -> None:
    shards = partitions.create("dirichlet", alpha=0.3, samples=3)
    row = run(replace(PLAIN, partition=shards, iterations=1), data).last()
    assert 1 <= row["classes_per_peer"] <= 6
    assert row["classes_per_peer"] * row["samples_per_class"] == pytest.approx(18)


def test_names() -> None:
    nnm = rules.NearestNeighbourMixing(f=1)
    assert rule_name(rules.chain(nnm, rules.Krum(f=1))) == "nearest-neighbour-mixing+krum"
    assert all(rule_name(rules.create(name)) == name for name in rules.names())
    assert all(attack_name(attacks.create(name)) == name for name in attacks.names())

    class Mine(rules.FedAvg):
        pass

    assert rule_name(Mine()) == "Mine"


def test_watchers_are_told(data: FeatureData) -> None:
    rows: list[Any] = []
    iterations: list[int] = []
    rounds: list[Round] = []
    measured: list[int] = []
    run(
        PLAIN,
        data,
        every=7,
        watch=Watch(
            row=rows.append,
            iteration=iterations.append,
            decisions=rounds.append,
            measurement=lambda iteration, found: measured.append(iteration),
        ),
    )
    assert [row["iteration"] for row in rows] == measured == [7, 14, 21, 25]
    assert iterations == list(range(1, 26))
    assert [latest.iteration for latest in rounds] == iterations
    assert rounds[-1].decision.explain((0, 0))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.integers(0, 19),
    st.sampled_from(["none", "additive-noise", "dissensus", "stale", "alie"]),
    st.sampled_from(
        [HARD, replace(HARD, asynchrony=Asynchrony(), topology=PLAIN.topology), replace(HARD, attackers=0)]
    ),
)
def test_a_run_taken_up_again_is_the_same_to_the_bit(
    data: FeatureData, tmp_path: Path, iterations: int, attack: str, scenario: Scenario
) -> None:
    scenario = replace(scenario, attack=attacks.create(attack))
    whole, cut = tmp_path / "whole.npz", tmp_path / "cut.npz"
    expected = run(scenario, data, every=3, checkpoint=whole)
    with pytest.raises(KeyboardInterrupt):
        run(scenario, data, every=3, checkpoint=cut, watch=stopped_after(iterations))
    told: list[Any] = []
    found = run(scenario, data, every=3, checkpoint=cut, resume=True, watch=Watch(row=told.append))
    assert json.dumps(found.rows) == json.dumps(expected.rows) == json.dumps(told)
    with np.load(whole, allow_pickle=False) as first, np.load(cut, allow_pickle=False) as second:
        assert sorted(first.files) == sorted(second.files)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first.files)
    assert run(scenario, data, every=3, checkpoint=cut, resume=True).rows == expected.rows, "a finished run stays"


def test_checkpoints_of_other_runs_are_refused(data: FeatureData, tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    run(PLAIN, data, checkpoint=path)
    before = path.read_bytes()
    others: list[tuple[Scenario, FeatureData, int]] = [
        (replace(PLAIN, seed=1), data, 10),
        (replace(PLAIN, rule=rules.Krum(f=1)), data, 10),
        (PLAIN, replace(data, test=data.test + 1), 10),
        (PLAIN, data, 5),
    ]
    for scenario, samples, every in others:
        with pytest.raises(ValueError, match="checkpoint of another configuration"):
            run(scenario, samples, every=every, checkpoint=path, resume=True)
    assert path.read_bytes() == before


def test_checkpoints_that_are_none(data: FeatureData, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        run(PLAIN, data, checkpoint=tmp_path / "nothing.npz", resume=True)
    with pytest.raises(ValueError, match="resume needs the checkpoint"):
        run(PLAIN, data, resume=True)
    for content in (b"", b"nonsense", b"PK\x03\x04 cut off"):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz is not a checkpoint"):
            run(PLAIN, data, checkpoint=tmp_path / "bad.npz", resume=True)


def test_a_picture(data: FeatureData, tmp_path: Path) -> None:
    rows = [run(replace(PLAIN, seed=seed), data).rows for seed in (0, 1)]
    figure = Results([*rows[0], *rows[1]]).plot(title="Mine")
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [10, 20, 25]  # type: ignore[union-attr]
    assert line.get_ydata()[-1] == np.mean([part[-1]["accuracy_mean"] for part in rows])  # type: ignore[index]
    assert str(line.get_label()).endswith("2 seeds")
    figure.savefig(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000
    assert figure._repr_png_().startswith(b"\x89PNG\r\n")  # type: ignore[attr-defined]  # as a notebook asks


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match="install the extra 'plots' of bristle"):
        Results().plot()


def test_runs_that_cannot_be_told_apart_are_not_drawn_as_one() -> None:
    row = {"figure": "", "rule": "bristle", "attack": "none", "seed": 0, "iteration": 10}
    measured = {"accuracy_mean": 0.9, "accuracy_min": 0.8}
    with pytest.raises(ValueError, match=r"two runs have the same label 'bristle, attack: none, seed 0'"):
        Results([{**row, **measured}, {**row, **measured}]).plot()
    figure = Results([{**row, **measured}, {**row, **measured, "figure": "ring"}]).plot()
    assert [line.get_label() for line in figure.axes[0].lines] == [
        "bristle, attack: none, seed 0",
        "ring: bristle, attack: none, seed 0",
    ]


@pytest.mark.parametrize(
    ("held_out", "options", "words"),
    [
        (9, {}, "all peers learn alone; .* the rule needs 10 held-out samples of a class, the most of any class is 9"),
        (0, {}, "all peers learn alone; .* the most of any class is 0"),
        (9, {"kappa": 9}, None),
    ],
)
def test_peers_that_can_test_nothing_are_named_once(
    data: FeatureData, held_out: int, options: dict[str, Any], words: str | None
) -> None:
    notes: list[str] = []
    scenario = replace(PLAIN, held_out=held_out, iterations=3, rule=rules.create("bristle", **options))
    run(scenario, data, watch=Watch(note=notes.append))
    assert len(notes) == (words is not None)
    assert words is None or re.search(words, notes[0])


def test_without_a_callback_notes_are_logged(data: FeatureData, caplog: pytest.LogCaptureFixture) -> None:
    run(replace(PLAIN, held_out=3, iterations=1), data)
    assert "all peers learn alone" in caplog.text


def test_some_peers_that_learn_alone_are_counted() -> None:
    rule = rules.create("bristle", kappa=2)
    assert rules.learns_alone(rule, [[2, 0], [1, 1], [0, 0]]) == (
        "2 of 3 peers learn alone; too few held-out samples to test received heads: "
        "the rule needs 2 held-out samples of a class, the most of any class is 1"
    )
    assert str(rules.learns_alone(rule, [1, 1])).startswith("this peer learns alone until it has more data; ")
    assert rules.learns_alone(rules.create("fedavg"), [0, 0]) is None


def test_claims_need_as_many_samples_as_the_rule(data: FeatureData) -> None:
    scenario = replace(PLAIN, held_out=12, rule=rules.create("bristle", kappa=8), partition=None)
    uneven = partitions.create("dirichlet", alpha=0.5, samples=3, held_out=12, reuse=True)
    for chosen in (scenario, replace(scenario, partition=uneven)):
        world = World(chosen, data)
        counts = world.population.held_out_counts(6)
        claims = world.population.claims(6, chosen.rule)
        assert (claims == ((counts >= 8) & (class_counts(world.held, 6) > 0))).all()
        assert claims.any()


def test_checkpoints_of_another_format_are_refused(data: FeatureData, tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    run(PLAIN, data, checkpoint=path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    about = {**json.loads(bytes(arrays["about"]).decode()), "format": 1}
    np.savez(path, **{**arrays, "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)})
    with pytest.raises(ValueError, match=r"another version of Bristle \(checkpoint format 1, this one reads 2\)"):
        run(PLAIN, data, checkpoint=path, resume=True)
