"""What the live page shows: a run at one moment, as plain values that fit into one bounded message."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.rules.decision import Reason

Point = tuple[int, float, float | None, float | None]
"""Iteration, accuracy, and the ends of the band where there is one."""

MOST_MEMBERS = 128
MOST_WEIGHTS = 160_000
MOST_CLASSES = 256
MOST_POINTS = 300
FULL_WEIGHT = 65_535


class MemberKind(StrEnum):
    """What is known of a member: from the outside a liar looks like everybody else."""

    BENIGN = "benign"
    MALICIOUS = "malicious"
    UNKNOWN = "unknown"
    OWN = "own"  # the peer whose page it is


class RunState(StrEnum):
    """Where a run is."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One who takes part; None stands for what is not known.

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
    """What one receiver made of the heads that it heard last.

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
    """

    receiver: int
    iteration: int
    senders: Sequence[int]
    reasons: Sequence[int]
    weights: npt.NDArray[Any]
    unseen: int = 0


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

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; weights as 16-bit integers in base64. Of very many classes the first are told."""
        classes = self.classes[:MOST_CLASSES]
        return {
            "title": self.title,
            "subtitle": self.subtitle,
            "rule": self.rule,
            "state": self.state.value,
            "iteration": self.iteration,
            "total": self.total,
            "classes": list(classes),
            "classes_left_out": self.classes_left_out + len(self.classes) - len(classes),
            "members": [_member(one, len(classes)) for one in self.members],
            "judgements": [_judgement(one, len(classes)) for one in self.judgements],
            "history": thinned(self.history),
            "band": self.band,
            "oracle": self.oracle,
            "references": {name: thinned(points) for name, points in self.references.items()},
            "left_out": self.left_out,
        }


REASONS = [{"name": reason.name.lower().replace("_", "-"), "words": reason.words} for reason in Reason]
"""What reason codes stand for, in their order."""


def room_for(classes: int) -> int:
    """Return how many members are shown at most, so that a message stays small whatever the world is like."""
    return max(2, min(MOST_MEMBERS, math.isqrt(MOST_WEIGHTS // max(1, min(classes, MOST_CLASSES)))))


def thinned(points: Sequence[Any]) -> list[list[Any]]:
    """Return at most MOST_POINTS of the points, evenly spread, with the last among them."""
    step = -(-len(points) // MOST_POINTS) or 1
    return [list(points[at]) for at in range((len(points) - 1) % step, len(points), step)] if points else []


def _member(one: Member, classes: int) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind.value,
        "holds": None if one.holds is None else [held for held in one.holds if held < classes],
        "iteration": one.iteration,
        "accuracy": one.accuracy,
        "bytes_in": one.bytes_in,
        "bytes_out": one.bytes_out,
        "refused": dict(one.refused),
        "hears": None if one.hears is None else list(one.hears),
    }


def _judgement(one: Judgement, classes: int) -> dict[str, Any]:
    whole = np.rint(np.clip(one.weights[:, :classes], 0, 1) * FULL_WEIGHT).astype("<u2")
    return {
        "receiver": one.receiver,
        "iteration": one.iteration,
        "senders": [int(sender) for sender in one.senders],
        "reasons": [int(reason) for reason in one.reasons],
        "weights": b64encode(whole.tobytes()).decode(),
        "unseen": one.unseen,
    }
