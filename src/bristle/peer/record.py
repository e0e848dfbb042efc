"""Records of iterations: who was heard, what was decided and why."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle.rules import Decision
from bristle.rules.decision import Reason


@dataclass(frozen=True, kw_only=True)
class Heard:
    """One received head and what became of it.

    Parameters
    ----------
    sender : str
        The sender's key id, in hexadecimal.
    iteration : int
        The sender's iteration, as it says.
    share : float
        Which share of the new head comes from it, averaged over the classes.
    reason : str
        Name of the reason, e.g. ``"kept"``.
    words : str
        The reason in words.
    """

    sender: str
    iteration: int
    share: float
    reason: str
    words: str


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
        fields = {**vars(self), "heard": [vars(one) for one in self.heard]}
        return json.dumps(fields, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Iteration:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "heard": tuple(Heard(**entry) for entry in fields["heard"])})


def heard_of(decision: Decision, senders: Sequence[bytes], iterations: Sequence[int]) -> tuple[Heard, ...]:
    """Put a decision about one inbox into words: `senders` and their `iterations`, in the order of its models."""
    if not senders:
        return ()
    shares = np.asarray(decision.weights).mean(axis=-1)
    return tuple(
        Heard(
            sender=sender.hex(),
            iteration=iteration,
            share=round(float(shares[place]), 6),
            reason=Reason(int(decision.reasons[place])).name.lower().replace("_", "-"),
            words=decision.explain(place),
        )
        for place, (sender, iteration) in enumerate(zip(senders, iterations, strict=True))
    )


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
