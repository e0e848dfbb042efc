"""Snapshots of a run for the live page: bounded plain values, and reading them back."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.rules.decision import Reason

Point = tuple[int, float, float | None, float | None]
"""Iteration, accuracy, and the ends of the band if there is one."""

MOST_MEMBERS = 128
MOST_WEIGHTS = 160_000
MOST_CLASSES = 256
MOST_POINTS = 300
FULL_WEIGHT = 65_535


class MemberKind(StrEnum):
    """Known kind of a member; a live peer cannot know who is malicious."""

    BENIGN = "benign"
    MALICIOUS = "malicious"
    UNKNOWN = "unknown"
    OWN = "own"  # the peer whose page it is


class RunState(StrEnum):
    """State of a run."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A participant; None for what is not known.

    Parameters
    ----------
    name : str
        What it is called.
    kind : MemberKind
        Whether it lies, where that is known.
    holds : tuple of int, optional
        The classes that it has samples of.
    iteration : int, optional
        How far it has come.
    accuracy : float, optional
        The latest that was measured.
    bytes_in, bytes_out : int, optional
        What it received and sent.
    refused : mapping
        How many messages it refused, for each kind.
    hears : tuple of int, optional
        The members that it is connected to.
    """

    name: str
    kind: MemberKind
    holds: tuple[int, ...] | None = None
    iteration: int | None = None
    accuracy: float | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    hears: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """The decision of one receiver about the heads that it received last.

    Parameters
    ----------
    receiver : int
        Which member.
    iteration : int
        In which of its iterations.
    senders : sequence of int
        The members that the heads came from.
    reasons : sequence of int
        A `Reason` code for each.
    weights : array [senders, classes]
        The share of each row of the new head that came from each.
    unseen : int
        Heads from members that are not shown.
    class_words : integer array [senders, classes], optional
        Of statements: which of the snapshot's phrases says what became of each mean.
    """

    receiver: int
    iteration: int
    senders: Sequence[int]
    reasons: Sequence[int]
    weights: npt.NDArray[Any]
    unseen: int = 0
    class_words: npt.NDArray[Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment.

    Parameters
    ----------
    title, subtitle : str
        What runs, and in which setting.
    rule : str
        What the peers use.
    state : RunState
        Whether it goes on.
    iteration : int
        How far it has come.
    total : int, optional
        How long it will be.
    classes : tuple of str
        Names of the classes.
    members : tuple of Member
        Who takes part.
    judgements : tuple of Judgement
        The last decision of each receiver.
    history : sequence of Point
        Accuracy so far.
    band : str
        What the band is.
    oracle : float, optional
        Accuracy of one head trained on the samples of all benign peers.
    references : mapping
        Other curves to compare with: iteration and accuracy.
    left_out, classes_left_out : int
        Members and classes that are not shown.
    unit : str
        What `iteration` and `history` count: ``"iteration"`` where peers exchange heads; else in the plural.
    phrases : sequence of str
        What became of a mean, in words, for peers that exchange statements.
    """

    title: str
    subtitle: str
    rule: str
    state: RunState
    iteration: int
    total: int | None
    classes: tuple[str, ...]
    members: tuple[Member, ...]
    judgements: tuple[Judgement, ...] = ()
    history: Sequence[Point] = ()
    band: str = ""
    oracle: float | None = None
    references: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    left_out: int = 0
    classes_left_out: int = 0
    unit: str = "iteration"
    phrases: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; weights as 16-bit integers in base64. Of very many classes the first are listed."""
        classes = self.classes[:MOST_CLASSES]
        return {
            **vars(self),
            "state": self.state.value,
            "classes": list(classes),
            "classes_left_out": self.classes_left_out + len(self.classes) - len(classes),
            "members": [_member(one, len(classes)) for one in self.members],
            "judgements": [_judgement(one, len(classes)) for one in self.judgements],
            "history": thinned(self.history),
            "references": {name: thinned(points) for name, points in self.references.items()},
            "phrases": list(self.phrases),
        }


REASONS = [{"name": reason.name.lower().replace("_", "-"), "words": reason.words} for reason in Reason]
"""Words for reason codes, in their order."""


def room_for(classes: int) -> int:
    """Return the largest number of members to show, so that messages stay small."""
    return max(2, min(MOST_MEMBERS, math.isqrt(MOST_WEIGHTS // max(1, min(classes, MOST_CLASSES)))))


def thinned(points: Sequence[Any]) -> list[list[Any]]:
    """Return at most MOST_POINTS of the points, evenly spread, with the last among them."""
    step = -(-len(points) // MOST_POINTS) or 1
    return [list(points[at]) for at in range((len(points) - 1) % step, len(points), step)] if points else []


def _member(one: Member, classes: int) -> dict[str, Any]:
    return {
        **vars(one),
        "kind": one.kind.value,
        "holds": None if one.holds is None else [held for held in one.holds if held < classes],
        "refused": dict(one.refused),
        "hears": None if one.hears is None else list(one.hears),
    }


def _judgement(one: Judgement, classes: int) -> dict[str, Any]:
    whole = np.rint(np.clip(one.weights[:, :classes], 0, 1) * FULL_WEIGHT).astype("<u2")
    return {
        **vars(one),
        "senders": [int(sender) for sender in one.senders],
        "reasons": [int(reason) for reason in one.reasons],
        "weights": b64encode(whole.tobytes()).decode(),
        "class_words": None
        if one.class_words is None
        else b64encode(np.asarray(one.class_words[:, :classes], dtype="<u2").tobytes()).decode(),
    }


def read_snapshot(fields: Mapping[str, Any]) -> Snapshot:
    """Read the result of `Snapshot.to_dict`; raise ValueError if it is invalid."""
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
        unit=str(fields.get("unit", "iteration")),  # Recordings of earlier versions have none.
        phrases=tuple(str(one) for one in fields.get("phrases", ())),
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
    words = fields.get("class_words")
    phrases = None if words is None else np.frombuffer(b64decode(words, validate=True), dtype="<u2")
    sizes = {one.size for one in (whole, phrases) if one is not None}
    if len(reasons) != len(senders) or sizes != {len(senders) * classes}:
        raise ValueError(f"a snapshot has {len(senders)} senders, {len(reasons)} reasons and {whole.size} weights")
    (receiver,) = _positions([fields["receiver"]], members) or (0,)
    return Judgement(
        receiver=receiver,
        iteration=int(fields["iteration"]),
        senders=_positions(senders, members) or (),
        reasons=[int(Reason(reason)) for reason in reasons],
        weights=whole.reshape(len(senders), classes) / FULL_WEIGHT,
        unseen=int(fields["unseen"]),
        class_words=None if phrases is None else phrases.reshape(len(senders), classes),
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


class Phrases:
    """Collects what became of means, in words: a page holds each phrase once."""

    def __init__(self) -> None:
        self._places = {Reason.SILENT.words: 0}

    def table(self, said: Sequence[Mapping[int, str]], classes: int) -> npt.NDArray[np.int64]:
        """Return the place of the phrase of each sender and class [senders, classes], given phrases by class."""
        found = np.zeros((len(said), classes), dtype=np.int64)
        for row, words in enumerate(said):
            for label, phrase in words.items():
                if phrase in self._places or len(self._places) <= FULL_WEIGHT:
                    found[row, label] = self._places.setdefault(phrase, len(self._places))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)
