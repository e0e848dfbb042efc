"""One iteration of a running peer, as others see it: those who watch, and the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bristle.peer.record import Iteration
from bristle.rules import Decision

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
