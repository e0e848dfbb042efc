"""What attackers may see: one view per call, cut down to what the attack says it knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from bristle._core import Array, Pool


class Knowledge(StrEnum):
    """How much attackers know about a victim, besides their own heads, their memory and the iteration.

    `NOTHING`: no more than that. `INBOX`: also the honest heads that the victim receives this round.
    `EVERYTHING`: also the victim's own head, how its training moves it, and the classes that it can test.
    """

    NOTHING = "nothing"
    INBOX = "inbox"
    EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """The scene of an attack: K attackers about to send to each of the victims [...].

    An attack that knows nothing sends the same to everyone, so that it needs no victims' axes: called with
    `own` [K, C, D], its answer can be shared by all.

    Parameters
    ----------
    own : array [..., K, C, D]
        The heads that the attackers trained themselves, on labels that went through `attack.labels`.
    iteration, total : int
        The current iteration, from 1, and how many there will be.
    inbox : array [..., M, C, D] or Pool, optional
        The honest heads that each victim receives this round. Heads that are not finite count as absent.
    inbox_mask : boolean array [..., M], optional
        False where a victim does not receive a head.
    victim : array [..., C, D], optional
        Each victim's own head.
    update : array [..., C, D], optional
        How its latest training moved each victim's head, in all rows: also those that a rule which consolidates then
        leaves as they were.
    testable : boolean array [..., C], optional
        The classes that each victim can test: its familiar ones.
    sent : array [..., K, C, D], optional
        What the attackers sent in the round before; None in the first.
    """

    own: Array
    iteration: int = 1
    total: int = 1
    inbox: Array | Pool | None = None
    inbox_mask: Array | None = None
    victim: Array | None = None
    update: Array | None = None
    testable: Array | None = None
    sent: Array | None = None

    def seen_by(self, knows: Knowledge) -> View:
        """Return what attackers with this knowledge see: the same view, with None for the rest."""
        if knows == Knowledge.EVERYTHING:
            return self
        view = replace(self, victim=None, update=None, testable=None)
        return view if knows == Knowledge.INBOX else replace(view, inbox=None, inbox_mask=None)
