"""Records of iterations: senders, decisions and reasons."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bristle.rules import Decision
from bristle.rules.decision import Reason
from bristle.rules.evidence import EvidenceDecision

if TYPE_CHECKING:
    # Rows of a simulation do without the network.
    from bristle.p2p.inbox import ReceivedHead
    from bristle.p2p.statements import ReceivedStatement

SHOWN = 16
"""Hexadecimal digits of a key id in words about another peer: as `bristle status` shows it."""


@dataclass(frozen=True, kw_only=True)
class HeardClass:
    """What became of a sender's mean of one class.

    Parameters
    ----------
    label : int
        The class.
    count : int
        How many samples of it the sender states.
    share : float
        Which share of the location of the class comes from it.
    reason : str
        Name of the reason, e.g. ``"dissents"``.
    words : str
        The reason in words.
    """

    label: int
    count: int
    share: float
    reason: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Heard:
    """One received head, or one statement, and what became of it.

    Parameters
    ----------
    sender : str
        Key id of its sender or, for a statement, of its author, in hexadecimal.
    iteration : int, optional
        The sender's iteration, as it says; None for a statement.
    share : float
        Which share of the new head comes from it, averaged over the classes.
    reason : str
        Name of the reason, e.g. ``"kept"``.
    words : str
        The reason in words.
    number, expires : int, optional
        Of a statement: its number, and when it ceases to count in seconds since 1970, 0 for never.
    classes : tuple of HeardClass
        Of a statement: what became of each class that it is about.
    """

    sender: str
    share: float
    reason: str
    words: str
    iteration: int | None = None
    number: int | None = None
    expires: int | None = None
    classes: tuple[HeardClass, ...] = ()

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Heard:
        """Read what `dataclasses.asdict` returned."""
        classes = tuple(HeardClass(**entry) for entry in fields.get("classes", ()))
        return cls(**{**fields, "classes": classes})


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One iteration of a peer, as it is kept and shown.

    Parameters
    ----------
    iteration : int
        Which one, from 1.
    at : float
        When it ended, in seconds since 1970.
    seconds : float
        How long integrating and training took.
    heard : tuple of Heard
        What was received.
    trained : bool
        Whether there was anything to train on.
    accuracy : float, optional
        On the test set that the peer was given, where it was measured.
    """

    iteration: int
    at: float
    seconds: float
    heard: tuple[Heard, ...] = ()
    trained: bool = True
    accuracy: float | None = None

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(vars(self), default=vars, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Iteration:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls.from_dict(fields)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Iteration:
        """Read what `dataclasses.asdict` returned."""
        return cls(**{**fields, "heard": tuple(Heard.from_dict(entry) for entry in fields["heard"])})


def senders_of(messages: Sequence[ReceivedHead] | Sequence[ReceivedStatement]) -> tuple[bytes, ...]:
    """Return the key ids of those who made heads or statements."""
    found: list[Any] = list(messages)
    return tuple(one.author if hasattr(one, "author") else one.sender for one in found)


def heard_of(decision: Decision, messages: Sequence[ReceivedHead] | Sequence[ReceivedStatement]) -> tuple[Heard, ...]:
    """Put a decision about one inbox into words; `messages` are in the order of its models."""
    if not messages:
        return ()
    shares = np.asarray(decision.weights)
    senders = [sender.hex() for sender in senders_of(messages)]
    names = [sender[:SHOWN] for sender in senders]
    found = list[Heard]()
    for place, one in enumerate(messages):
        of_kind: dict[str, Any]
        if isinstance(decision, EvidenceDecision):
            statement = cast("ReceivedStatement", one)
            classes = _classes_of(decision, place, statement, names)
            of_kind = {"number": statement.number, "expires": statement.expires, "classes": classes}
        else:
            of_kind = {"iteration": cast("ReceivedHead", one).iteration}
        found.append(
            Heard(
                sender=senders[place],
                share=round(float(shares[place].mean()), 6),
                reason=_name(decision.reasons[place]),
                words=_named(decision.explain(place), names),
                **of_kind,
            )
        )
    return tuple(found)


def _classes_of(
    decision: EvidenceDecision, place: int, one: ReceivedStatement, names: Sequence[str]
) -> tuple[HeardClass, ...]:
    counts = np.asarray(one.statement.counts)
    return tuple(
        HeardClass(
            label=int(label),
            count=int(counts[label]),
            share=round(float(decision.weights[place, label]), 6),
            reason=_name(decision.class_reasons[place, label]),
            words=_named(decision.explain(place, int(label)), names),
        )
        for label in np.flatnonzero(counts)
    )


def _name(reason: Any) -> str:
    return Reason(int(reason)).name.lower().replace("_", "-")


def _named(words: str, names: Sequence[str]) -> str:
    """Return words in which senders, which a rule knows by their places, have their names."""
    return re.sub(r"\bsender (\d+)\b", lambda found: f"peer {names[int(found[1])]}", words)


LOG = logging.getLogger("bristle.peer")


@dataclass(frozen=True, eq=False)
class Turn:
    """One iteration of a running peer, as a watcher gets it.

    Parameters
    ----------
    record : Iteration
        What is kept of it: number, time, accuracy, and every received head with its share and reason in words.
    decision : Decision
        The rule's answer, with weights by class; its models are in the order of `senders`.
    senders : tuple of bytes
        Key ids of those heard.
    shared : bool
        Whether the new head was shared.
    """

    record: Iteration
    decision: Decision
    senders: tuple[bytes, ...]
    shared: bool


def log_turn(record: Iteration, held_back: str | None) -> None:
    """Write an iteration to the log: what was heard, and why the head was not shared, if it was not."""
    details = {
        "iteration": record.iteration,
        "heard": len(record.heard),
        "kept": sum(one.share > 0 for one in record.heard),
        "accuracy": record.accuracy,
        "seconds": record.seconds,
        "held_back": held_back,
    }
    # One in which nothing was heard or measured is of interest only to those who look for a fault.
    level = logging.INFO if record.heard or record.accuracy is not None else logging.DEBUG
    LOG.log(
        level, "iteration", extra={"details": {name: value for name, value in details.items() if value is not None}}
    )
