"""What a peer wrote while it ran, read after the fact."""

from __future__ import annotations

from typing import Any

import pytest

from bristle.report.recorded import check_peer_record, is_peer_record, rows_of_peer, run_of_peer
from bristle.report.snapshot import MemberKind
from bristle.rules.decision import Reason


def record(iteration: int, accuracy: float | None = None, *, heard: int = 0) -> dict[str, Any]:
    told = [
        {"sender": f"{number:040x}", "iteration": 3, "share": 0.25, "reason": "kept", "words": "kept"}
        for number in range(heard)
    ]
    return {"iteration": iteration, "at": 1.0, "seconds": 0.1, "heard": told, "trained": True, "accuracy": accuracy}


def test_it_is_told_from_rows_of_worlds() -> None:
    assert is_peer_record(record(1))
    assert not is_peer_record({"rule": "krum", "iteration": 1, "accuracy_mean": 0.5})
    check_peer_record(record(1, 0.5, heard=2))


def test_the_last_decision_and_the_measurements() -> None:
    records = [record(1), record(2, 0.5, heard=3), record(2, 0.6, heard=2), record(3, 0.7)]
    found = run_of_peer(records, name="mine")
    assert found.history == [(2, 0.6, None, None), (3, 0.7, None, None)], "an iteration done again counts once"
    assert [one.kind for one in found.members] == [MemberKind.OWN, MemberKind.UNKNOWN, MemberKind.UNKNOWN]
    (judgement,) = found.judgements
    assert judgement.iteration == 2
    assert judgement.weights.tolist() == [[0.25], [0.25]]
    assert list(judgement.reasons) == [Reason.KEPT, Reason.KEPT]
    assert [row["accuracy_mean"] for row in rows_of_peer(records, name="mine")] == [0.6, 0.7]
    assert run_of_peer([record(1)], name="alone").judgements == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"heard": [{}]},
        {"heard": 3},
        {"accuracy": "high"},
        {"accuracy": float("nan")},
        {"iteration": "one"},
        {"heard": [{**record(1, heard=1)["heard"][0], "reason": "mood"}]},
        {"heard": [{**record(1, heard=1)["heard"][0], "share": 7}]},
    ],
)
def test_what_is_no_record_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a row of a peer"):
        check_peer_record({**record(1), **wrong})
