"""Runs after the fact: decisions where rows hold them, accuracy in any case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle.report.recorded import recorded_runs
from bristle.report.snapshot import Judgement, Member, MemberKind, RunState, Snapshot


def rows(rule: str, *, seed: int = 0, end: float = 0.9, **more: Any) -> list[dict[str, Any]]:
    common = {"figure": "mine", "rule": rule, "seed": seed, "peers": 4, "attack": "label-flip"}
    return [{**common, "iteration": at, "accuracy_mean": end * at / 20, "accuracy_min": 0.1, **more} for at in (10, 20)]


def test_references_are_drawn_beside_the_runs_of_their_seed() -> None:
    found = recorded_runs([*rows("krum"), *rows("krum", seed=1), *rows("local", end=0.4), *rows("oracle", end=0.95)])
    assert [(run.rule, run.subtitle[-6:]) for run in found] == [("krum", "seed 0"), ("krum", "seed 1")]
    first, second = found
    assert first.history == [(10, 0.45, 0.1, None), (20, 0.9, 0.1, None)]
    assert first.oracle == 0.95
    assert first.references == {"local": [(10, 0.2), (20, 0.4)]}
    assert second.oracle is None


def test_references_alone_are_runs() -> None:
    assert [run.rule for run in recorded_runs(rows("local"))] == ["local"]


def test_a_run_with_decisions_comes_first() -> None:
    last = Snapshot(
        title="t", subtitle="s", rule="bristle", state=RunState.ENDED, iteration=20, total=20, classes=("a",),
        members=(Member(name="peer 0", kind=MemberKind.BENIGN),),
        judgements=(Judgement(receiver=0, iteration=20, senders=[], reasons=[], weights=np.zeros((0, 1))),),
    )  # fmt: skip
    told = rows("bristle")
    told[-1]["snapshot"] = last.to_dict()
    found = recorded_runs([*rows("krum"), *told])
    assert [run.rule for run in found] == ["bristle", "krum"]
    assert found[0].to_dict() == last.to_dict()


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="no rows"):
        recorded_runs([])
