"""Runs of one rule with other settings in one panel: every label says what differs, and only that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle.report import LineKind, report_of
from bristle.report.recorded import recorded_runs
from bristle.report.snapshot import Judgement, Member, MemberKind, RunState, Snapshot

Row = dict[str, Any]


def rows(end: float, settings: dict[str, str] | None, *, rule: str = "bristle", **more: Any) -> list[Row]:
    about = {"figure": "mine", "rule": rule, "attack": "alie", "peers": 6, "seed": 0, "settings": settings}
    return [about | {"iteration": at, "accuracy_mean": end * at / 20} | more for at in (10, 20)]


def labels(*runs: list[Row]) -> list[str]:
    (panel,) = report_of([row for run in runs for row in run]).sections[0].panels
    return [line.label for line in panel.lines]


def test_options_and_topologies_get_a_line_each() -> None:
    common = {"data.train_samples": "9000"}
    found = labels(
        rows(0.9, common),
        rows(0.8, {**common, "rule.alpha": "0.2"}),
        rows(0.7, {**common, "rule.alpha": "0.2", "topology.name": "ring", "topology.reach": "2"}),
        rows(0.6, {"rule.f": "1"}, rule="krum"),
    )
    assert set(found) == {
        "bristle",
        "bristle (alpha 0.2)",
        "bristle (alpha 0.2, topology ring, topology reach 2)",
        "krum",
    }


def test_what_others_are_held_against_stays_what_it_is() -> None:
    made = [*rows(0.9, {}), *rows(0.5, {"topology.name": "ring"}, rule="local"), *rows(0.4, {}, rule="local")]
    (panel,) = report_of(made).sections[0].panels
    assert [(line.label, line.kind) for line in panel.lines] == [
        ("bristle", LineKind.RULE),
        ("local", LineKind.REFERENCE),
        ("local (topology ring)", LineKind.REFERENCE),
    ]


def test_seeds_share_a_line_and_panels_stay_apart() -> None:
    fast = {"rule.alpha": "0.2"}
    report = report_of(
        [*rows(0.9, {}), *rows(0.8, fast), *rows(0.7, fast, seed=1), *rows(0.6, {"rule.alpha": "0.3"}, peers=8)]
    )
    first, second = report.sections[0].panels
    assert {line.label: line.low is not None for line in first.lines} == {"bristle": False, "bristle (alpha 0.2)": True}
    assert [line.label for line in second.lines] == ["bristle"]
    assert ("Rows", "8") in report.facts


def test_what_nobody_said_cannot_be_told_apart() -> None:
    assert labels(rows(0.9, None), rows(0.9, {})) == ["bristle"]
    with pytest.raises(ValueError, match="differently"):
        labels(rows(0.9, None), rows(0.8, None))


def test_every_run_has_its_label_on_the_page() -> None:
    last = Snapshot(
        title="t", subtitle="6 peers, rule: bristle, seed 0", rule="bristle", state=RunState.ENDED, iteration=20,
        total=20, classes=("a",), members=(Member(name="peer 0", kind=MemberKind.BENIGN),),
        judgements=(Judgement(receiver=0, iteration=20, senders=[], reasons=[], weights=np.zeros((0, 1))),),
    )  # fmt: skip
    told = rows(0.8, {"rule.alpha": "0.2"})
    told[-1]["snapshot"] = last.to_dict()
    found = recorded_runs([*rows(0.9, {}), *told])
    assert [run.rule for run in found] == ["bristle (alpha 0.2)", "bristle"]
    assert found[0].subtitle == "6 peers, rule: bristle (alpha 0.2), seed 0"


@pytest.mark.parametrize("settings", ["alpha", ["alpha"], {"alpha": 0.2}, 3])
def test_settings_are_texts(settings: Any) -> None:
    with pytest.raises(ValueError, match="settings must be an object of texts"):
        report_of(rows(0.9, settings))
