"""Reading snapshots back from results files, which may come from anybody."""

from __future__ import annotations

import math
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import Any

import numpy as np

from bristle.report.snapshot import (
    FULL_WEIGHT,
    MOST_CLASSES,
    MOST_MEMBERS,
    Judgement,
    Member,
    MemberKind,
    RunState,
    Snapshot,
)
from bristle.rules.decision import Reason


def read_snapshot(fields: Mapping[str, Any]) -> Snapshot:
    """Read what `Snapshot.to_dict` returned; ValueError where it is not that."""
    try:
        return _read(fields)
    except (KeyError, TypeError, AttributeError, BadBase64) as error:
        raise ValueError(f"the snapshot in it cannot be read: {type(error).__name__} {error}") from error


def _read(fields: Mapping[str, Any]) -> Snapshot:
    classes = tuple(str(name) for name in fields["classes"])
    members = tuple(_read_member(one, len(classes), len(fields["members"])) for one in fields["members"])
    if len(classes) > MOST_CLASSES or len(members) > MOST_MEMBERS:
        raise ValueError(
            f"a snapshot has at most {MOST_CLASSES} classes and {MOST_MEMBERS} members, "
            f"not {len(classes)} and {len(members)}"
        )
    return Snapshot(
        title=str(fields["title"]),
        subtitle=str(fields["subtitle"]),
        rule=str(fields["rule"]),
        state=RunState(fields["state"]),
        iteration=int(fields["iteration"]),
        total=_whole(fields["total"]),
        classes=classes,
        members=members,
        judgements=tuple(_read_judgement(one, len(members), len(classes)) for one in fields["judgements"]),
        history=[(int(at), _number(mean), _share(low), _share(high)) for at, mean, low, high in fields["history"]],
        band=str(fields["band"]),
        oracle=_share(fields["oracle"]),
        references={
            str(name): [(int(at), _number(value)) for at, value in points]
            for name, points in fields["references"].items()
        },
        left_out=int(fields["left_out"]),
        classes_left_out=int(fields["classes_left_out"]),
    )


def _read_member(fields: Mapping[str, Any], classes: int, members: int) -> Member:
    return Member(
        name=str(fields["name"]),
        kind=MemberKind(fields["kind"]),
        holds=_positions(fields["holds"], classes),
        iteration=_whole(fields["iteration"]),
        accuracy=_share(fields["accuracy"]),
        bytes_in=_whole(fields["bytes_in"]),
        bytes_out=_whole(fields["bytes_out"]),
        refused={str(kind): int(count) for kind, count in fields["refused"].items()},
        hears=_positions(fields["hears"], members),
    )


def _read_judgement(fields: Mapping[str, Any], members: int, classes: int) -> Judgement:
    senders, reasons = fields["senders"], fields["reasons"]
    whole = np.frombuffer(b64decode(fields["weights"], validate=True), dtype="<u2")
    if len(reasons) != len(senders) or whole.size != len(senders) * classes:
        raise ValueError(f"a snapshot has {len(senders)} senders, {len(reasons)} reasons and {whole.size} weights")
    (receiver,) = _positions([fields["receiver"]], members) or (0,)
    return Judgement(
        receiver=receiver,
        iteration=int(fields["iteration"]),
        senders=_positions(senders, members) or (),
        reasons=[int(Reason(reason)) for reason in reasons],
        weights=whole.reshape(len(senders), classes) / FULL_WEIGHT,
        unseen=int(fields["unseen"]),
    )


def _positions(values: Any, count: int) -> tuple[int, ...] | None:
    if values is None:
        return None
    found = tuple(int(value) for value in values)
    if any(not 0 <= value < count for value in found):
        raise ValueError(f"a snapshot of {count} has no place for {max(found, key=abs)}")
    return found


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _share(value: Any) -> float | None:
    return None if value is None else _number(value)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a snapshot holds {number}, which is not a number to draw")
    return number
