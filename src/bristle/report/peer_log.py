"""What `bristle peer --json` wrote, after the fact: the accuracy of one peer, and what it made of others in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bristle.report.snapshot import Judgement, Member, MemberKind, RunState, Snapshot, room_for
from bristle.rules.decision import Reason

SHOWN = 8
THIS_PEER = "this peer"
WHOLE = "whole head"
CODES = {reason.name.lower().replace("_", "-"): int(reason) for reason in Reason}


def is_peer_record(row: Mapping[str, Any]) -> bool:
    """Tell whether a row is an iteration of a peer, not a measurement of a world."""
    return "rule" not in row and "heard" in row and "iteration" in row


def check_peer_record(row: Mapping[str, Any]) -> None:
    """Raise ValueError unless it is an iteration as a peer writes it."""
    try:
        accuracy = row["accuracy"]
        sound = isinstance(row["iteration"], int) and (accuracy is None or math.isfinite(accuracy))
        for one in row["heard"]:
            sound = sound and one["reason"] in CODES and isinstance(one["sender"], str) and 0 <= one["share"] <= 1
    except (KeyError, TypeError) as error:
        raise ValueError(f"an iteration of a peer cannot be read: {type(error).__name__} {error}") from error
    if not sound:
        raise ValueError("an iteration of a peer holds a number or a reason that is none")


def rows_of_peer(records: Sequence[Mapping[str, Any]], *, name: str) -> list[dict[str, Any]]:
    """Return the measurements among a peer's iterations as rows of results."""
    return [
        {"figure": name, "rule": THIS_PEER, "iteration": one["iteration"], "accuracy_mean": one["accuracy"]}
        for one in _latest(records)
        if one["accuracy"] is not None
    ]


def run_of_peer(records: Sequence[Mapping[str, Any]], *, name: str) -> Snapshot:
    """Return a peer as it was in the end. Its file has a share of the whole head for each sender, not one a class."""
    records = _latest(records)
    heard = next((one for one in reversed(records) if one["heard"]), None)
    told = [] if heard is None else list(heard["heard"])[: room_for(1) - 1]
    others = tuple(
        Member(name=one["sender"][:SHOWN], kind=MemberKind.UNKNOWN, iteration=int(one["iteration"])) for one in told
    )
    last = records[-1]["iteration"]
    measured = [
        (one["iteration"], float(one["accuracy"]), None, None) for one in records if one["accuracy"] is not None
    ]
    judgement = () if heard is None else (
        Judgement(
            receiver=0,
            iteration=heard["iteration"],
            senders=range(1, len(told) + 1),
            reasons=[CODES[one["reason"]] for one in told],
            weights=np.array([[one["share"]] for one in told]),
            unseen=len(heard["heard"]) - len(told),
        ),
    )  # fmt: skip
    return Snapshot(
        title=name,
        subtitle=f"{len(records)} iterations of one peer",
        rule=THIS_PEER,
        state=RunState.ENDED,
        iteration=last,
        total=last,
        classes=(WHOLE,),
        members=(
            Member(
                name="this peer",
                kind=MemberKind.OWN,
                iteration=last,
                accuracy=measured[-1][1] if measured else None,
                hears=tuple(range(1, len(others) + 1)),
            ),
            *others,
        ),
        judgements=judgement,
        history=measured,
        band="On the test samples that came with the data of this peer." if measured else "",
    )


def _latest(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one record for each iteration: after a crash an iteration may be done again."""
    return sorted({one["iteration"]: one for one in records}.values(), key=lambda one: one["iteration"])
