"""Snapshots: what goes through JSON comes back, what is too much is left out, and what is none is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.report.snapshot import (
    MOST_CLASSES,
    MOST_MEMBERS,
    MOST_POINTS,
    REASONS,
    Judgement,
    Member,
    MemberKind,
    RunState,
    Snapshot,
    read_snapshot,
    room_for,
    thinned,
)
from bristle.rules.decision import Reason


def snapshot(members: int = 3, classes: int = 4, *, seed: int = 0) -> Snapshot:
    rng = np.random.default_rng(seed)
    kinds = [MemberKind.BENIGN, MemberKind.MALICIOUS, MemberKind.UNKNOWN]
    return Snapshot(
        title="A <world>",
        subtitle="of three",
        rule="bristle",
        state=RunState.RUNNING,
        iteration=7,
        total=30,
        classes=tuple(f"class {number}" for number in range(classes)),
        members=tuple(
            Member(
                name=f"member {number}",
                kind=kinds[number % 3],
                holds=(0, classes - 1),
                iteration=7,
                accuracy=0.5,
                bytes_in=10,
                bytes_out=20,
                refused={"malformed": 2},
                hears=(0,),
            )
            for number in range(members)
        ),
        judgements=(
            Judgement(
                receiver=0,
                iteration=7,
                senders=list(range(1, members)),
                reasons=[int(Reason.KEPT)] * (members - 1),
                weights=rng.uniform(size=(members - 1, classes)) / members,
                unseen=1,
                class_words=rng.integers(0, 2, (members - 1, classes)),
            ),
        ),
        history=[(1, 0.1, 0.0, 0.2), (7, 0.5, None, None)],
        band="from here to there",
        oracle=0.9,
        references={"local": [(7, 0.3)]},
        left_out=2,
        unit="exchanges",
        phrases=("kept", "its mean of class 1 is 9 standard errors from mine"),
    )


@given(st.integers(2, 12), st.integers(1, 12), st.integers(0, 99))
def test_it_comes_back_from_json(members: int, classes: int, seed: int) -> None:
    first = snapshot(members, classes, seed=seed)
    text = json.dumps(first.to_dict(), allow_nan=False)
    again = read_snapshot(json.loads(text))
    assert again.to_dict() == first.to_dict()
    assert again.members == first.members
    np.testing.assert_allclose(again.judgements[0].weights, first.judgements[0].weights, atol=1e-5)
    assert again.judgements[0].class_words is not None
    np.testing.assert_array_equal(again.judgements[0].class_words, first.judgements[0].class_words)


def test_every_reason_has_its_place() -> None:
    assert [one["words"] for one in REASONS] == [Reason(code).words for code in range(len(REASONS))]


@given(st.integers(1, 100_000))
def test_a_message_is_small_whatever_the_world_is_like(classes: int) -> None:
    members = room_for(classes)
    assert 2 <= members <= MOST_MEMBERS
    assert members**2 * min(classes, MOST_CLASSES) <= 160_000


def test_of_many_classes_the_first_are_told() -> None:
    fields = snapshot(classes=MOST_CLASSES + 50).to_dict()
    assert len(fields["classes"]) == MOST_CLASSES
    assert fields["classes_left_out"] == 50
    assert fields["members"][0]["holds"] == [0], "a class that is not shown is not named"
    assert read_snapshot(fields).judgements[0].weights.shape == (2, MOST_CLASSES)


@given(st.integers(0, 5000))
def test_thinned_points_are_few_and_end_with_the_last(count: int) -> None:
    points = thinned([(at, 0.5) for at in range(count)])
    assert len(points) <= MOST_POINTS
    assert len(points) == count or count > MOST_POINTS
    assert not count or points[-1] == [count - 1, 0.5]


@pytest.mark.parametrize(
    "damage",
    [
        {"members": None},
        {"classes": 3},
        {"state": "asleep"},
        {"history": [[1, 2]]},
        {"history": [[1, float("nan"), None, None]]},
        {"oracle": "high"},
        {"judgements": [{"receiver": 9, "iteration": 1, "senders": [], "reasons": [], "weights": "", "unseen": 0}]},
        {"judgements": [{"receiver": 0, "iteration": 1, "senders": [1], "reasons": [0], "weights": "", "unseen": 0}]},
        {"judgements": [{"receiver": 0, "iteration": 1, "senders": [1], "reasons": [0], "weights": "!", "unseen": 0}]},
        {"judgements": [{"receiver": 0, "iteration": 1, "senders": [], "reasons": [99], "weights": "", "unseen": 0}]},
    ],
)
def test_what_is_no_snapshot_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_snapshot({**snapshot().to_dict(), **damage})


def test_what_lacks_a_part_is_refused() -> None:
    fields = snapshot().to_dict()
    for name in fields.keys() - {"unit", "phrases"}:  # Recordings of version 0.1 lack these.
        with pytest.raises(ValueError, match="cannot be read"):
            read_snapshot({key: value for key, value in fields.items() if key != name})


def test_too_many_members_are_refused() -> None:
    first = snapshot()
    many = replace(first, members=first.members * MOST_MEMBERS)
    with pytest.raises(ValueError, match="at most"):
        read_snapshot(many.to_dict())
