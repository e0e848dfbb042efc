"""Introducing neighbours to each other, and forwarding where they cannot reach each other. No sockets, no clock.

The forwarder sees that two peers talk, how much and when. What it forwards is sealed between the two: it holds none of
their keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bristle.p2p.limits import CHEAPEST, LATE, PROMISED, Limits, SharedBudget, TokenBucket, TokenBuckets
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.route import Via, may_tell
from bristle.wire.messages import (
    CIRCUIT_BYTES,
    MOST_CALLED,
    NO_CIRCUIT,
    Address,
    CallRequest,
    Forward,
    Forwarded,
    Meet,
    encode,
)
from bristle.wire.refusal import Refusal

OFFERED = 15.0
"""Seconds for which a circuit waits for its first datagram, and for the next one, or three keep-alive periods."""

MOST_OFFERS = 512
"""Circuits remembered, in use or not; the oldest unused one gives way."""

FLOODED = 200.0
"""Refused datagrams per second from which on nothing is forwarded."""

CALM_AFTER = 2.0
"""Seconds after such a flood until forwarding goes on; longer than the flood filter hides a flood."""

_REQUESTS = 0.5
_CALLS = 2.0
_MOST_AT_ONCE = 64.0
"""Introductions per second that one neighbour may ask for, that one may be called for, and at once."""

_LEAST_FREE = 0.5
"""Share of the receive budget that must be left; forwarding is the first to stop."""


@dataclass
class Circuit:
    """Two neighbours between which datagrams are forwarded.

    Parameters
    ----------
    ends : (bytes, bytes)
        Their key ids.
    used : float
        When it was offered, or last used.
    budget : TokenBucket
        Its share of the bytes.
    active : bool
        Whether it was used.
    """

    ends: tuple[bytes, bytes]
    used: float
    budget: TokenBucket
    active: bool = field(default=False)

    def other_end(self, key_id: bytes) -> bytes | None:
        """Return the end that is not `key_id`; None if `key_id` is none."""
        one, other = self.ends
        return other if key_id == one else one if key_id == other else None


class Introducer:
    """Introduces neighbours on request, and forwards between them within a budget.

    Parameters
    ----------
    limits, counters, shared
        The limits, counters to update, and the budget for all that is received.
    links : mapping
        The neighbours, by key id. Only they are introduced, and only to them is anything forwarded.
    send : callable
        Seals a message and sends it to a neighbour.
    entropy : callable
        Returns n unpredictable bytes.
    """

    def __init__(
        self,
        *,
        limits: Limits,
        counters: Counters,
        shared: SharedBudget,
        links: Mapping[bytes, Link],
        send: Callable[[Link, bytes], None],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._limits, self._counters, self._shared = limits, counters, shared
        self._links, self._send, self._entropy = links, send, entropy
        self.circuits: dict[bytes, Circuit] = {}
        self._numbers: dict[frozenset[bytes], bytes] = {}
        self._requests = TokenBuckets[bytes](rate=_REQUESTS, burst=_MOST_AT_ONCE)
        self._calls = TokenBuckets[bytes](rate=_CALLS, burst=_MOST_AT_ONCE)
        # A quarter of what it may send, at most: its own heads come first.
        rate = min(limits.forward_rate, limits.send_rate / 4)
        self._bytes, self._first_come = TokenBucket(rate, rate), TokenBucket(rate / 2, rate / 2)
        self._assured = rate / 2 / limits.forward_pairs
        self._calm = TokenBucket(FLOODED, FLOODED)
        self._refused = 0
        self._flooded_until = -math.inf

    @property
    def pairs(self) -> int:
        """Number of pairs that datagrams are forwarded between."""
        return sum(circuit.active for circuit in self.circuits.values())

    def receive(self, link: Link, message: Meet | Forward, now: float) -> float:
        """Introduce a neighbour to another one, or forward a datagram; return the message's worth."""
        return self.introduce(link, message, now) if isinstance(message, Meet) else self.forward(link, message, now)

    def introduce(self, link: Link, meet: Meet, now: float) -> float:
        """Ask a neighbour and the one it wants to meet to call each other now; return the request's worth."""
        other = self._links.get(meet.key_id)
        if other is None or other is link or isinstance(other.address, Via):
            return LATE  # It has just left, perhaps.
        if not self._requests.take(link.key_id, 1, now) or not self._calls.take(other.key_id, 1, now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return LATE
        circuit = NO_CIRCUIT if isinstance(link.address, Via) else self._offer(link.key_id, other.key_id, now)
        for one, to in ((link, other), (other, link)):
            self._send(to, encode(CallRequest(one.key_id, circuit, _addresses(one, to))))
        return PROMISED

    def _offer(self, one: bytes, other: bytes, now: float) -> bytes:
        """Return the number of a pair's circuit, a new one if it has none."""
        if self._limits.forward_rate <= 0:
            return NO_CIRCUIT
        pair = frozenset((one, other))
        if pair in self._numbers:
            number = self._numbers[pair]
            self.circuits[number].used = now
            return number
        if len(self.circuits) >= MOST_OFFERS:
            unused = next((number for number, circuit in self.circuits.items() if not circuit.active), None)
            if unused is None:
                return NO_CIRCUIT
            self._close(unused)
        while (number := self._entropy(CIRCUIT_BYTES)) in self.circuits or number == NO_CIRCUIT:
            pass
        self.circuits[number] = Circuit((one, other), now, TokenBucket(self._assured, self._assured))
        self._numbers[pair] = number
        return number

    def _close(self, number: bytes) -> Circuit:
        circuit = self.circuits.pop(number)
        del self._numbers[frozenset(circuit.ends)]
        return circuit

    def forward(self, link: Link, message: Forward, now: float) -> float:
        """Pass a datagram on to the other end of a circuit, if there is a budget left; return the message's worth."""
        circuit = self.circuits.get(message.circuit)
        other = self._links.get(circuit.other_end(link.key_id) or b"") if circuit is not None else None
        if circuit is None or other is None or isinstance(other.address, Via) or isinstance(link.address, Via):
            self._send(link, encode(Forwarded(message.circuit)))
            return LATE
        if not circuit.active and self.pairs >= self._limits.forward_pairs:
            self._counters.refuse(Refusal.NOT_FORWARDED)
            self._send(link, encode(Forwarded(message.circuit)))
            return LATE
        if now < self._flooded_until or not self._affords(circuit, max(len(message.datagram), CHEAPEST), now):
            self._counters.refuse(Refusal.NOT_FORWARDED)
            return LATE
        circuit.active, circuit.used = True, now
        self._counters.bytes_forwarded += len(message.datagram)
        self._send(other, encode(Forwarded(message.circuit, message.datagram)))
        return PROMISED

    def _affords(self, circuit: Circuit, cost: float, now: float) -> bool:
        """Spend the bytes of a datagram: half are divided among the pairs, the rest is first come, first served."""
        if self._shared.bytes.available(now) < _LEAST_FREE * self._shared.bytes.burst:
            return False
        return self._bytes.available(now) >= cost and (
            (circuit.budget.take(cost, now) or self._first_come.take(cost, now)) and self._bytes.take(cost, now)
        )

    def left(self, link: Link) -> None:
        """Close the circuits of a neighbour that left."""
        for number in [number for number, circuit in self.circuits.items() if link.key_id in circuit.ends]:
            circuit = self._close(number)
            other = self._links.get(circuit.other_end(link.key_id) or b"")
            if circuit.active and other is not None:
                self._send(other, encode(Forwarded(number)))

    def tick(self, now: float) -> None:
        """Close unused circuits; stop forwarding while a flood is refused."""
        idle = max(OFFERED, 3 * self._limits.keepalive)
        for number in [number for number, circuit in self.circuits.items() if now - circuit.used > idle]:
            self._close(number)
        refused = self._counters.refused.total() - self._counters.refused[Refusal.NOT_FORWARDED]
        if not self._calm.take(refused - self._refused, now):
            self._calm.tokens, self._flooded_until = 0.0, now + CALM_AFTER
        self._refused = refused


def _addresses(of: Link, to: Link) -> tuple[Address, ...]:
    """Return where a neighbour can be called by another one: local addresses only behind the same public address."""
    if isinstance(of.address, Via):
        return ()
    found = [of.address] if may_tell(of.address, to.address) else []
    if not isinstance(to.address, Via) and of.address[0] == to.address[0]:
        found += of.local
    return tuple(dict.fromkeys(found))[:MOST_CALLED]
