"""The live page of one peer: its neighbours, and its decisions about their heads."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

import numpy as np

from bristle._core import to_numpy
from bristle.commands.dashboard import Feed
from bristle.peer.peer import Peer
from bristle.peer.record import Turn
from bristle.peer.store import KEPT_DECISIONS
from bristle.report.snapshot import (
    MOST_POINTS,
    Judgement,
    Member,
    MemberKind,
    Phrases,
    Point,
    RunState,
    Snapshot,
    room_for,
)

BETWEEN = 0.5
"""Seconds between checks for viewers; neighbours also change between iterations."""

SHOWN = 8
"""Digits of a key id: enough to tell peers apart."""


class PeerBoard:
    """Follows a running peer for its page: ``async with PeerBoard(peer, feed): await peer.run()``.

    Parameters
    ----------
    peer : Peer
        The peer.
    feed : Feed
        Where to publish snapshots.
    total : int, optional
        Number of iterations, if limited.
    """

    def __init__(self, peer: Peer, feed: Feed, *, total: int | None) -> None:
        self.peer, self.feed, self._wanted = peer, feed, total
        self._history: list[Point] = []
        self._total: int | None = None
        self._heard: Turn | None = None

    def took(self, turn: Turn) -> None:
        """Record an iteration."""
        if turn.record.accuracy is not None:
            # What lies far back is thinned out, so that a peer that runs for years needs no more room.
            if len(self._history) >= 4 * MOST_POINTS:
                self._history = self._history[1::2]
            self._history.append((turn.record.iteration, turn.record.accuracy, None, None))
        if turn.record.heard:
            self._heard = turn

    async def __aenter__(self) -> Self:
        """Start polling for viewers."""
        records = await asyncio.to_thread(self.peer.decisions, KEPT_DECISIONS)
        self._history = [(one.iteration, one.accuracy, None, None) for one in records if one.accuracy is not None]
        self._total = None if self._wanted is None else self.peer.iteration + self._wanted
        self._show(RunState.STARTING)
        self._looking = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Publish the final snapshot."""
        self._looking.cancel()
        with suppress(asyncio.CancelledError):
            await self._looking
        done = self._total is not None and self.peer.iteration >= self._total
        self._show(RunState.ENDED if done else RunState.INTERRUPTED)

    async def _look(self) -> None:
        while True:
            if self.feed.wanted:
                self._show(RunState.RUNNING)
            await asyncio.sleep(BETWEEN)

    def _show(self, state: RunState) -> None:
        self.feed.publish(lambda: self.snapshot(state))

    def snapshot(self, state: RunState) -> Snapshot:
        """Return a snapshot."""
        status, classes = self.peer.status(), self.peer.classes
        heard = [] if self._heard is None else [sender.hex() for sender in self._heard.senders]
        iterations = {} if self._heard is None else {one.sender: one.iteration for one in self._heard.record.heard}
        neighbours = {one.key_id: one for one in status.neighbours}
        others = list(dict.fromkeys([*heard, *neighbours]))
        shown = others[: room_for(len(classes)) - 1]
        place = {key_id: at for at, key_id in enumerate(shown, start=1)}
        phrases = Phrases()
        judgements = self._judgement(place, phrases)
        waiting = f", held back: it {status.waiting}" if status.waiting else ""
        own = Member(
            name="this peer",
            kind=MemberKind.OWN,
            holds=tuple(at for at, one in enumerate(status.samples) if one.training or one.held_out),
            iteration=status.iteration,
            accuracy=status.accuracy,
            bytes_in=status.counters.get("bytes_in", 0),
            bytes_out=status.counters.get("bytes_out", 0),
            refused=status.refused,
            hears=tuple(place[key_id] for key_id in neighbours if key_id in place),
        )
        return Snapshot(
            title=status.application,
            subtitle=f"peer {status.key_id[:SHOWN]} on {status.address}, {len(neighbours)} neighbours{waiting}",
            rule="this peer",
            unit="decisions" if self.peer.exchanges_evidence else "iteration",
            phrases=tuple(phrases) if self.peer.exchanges_evidence else (),
            state=state,
            iteration=status.iteration,
            total=self._total,
            classes=tuple(classes),
            members=(
                own,
                *(
                    Member(name=key_id[:SHOWN], kind=MemberKind.UNKNOWN, iteration=iterations.get(key_id))
                    for key_id in shown
                ),
            ),
            judgements=judgements,
            history=self._history,
            band="On the test samples that came with the data of this peer." if self._history else "",
            left_out=len(others) - len(shown),
        )

    def _judgement(self, place: dict[str, int], phrases: Phrases) -> tuple[Judgement, ...]:
        if self._heard is None:
            return ()
        turn = self._heard
        kept = [at for at, sender in enumerate(turn.senders) if sender.hex() in place]
        rows = np.array(kept, dtype=np.int64)
        one = Judgement(
            receiver=0,
            iteration=turn.record.iteration,
            senders=[place[turn.senders[at].hex()] for at in kept],
            reasons=to_numpy(turn.decision.reasons)[rows].tolist(),
            weights=to_numpy(turn.decision.weights)[rows],
            unseen=len(turn.senders) - len(kept),
            class_words=phrases.table(
                [{one.label: one.words for one in turn.record.heard[at].classes} for at in kept], len(self.peer.classes)
            )
            if self.peer.exchanges_evidence
            else None,
        )
        return (one,)
