"""What a running peer exchanges with others: its head after every iteration, or what it states of its samples."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from bristle.p2p.inbox import ReceivedHead
from bristle.p2p.overlay import Overlay
from bristle.p2p.statements import ReceivedStatement
from bristle.peer.evidence import StatedSamples
from bristle.peer.learner import Learner
from bristle.peer.pace import Pace, Traffic
from bristle.peer.record import LOG
from bristle.peer.state import WORKER, PeerState
from bristle.peer.step import Sharing
from bristle.peer.store import OwnStatement
from bristle.peer.store_files import TryAgainError
from bristle.rules.evidence import Statement
from bristle.wire.encoding import narrowest
from bristle.wire.sizes import Encoding, raw_statement_bytes
from bristle.wire.statements import SKEW, life_of

LIFETIME = 86_400
"""Seconds for which a statement counts; a peer that runs renews it when half of them have passed."""

LONGEST_REST = 3600.0
"""Seconds after which a peer at rest checks for work again, since clocks may be set."""


class PeerExchange(Protocol):
    """What a running peer gets from others, and what it shares with them."""

    held_back: str | None
    """Why it shares nothing, as the end of a sentence that begins with "it"; None if it does."""

    async def ready(self, *, counted: bool) -> None:
        """Wait until there is something to do; where iterations are counted, do not wait for news."""

    def take(self) -> Sequence[ReceivedHead] | Sequence[ReceivedStatement]:
        """Return what the next iteration is about."""

    async def share(self) -> None:
        """Share what there is to be shared after an iteration, or say in `held_back` why not."""

    def changed(self) -> None:
        """Note that the samples have changed. May be called from any thread."""


class HeadExchange:
    """Sends the head to every neighbour after every iteration, and takes the newest one of each."""

    def __init__(self, network: Overlay, state: PeerState, traffic: Traffic, sharing: Sharing) -> None:
        self._network, self._state, self._traffic, self._sharing = network, state, traffic, sharing
        self.held_back: str | None = None

    async def ready(self, *, counted: bool) -> None:
        """Wait until the last head was sent."""
        await self._network.sent()

    def take(self) -> list[ReceivedHead]:
        """Return the newest head of every neighbour since the last time."""
        return self._network.take()

    async def share(self) -> None:
        """Share the head."""
        self.held_back = self._traffic.head_held_back(self._state.group.shape)
        learner = self._state.learner
        if self.held_back is None and isinstance(learner, Learner):
            head = self._sharing.of_live_head(learner.head)
            self._network.share(head, iteration=self._state.iteration, claims=learner.claims)

    def changed(self) -> None:
        """Do nothing: the next iteration comes anyway."""


class EvidenceExchange:
    """States once what the peer knows of its samples, renews it in time, and waits for others to say something new.

    Parameters
    ----------
    network, traffic, pace
        Of the peer.
    state : PeerState
        With an `EvidenceLearner`.
    clock : callable
        Returns the seconds since 1970.
    voices : callable
        Returns the voice of each author, if the rule counts voices.
    """

    def __init__(
        self,
        network: Overlay,
        state: PeerState,
        traffic: Traffic,
        pace: Pace,
        clock: Callable[[], float] = time.time,
        voices: Callable[[], Mapping[bytes, bytes]] = dict,
    ) -> None:
        assert state.evidence is not None
        self._network, self._state, self._traffic, self._pace = network, state, traffic, pace
        self._learner, self._clock, self._voices = state.evidence, clock, voices
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._published = self._spent = False
        self._removals = state.removals
        # With noise: what was drawn and could not be sent yet, and the samples of which noise left nothing to state.
        self._drawn: tuple[StatedSamples, Statement] | None = None
        self._silent: StatedSamples | None = None
        self._next_expiry = math.inf
        self.held_back: str | None = None
        for signed in state.kept_statements:
            network.restore(signed)

    async def ready(self, *, counted: bool) -> None:
        """Wait until statements or own samples have changed. Meanwhile, renew the own statement in time."""
        while not counted:
            self._changed.clear()
            if self._learner.is_news(self.take()):
                return
            await self.share()
            waits = [
                asyncio.ensure_future(self._network.statement_arrival()),
                asyncio.ensure_future(self._changed.wait()),
            ]
            try:
                await asyncio.wait(waits, timeout=self._rest(), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()

    def _rest(self) -> float:
        """Return the seconds until something is due by itself: a statement expires, or has to be renewed."""
        if self.held_back is not None:
            return self._pace.check_every
        renewal = math.inf if self._state.own is None else self._state.own.signed.expires - LIFETIME // 2
        return min(LONGEST_REST, max(0.0, min(renewal, self._next_expiry) - self._clock()) + 1)

    def take(self) -> list[ReceivedStatement]:
        """Return all statements that count now, in the order of their authors."""
        self._network.take_statements()
        self._learner.voices = self._voices()
        known = sorted(self._network.statements(), key=lambda one: one.author)
        self._next_expiry = min((one.expires + SKEW for one in known), default=math.inf)
        return known

    async def share(self) -> None:
        """State the own samples, if they have not been stated so yet, or let the last statement hold for longer.

        A statement is on the disk before anybody gets it: after a crash the same bytes are published again, and no
        number is ever signed twice. What holds samples that have been removed is not renewed; if there is nothing to
        state in its place, it lapses.
        """
        self.held_back = None
        if self._removals != self._state.removals:
            self._removals, self._drawn, self._silent = self._state.removals, None, None
        own, now = self._state.own, self._clock()
        wanted = self._learner.to_state(None if own is None else own.stated)
        if not wanted.total:
            return
        expired = own is not None and life_of(own.signed.expires, now) is not None
        if own is None or expired or not wanted.same(own.stated):
            if self._drawn is not None or self._learner.may_state(self._state.releases):
                await self._state_anew(wanted, int(now))
                return
            self._say_spent()
        if own is None or own.stated.removed.any():
            return
        if expired:  # What was stated with noise is not drawn again.
            own = OwnStatement(own.signed.renew(self._network.identity, int(now) + LIFETIME), own.stated)
            if not await self._keep(own):
                return
        due = own.signed.expires - now < LIFETIME // 2
        if not due and self._published:
            return
        self.held_back = self._traffic.held_back(0 if self._published else len(own.signed.body))
        if self.held_back is None:
            if not self._published:
                self._network.publish(own.signed)
                self._published = True
            if due:
                renewed = self._network.renew(int(now) + LIFETIME)
                await self._keep(OwnStatement(renewed, own.stated))

    async def _state_anew(self, wanted: StatedSamples, now: int) -> None:
        if self._drawn is None:
            self._drawn = await self._draw(wanted)
        if self._drawn is None:
            return
        wanted, statement = self._drawn
        encoding = narrowest(statement)
        self.held_back = self._traffic.held_back(_size(statement, encoding))
        if self.held_back is not None:
            return
        self._drawn = None
        # The time is above all numbers of a store that was lost with its folder.
        last = 0 if self._state.own is None else self._state.own.signed.number
        number = max(last + 1, int(1000 * self._clock()))
        signed = self._network.sign_statement(statement, number=number, expires=now + LIFETIME, encoding=encoding)
        if await self._keep(OwnStatement(signed, wanted)):
            self._network.publish(signed)
            self._published = True

    async def _draw(self, wanted: StatedSamples) -> tuple[StatedSamples, Statement] | None:
        """Return a statement and what it is of; None if there is none, or if its noise leaves nothing to state."""
        private = self._learner.rule.privacy is not None
        if private:
            if self._silent is not None and self._silent.same(wanted):
                return None
            try:
                await self._loop.run_in_executor(WORKER, self._state.count_release)
            except TryAgainError as error:
                self.held_back = f"cannot count what it states: {error}"
                return None
        draw = partial(self._state.own_statement, wanted, removals=self._removals)
        statement = await self._loop.run_in_executor(WORKER, draw)
        if statement is None:
            return None
        if private and not np.asarray(statement.counts).any():
            self._silent = wanted
            LOG.warning("states nothing: its noise hides so few samples", extra={"details": {"samples": wanted.total}})
            return None
        return wanted, statement

    def _say_spent(self) -> None:
        """Log once that new samples are stated no more."""
        if not self._spent:
            self._spent = True
            details = {"statements": self._state.releases, "instead": "this peer alone uses what is new"}
            LOG.warning("states nothing new: its privacy covers no more statements", extra={"details": details})

    async def _keep(self, own: OwnStatement) -> bool:
        """Keep the own statement; return whether it is on the disk, and of samples that are still held."""
        try:
            keep = partial(self._state.keep_own, own, removals=self._removals)
            return await self._loop.run_in_executor(WORKER, keep)
        except TryAgainError as error:
            self.held_back = f"cannot keep what it states: {error}"
            return False

    def changed(self) -> None:
        """Wake the peer."""
        self._loop.call_soon_threadsafe(self._changed.set)


def _size(statement: Statement, encoding: Encoding) -> int:
    """Return the most bytes that a statement takes on its way to one neighbour, but for headers."""
    factors = statement.factors
    rank = 0 if factors is None else len(factors)
    present = int(np.count_nonzero(np.asarray(statement.counts)))
    shape = int(statement.rows.shape[0]), int(statement.rows.shape[1])
    return raw_statement_bytes(*shape, present=present, rank=rank, encoding=encoding)
