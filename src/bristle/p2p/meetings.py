"""Meeting peers behind routers: calls at the same time, and forwarded ones where those fail. No sockets, no clock.

A router lets in what its own side has called. Two hidden peers therefore call each other at the same time, which a
common neighbour arranges. Where that fails (routers that choose another port for every destination, or that do not
turn back what is meant for another machine behind them), the neighbour forwards instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bristle.p2p.contacts import NeighbourSlots
from bristle.p2p.limits import LATE, PROMISED, Limits, TokenBuckets
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.route import Route, Via, may_tell
from bristle.wire.messages import (
    NO_CIRCUIT,
    Address,
    CallRequest,
    Meet,
    Message,
    Scope,
    is_contact,
    is_loopback,
    network_of,
    scope_of,
)
from bristle.wire.refusal import Refusal

ANSWERED_WITHIN = 1.0
"""Seconds to wait for the call that a request to meet asks for."""

DIRECT_FOR = 1.5
"""Seconds for which two peers try to reach each other directly before one calls through the forwarder."""

YIELDED = 1.0
"""Seconds that the one with the smaller key id waits longer."""

MEETING_SECONDS = 8.0
"""Seconds after which a meeting is over, whatever came of it."""

FIRST_RETRY, LONGEST_RETRY = 40.0, 320.0
"""Seconds until forwarded neighbours try to reach each other directly again, doubled each time.

Routers forget unanswered calls after 30 s or less; what they remember of failed ones can stand in the way of new ones.
"""

LOWEST_PORT = 1024
"""Of a local address: the services of other people's machines are mostly below."""

MOST_INTRODUCERS = 4
MOST_CIRCUITS = 256
_CALLS = 2.0
_MOST_CALLS = 64.0
_CALLS_OF_ADDRESS, _MOST_OF_ADDRESS = 0.2, 2.0
"""Arranged calls per second, and at once: asked for by one neighbour; to one address. To one network: as many as of one
neighbour. A false address of a peer makes each neighbour send a few small datagrams to that address, and no more."""


class Calls(Protocol):
    """Begins a handshake over a route."""

    def __call__(self, address: Route, now: float, *, key_id: bytes, yields: bool, crosses: bool) -> None:
        """Begin it, unless one is under way."""


class Sends(Protocol):
    """Seals a message and sends it to a neighbour."""

    def __call__(self, link: Link, message: Message) -> None:
        """Send it."""


@dataclass
class Meeting:
    """An attempt to reach a peer that a neighbour introduces.

    Parameters
    ----------
    until : float
        When it is over.
    via : Via, optional
        How to reach it if nothing else works.
    via_at : float
        When to try that.
    """

    until: float
    via: Via | None = None
    via_at: float = 0.0


class Meetings:
    """Asks for introductions, and does what introducers ask for, as far as budgets allow.

    Parameters
    ----------
    key_id : bytes
        This peer's.
    limits, counters
        The limits, and counters to update.
    links, slots
        The neighbours, by key id, and who gets to be one.
    send, call
        Send a message, and begin a handshake.
    """

    def __init__(
        self,
        *,
        key_id: bytes,
        limits: Limits,
        counters: Counters,
        links: Mapping[bytes, Link],
        slots: NeighbourSlots,
        send: Sends,
        call: Calls,
    ) -> None:
        self._key_id, self._limits, self._counters = key_id, limits, counters
        self._links, self._slots, self._send, self._call = links, slots, send, call
        self.local: tuple[Address, ...] = ()
        self.meetings: dict[bytes, Meeting] = {}
        self.circuits: OrderedDict[tuple[bytes, bytes], Via] = OrderedDict()
        self._introducers: OrderedDict[bytes, list[bytes]] = OrderedDict()
        self._retries: dict[bytes, tuple[float, float]] = {}
        self._calls = TokenBuckets[bytes](rate=_CALLS, burst=_MOST_CALLS)
        self._calls_of_address = TokenBuckets[Address](rate=_CALLS_OF_ADDRESS, burst=_MOST_OF_ADDRESS)
        self._calls_of_network = TokenBuckets[str](rate=_CALLS, burst=_MOST_CALLS)

    def knows(self, key_id: bytes, introducer: bytes) -> None:
        """Note that a neighbour has another one, which it could introduce."""
        introducers = self._introducers.setdefault(key_id, [])
        self._introducers.move_to_end(key_id)
        if introducer in introducers:
            introducers.remove(introducer)
        introducers[:] = [introducer, *introducers][:MOST_INTRODUCERS]
        if len(self._introducers) > self._limits.contacts:
            self._introducers.popitem(last=False)

    def ask(self, key_id: bytes, now: float) -> bool:
        """Ask a common neighbour for an introduction, but not on one machine; return whether one is under way."""
        if key_id in self.meetings:
            return True
        for introducer in self._introducers.get(key_id, ()):
            link = self._links.get(introducer)
            if link is None or isinstance(link.address, Via) or is_loopback(link.address):
                continue
            self.meetings[key_id] = Meeting(now + ANSWERED_WITHIN)
            self._send(link, Meet(key_id))
            self._introducers[key_id].remove(introducer)  # The next time somebody else is asked first.
            self._introducers[key_id].append(introducer)
            return True
        return False

    def on_call(self, link: Link, call: CallRequest, now: float) -> float:
        """Call a peer that a neighbour introduces, as it is asked to call us; return the message's worth."""
        known = self._links.get(call.key_id)
        if call.key_id in (self._key_id, link.key_id):
            return LATE
        if not self._calls.take(link.key_id, 1, now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return LATE
        self.knows(call.key_id, link.key_id)
        if self._slots.banned(call.key_id, now) or (known is None and self._slots.full):
            return PROMISED
        if known is not None and known.address in call.addresses:
            return PROMISED  # If it has forgotten us, it reaches us as it did before.
        yields = self._key_id < call.key_id
        meeting = self.meetings[call.key_id] = Meeting(now + MEETING_SECONDS)
        if call.circuit != NO_CIRCUIT and not isinstance(link.address, Via):
            meeting.via = Via(link.key_id, call.key_id, call.circuit, link.address)
            meeting.via_at = now + DIRECT_FOR + (YIELDED if yields else 0.0)
            self._remember(meeting.via)
        for address in call.addresses:
            if not may_tell(address, link.address) and not self._is_near(address):
                self._counters.refuse(Refusal.BAD_ADDRESS)
            elif self._may_call(address, now):
                self._call(address, now, key_id=call.key_id, yields=yields, crosses=True)
        return PROMISED

    def _is_near(self, address: Address) -> bool:
        """Return whether a private address is in the same network as one of ours, and its port fit for a peer."""
        return (
            is_contact(address)
            and scope_of(address) is Scope.SITE
            and address[1] >= LOWEST_PORT
            and any(network_of(address) == network_of(own) for own in self.local)
        )

    def _may_call(self, address: Address, now: float) -> bool:
        allowed = self._calls_of_address.take(address, 1, now) and self._calls_of_network.take(
            network_of(address), 1, now
        )
        if not allowed:
            self._counters.refuse(Refusal.OVER_BUDGET)
        return allowed

    def _remember(self, via: Via) -> None:
        self.circuits[via.forwarder, via.circuit] = via
        self.circuits.move_to_end((via.forwarder, via.circuit))
        if len(self.circuits) > MOST_CIRCUITS:
            self.circuits.popitem(last=False)
        link = self._links.get(via.peer)
        if link is not None and link.address == via:
            link.address = via  # The forwarder has numbered it anew.

    def via(self, link: Link, circuit: bytes) -> Via | None:
        """Return by which route comes what a neighbour has forwarded."""
        return None if isinstance(link.address, Via) else self.circuits.get((link.key_id, circuit))

    def closed(self, link: Link, circuit: bytes) -> Via | None:
        """Forget a circuit that a neighbour has closed; return the route that is gone."""
        via = self.circuits.pop((link.key_id, circuit), None)
        if via is not None and via.peer in self.meetings:
            self.meetings[via.peer].via = None
        return via

    def left(self, link: Link) -> list[Link]:
        """Forget the circuits of a neighbour that left; return the neighbours that were reached through it."""
        for key in [key for key in self.circuits if key[0] == link.key_id]:
            del self.circuits[key]
        return [
            one for one in self._links.values() if isinstance(one.address, Via) and one.address.forwarder == link.key_id
        ]

    def tick(self, now: float) -> None:
        """Call through the forwarder where direct calls have failed, and try those again from time to time."""
        for key_id, meeting in list(self.meetings.items()):
            link = self._links.get(key_id)
            if link is not None and not isinstance(link.address, Via):
                meeting.via = None
            elif link is None and meeting.via is not None and now >= meeting.via_at:
                self._call(meeting.via, now, key_id=key_id, yields=False, crosses=False)
                meeting.via_at = meeting.until
            if now > meeting.until:
                del self.meetings[key_id]
        for key, via in list(self.circuits.items()):
            link = self._links.get(via.peer)
            if via.peer not in self.meetings and (link is None or via not in (link.address, link.previous_address)):
                del self.circuits[key]
        self._retry(now)

    def _retry(self, now: float) -> None:
        """Ask for introductions to forwarded neighbours; the one that began the session does."""
        forwarded = {
            key_id for key_id, link in self._links.items() if isinstance(link.address, Via) and link.session.initiator
        }
        self._retries = {key_id: retry for key_id, retry in self._retries.items() if key_id in forwarded}
        for key_id in forwarded:
            due, wait = self._retries.setdefault(key_id, (now + FIRST_RETRY, FIRST_RETRY))
            if now >= due and self.ask(key_id, now):
                wait = min(LONGEST_RETRY, 2 * wait)
                self._retries[key_id] = now + wait, wait
