"""Limits on memory, bytes and messages, and the token buckets that enforce them. No sockets, no clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

from bristle.p2p.route import Route, next_hop
from bristle.wire.messages import network_of
from bristle.wire.sizes import DATAGRAM, LARGEST_DATAGRAM

SMALLEST_DATAGRAM = 1220
"""Smallest allowed datagram limit: a sealed manifest must fit, forwarded by a neighbour, too."""

CHEAPEST = 1000
"""Bytes that a datagram counts as at least: small ones cost time, too."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what strangers can make this peer spend, and on what it sends.

    Parameters
    ----------
    neighbours : int
        Number of neighbour slots: peers to exchange heads with at the same time. Named peers come first.
    contacts : int
        Addresses remembered that other peers passed on.
    memory : int
        Bytes of partly received heads, over all neighbours; half as many again for heads that the next ones may be sent
        as differences from.
    statements : int
        Bytes of statements kept, as they came and decoded. Where they are used up, every neighbour has an equal
        share of them for what it delivered.
    statement_rate : float
        Statements per second taken from one neighbour, and sent to one, in the long run; sixteen seconds' worth at
        once. All neighbours together may deliver four times as many, half of which is divided evenly among the slots.
    send_rate, receive_rate : float
        Bytes per second, over all neighbours.
    sender_rate : float
        Bytes per second from one neighbour. Every datagram counts as at least 1000 bytes.
    manifest_rate : float
        Manifests per second from one neighbour; each costs a signature check. All neighbours together may send
        sixteen times as many, half of which is divided evenly among the slots.
    handshake_rate : float
        Handshake datagrams per second from one address, and, in the long run, joins per second from all addresses.
    useless_rate : float
        Useless messages per second from one neighbour: unsolicited, or duplicates. A neighbour that sends many more
        is dropped and banned for a minute.
    forward_rate : float
        Bytes per second to forward between neighbours that cannot reach each other; at most a quarter of `send_rate`.
        0: forward nothing, and pass on no statements of others.
    forward_pairs : int
        Pairs of neighbours to forward for at the same time.
    datagram, loopback_datagram : int
        Largest UDP payload in bytes: on any path (the default fits every IPv6 path), and on loopback.
    keepalive, silence : float
        Seconds between keep-alive messages, and of silence after which a neighbour is dropped.
    patience : float
        Seconds after which an unacknowledged head is given up.
    retry, longest_retry : float
        Seconds before an unresponsive address is tried again: at first, and at most after doubling.
    """

    neighbours: int = 32
    contacts: int = 256
    memory: int = 64 * 2**20
    statements: int = 64 * 2**20
    statement_rate: float = 20.0
    send_rate: float = 12.5e6
    receive_rate: float = 20e6
    sender_rate: float = 4e6
    manifest_rate: float = 25.0
    handshake_rate: float = 10.0
    useless_rate: float = 20.0
    forward_rate: float = 500e3
    forward_pairs: int = 8
    datagram: int = DATAGRAM
    loopback_datagram: int = LARGEST_DATAGRAM
    keepalive: float = 5.0
    silence: float = 20.0
    patience: float = 5.0
    retry: float = 0.5
    longest_retry: float = 30.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value: float = vars(self)[each.name]
            if not 0 < value < float("inf") and not (each.name == "forward_rate" and value == 0):
                raise ValueError(f"{each.name} must be a positive number, not {value!r}")
        for name, size in (("datagram", self.datagram), ("loopback_datagram", self.loopback_datagram)):
            if not SMALLEST_DATAGRAM <= size <= LARGEST_DATAGRAM:
                raise ValueError(f"{name} must be from {SMALLEST_DATAGRAM} to {LARGEST_DATAGRAM} bytes, not {size}")
        if self.silence <= self.keepalive:
            raise ValueError(f"silence ({self.silence} s) must be longer than keepalive ({self.keepalive} s)")


Key = TypeVar("Key", bound=Hashable)


@dataclass
class TokenBucket:
    """A token bucket: up to `burst` tokens at once, `rate` per second in the long run.

    Parameters
    ----------
    rate, burst : float
        Tokens added per second, and capacity.
    """

    rate: float
    burst: float
    tokens: float = field(init=False)
    filled: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def available(self, now: float) -> float:
        """Return the number of tokens at time `now`."""
        if self.filled is not None and now > self.filled:
            self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        # A clock that steps back must not fill the bucket twice, nor stop it from filling.
        self.filled = now
        return self.tokens

    def take(self, amount: float, now: float) -> bool:
        """Take tokens if there are enough; return whether there were."""
        if self.available(now) < amount:
            return False
        self.tokens -= amount
        return True

    def give(self, amount: float) -> None:
        """Return tokens, up to the capacity."""
        self.tokens = min(self.burst, self.tokens + amount)


class TokenBuckets(Generic[Key]):
    """One token bucket per source; beyond `most` sources, the least recently used is forgotten.

    Parameters
    ----------
    rate, burst : float
        Of each bucket.
    most : int
        Number of sources remembered.
    """

    def __init__(self, *, rate: float, burst: float, most: int = 4096) -> None:
        self.rate = rate
        self.burst = burst
        self.most = most
        self._buckets: OrderedDict[Key, TokenBucket] = OrderedDict()

    def take(self, source: Key, amount: float, now: float) -> bool:
        """Take tokens from one source's bucket if there are enough; return whether there were."""
        return self.spend(source, amount, now) is not None

    def spend(self, source: Key, amount: float, now: float) -> float | None:
        """Take tokens from one source's bucket; return the remaining number, or None if there were too few."""
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = self._buckets[source] = TokenBucket(self.rate, self.burst)
            if len(self._buckets) > self.most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(source)
        return bucket.tokens if bucket.take(amount, now) else None

    def __len__(self) -> int:
        return len(self._buckets)


ALL_MANIFESTS = 16
"""Manifests of all neighbours together, as a multiple of the rate of one."""

WANTED, PROMISED, LATE, NOTHING = 1.0, 0.0, -0.25, -1.0
"""Worth of a message: useful, a manifest, late (before its manifest or after its head), useless.

An honest neighbour may send a whole window of late pieces or acknowledgements: when a manifest gets lost, or when a
newer head overtakes them.
"""

ALL_USELESS = 25
"""Global budget for useless messages, as a multiple of the rate of one neighbour."""

_PATIENCE = 20.0
"""Burst of useless messages tolerated from one neighbour, in seconds of its rate."""

ALL_STATEMENTS = 4
"""Statements of all neighbours together, as a multiple of the rate of one."""

_STATEMENTS_AT_ONCE = 16.0
_OFFERS = 10.0
_MOST_OFFERS = 40.0
_GOSSIP = 0.5
_MOST_GOSSIP = 4.0
_PROMISES = 2.0
_MOST_PROMISES = 8.0


class SharedBudget:
    """The half of the global budgets that is first come, first served; the other half is divided among the neighbours.

    Parameters
    ----------
    limits : Limits
        The configured limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.bytes = TokenBucket(limits.receive_rate / 2, limits.receive_rate / 2)
        manifests = ALL_MANIFESTS * limits.manifest_rate / 2
        self.manifests = TokenBucket(manifests, manifests)
        statements = ALL_STATEMENTS * limits.statement_rate / 2
        self.statements = TokenBucket(statements, _STATEMENTS_AT_ONCE * statements)
        self.useless = TokenBucket(ALL_USELESS * limits.useless_rate, 4 * ALL_USELESS * limits.useless_rate)


class NeighbourBudget:
    """Token buckets of one neighbour. A burst is two seconds of the rate.

    Parameters
    ----------
    limits : Limits
        The configured limits.
    """

    def __init__(self, limits: Limits) -> None:
        self._bytes = TokenBucket(limits.sender_rate, 2 * limits.sender_rate)
        assured = limits.receive_rate / 2 / limits.neighbours
        self._assured_bytes = TokenBucket(assured, 2 * assured)
        self._manifests = TokenBucket(limits.manifest_rate, 2 * limits.manifest_rate)
        assured = ALL_MANIFESTS * limits.manifest_rate / 2 / limits.neighbours
        self._assured_manifests = TokenBucket(assured, 2 * assured)
        self._useless = TokenBucket(limits.useless_rate, _PATIENCE * limits.useless_rate)
        self._promises = TokenBucket(_PROMISES, _MOST_PROMISES)
        self._gossip = TokenBucket(_GOSSIP, _MOST_GOSSIP)
        self._offers = TokenBucket(_OFFERS, _MOST_OFFERS)
        rate, burst = limits.statement_rate, _STATEMENTS_AT_ONCE * limits.statement_rate
        self._statements, self._sent_statements = TokenBucket(rate, burst), TokenBucket(rate, burst)
        assured = ALL_STATEMENTS * rate / 2 / limits.neighbours
        self._assured_statements = TokenBucket(assured, _STATEMENTS_AT_ONCE * assured)

    def take_bytes(self, amount: float, shared: SharedBudget, now: float) -> bool:
        """Spend received bytes; return False if they exceed a budget."""
        return self._bytes.take(amount, now) and (
            self._assured_bytes.take(amount, now) or shared.bytes.take(amount, now)
        )

    def may_announce(self, now: float) -> bool:
        """Return whether a manifest may be decoded: cheaper than `take_manifest`, and spends nothing."""
        return self._manifests.available(now) >= 1 and self._promises.available(now) >= 1

    def take_manifest(self, shared: SharedBudget, now: float) -> bool:
        """Spend a signature check; return False if too many manifests came, or came without their heads."""
        return (
            self._promises.take(1, now)
            and self._manifests.take(1, now)
            and (self._assured_manifests.take(1, now) or shared.manifests.take(1, now))
        )

    def body_followed(self) -> None:
        """Note that a body followed its manifest: another manifest is allowed."""
        self._promises.give(1)

    def take_gossip(self, now: float) -> bool:
        """Return whether the addresses in a keep-alive message may be read."""
        return self._gossip.take(1, now)

    def take_offers(self, now: float) -> bool:
        """Return whether a message that offers statements may be read."""
        return self._offers.take(1, now)

    def take_statement(self, shared: SharedBudget, now: float) -> bool:
        """Spend a statement that is to be asked for; return False if too many came already."""
        return self._statements.take(1, now) and (
            self._assured_statements.take(1, now) or shared.statements.take(1, now)
        )

    def send_statement(self, now: float) -> bool:
        """Spend a statement that was asked for; return False if too many were sent already."""
        return self._sent_statements.take(1, now)

    def useless_message(self, price: float, shared: SharedBudget, now: float) -> bool:
        """Count a useless message; return True if this neighbour sent too many while the global budget is used up.

        While it is not, nobody is banned: on a slow line, most of what an honest peer sends comes late.
        """
        shared.useless.take(price, now)
        return not self._useless.take(price, now) and shared.useless.tokens < shared.useless.burst / 10

    def useful_message(self, credit: float) -> None:
        """Count a useful message: it makes up for useless ones."""
        self._useless.give(credit)


_FIRST_DATAGRAMS = 4
"""Datagrams of a new address that have a budget of their own: two handshakes."""


class HandshakeLimits:
    """Rate limits for handshakes, per address, per network and overall.

    What a neighbour forwards has a budget for each peer at the other end, and counts for the forwarder's network.

    A handshake takes two datagrams. The first few of every address have a budget of their own, so that a flood from a
    few hundred addresses does not keep newcomers out. A hello costs a hash, a join costs signatures: joins have budgets
    of their own.

    Parameters
    ----------
    rate : float
        Datagrams per second from one address; ten times as many from a network, twenty times from all new addresses
        and ten times from all others. Also joins per second from one address, one host and overall, with larger bursts,
        and less than half as many while all slots are taken.
    """

    def __init__(self, rate: float) -> None:
        self._of_address = TokenBuckets[Route](rate=rate, burst=2 * rate)
        self._of_network = TokenBuckets[str](rate=10 * rate, burst=40 * rate)
        self._begun = TokenBucket(10 * rate, 40 * rate)
        self._new = TokenBucket(20 * rate, 100 * rate)
        self._joins = TokenBuckets[Route](rate=rate, burst=rate)
        self._joins_of_host = TokenBuckets[str](rate=rate, burst=8 * rate)
        self._all_joins = TokenBucket(rate, 8 * rate)
        self._joins_while_full = TokenBucket(0.4 * rate, 4 * rate)

    def admit(self, route: Route, now: float) -> bool:
        """Spend one handshake datagram that came by a route; return whether it may be processed."""
        left = self._of_address.spend(route, 1, now)
        if left is None or not self._of_network.take(network_of(next_hop(route)), 1, now):
            return False
        new = left >= self._of_address.burst - _FIRST_DATAGRAMS
        return (self._new if new else self._begun).take(1, now)

    def may_join(self, route: Route, now: float, *, full: bool) -> bool:
        """Spend one join with a valid cookie; return whether its signature may be checked. `full`: no slot is free."""
        return (
            self._joins.take(route, 1, now)
            and self._joins_of_host.take(next_hop(route)[0], 1, now)
            and (self._joins_while_full if full else self._all_joins).take(1, now)
        )
