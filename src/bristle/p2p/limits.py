"""Limits on memory, bytes and messages, and the token buckets that enforce them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from typing import Generic, TypeVar

from bristle.wire.messages import Address, network_of
from bristle.wire.sizes import DATAGRAM, LARGEST_DATAGRAM

SMALLEST_DATAGRAM = 1200
"""What a manifest and its seal may take."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what strangers can make this peer spend, and on what it sends.

    Parameters
    ----------
    neighbours : int
        Peers that heads are exchanged with at the same time. Peers that the user named come first.
    contacts : int
        Addresses kept in mind that other peers handed on.
    memory : int
        Bytes of heads that are being received, over all neighbours.
    send_rate, receive_rate : float
        Bytes a second, over all neighbours.
    sender_rate : float
        Bytes a second that one neighbour may send. Every datagram counts as 1000 bytes at least.
    manifest_rate : float
        Manifests a second, each of which costs a signature check, from one neighbour; from all together, sixteen times
        as many, half of which are shared out evenly, so that every neighbour has some.
    handshake_rate : float
        Handshake datagrams a second that one source address may cost us, and, in the long run, joins of all together.
    nuisance_rate : float
        Messages a second that one neighbour may send for nothing: what nobody asked for, or what is here already.
        Those who send many more are let go, and kept out for a minute.
    datagram, loopback_datagram : int
        Largest UDP payload. The first fits through every path that carries IPv6; loopback has no such limits.
    keepalive, silence : float
        Seconds between signs of life, and without one after which a neighbour is dropped.
    patience : float
        Seconds after which an unacknowledged head is given up.
    retry, longest_retry : float
        Seconds until a silent address is tried again: the first time, doubling up to the longest.
    """

    neighbours: int = 32
    contacts: int = 256
    memory: int = 64 * 2**20
    send_rate: float = 12.5e6
    receive_rate: float = 20e6
    sender_rate: float = 4e6
    manifest_rate: float = 25.0
    handshake_rate: float = 10.0
    nuisance_rate: float = 20.0
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
            if not 0 < value < float("inf"):
                raise ValueError(f"{each.name} must be a positive number, not {value!r}")
        for name, size in (("datagram", self.datagram), ("loopback_datagram", self.loopback_datagram)):
            if not SMALLEST_DATAGRAM <= size <= LARGEST_DATAGRAM:
                raise ValueError(f"{name} must be from {SMALLEST_DATAGRAM} to {LARGEST_DATAGRAM} bytes, not {size}")
        if self.silence <= self.keepalive:
            raise ValueError(f"silence ({self.silence} s) must be longer than keepalive ({self.keepalive} s)")


Key = TypeVar("Key", bound=Hashable)


@dataclass
class Bucket:
    """A token bucket: `burst` at once, `rate` a second in the long run.

    Parameters
    ----------
    rate, burst : float
        Tokens that come each second, and that fit in.
    """

    rate: float
    burst: float
    tokens: float = field(init=False)
    filled: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def available(self, now: float) -> float:
        """Return the tokens that are there at a time."""
        if self.filled is not None and now > self.filled:
            self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        # A clock that steps back must not fill the bucket twice, nor stop it from filling.
        self.filled = now
        return self.tokens

    def take(self, amount: float, now: float) -> bool:
        """Take tokens, if there are enough."""
        if self.available(now) < amount:
            return False
        self.tokens -= amount
        return True

    def give(self, amount: float) -> None:
        """Give tokens back, as far as they fit in."""
        self.tokens = min(self.burst, self.tokens + amount)


class Budgets(Generic[Key]):
    """A bucket for each source; when there are too many, the one not used for longest is forgotten.

    Parameters
    ----------
    rate, burst : float
        Of each bucket.
    most : int
        How many sources are remembered.
    """

    def __init__(self, *, rate: float, burst: float, most: int = 4096) -> None:
        self.rate = rate
        self.burst = burst
        self.most = most
        self._buckets: OrderedDict[Key, Bucket] = OrderedDict()

    def take(self, source: Key, amount: float, now: float) -> bool:
        """Take tokens of one source, if it has enough."""
        return self.spend(source, amount, now) is not None

    def spend(self, source: Key, amount: float, now: float) -> float | None:
        """Take tokens of one source and return how many it has left; None if it has not enough."""
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = self._buckets[source] = Bucket(self.rate, self.burst)
            if len(self._buckets) > self.most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(source)
        return bucket.tokens if bucket.take(amount, now) else None

    def __len__(self) -> int:
        return len(self._buckets)


ALL_MANIFESTS = 16
"""Times the rate of one neighbour: manifests of all together."""

WANTED, PROMISED, LATE, NOTHING = 1.0, 0.0, -0.25, -1.0
"""What a message was worth: new and asked for, a manifest, before its manifest or after its head, or for nothing.

A whole window of pieces, or acknowledgements of it, may come late from somebody honest: when a manifest gets lost,
or when a newer head overtakes them.
"""

ALL_NUISANCES = 25
"""Times the rate of one neighbour: messages for nothing of all together that do not hurt."""

_PATIENCE = 20.0
"""Seconds' worth of messages for nothing that are taken before a neighbour is let go."""

_GOSSIP = 0.5
_MOST_GOSSIP = 4.0
_PROMISES = 2.0
_MOST_PROMISES = 8.0


class Pool:
    """Half of what all neighbours may cost together, for whoever comes first; each is sure of its part of the rest.

    Parameters
    ----------
    limits : Limits
        How much that is.
    """

    def __init__(self, limits: Limits) -> None:
        self.bytes = Bucket(limits.receive_rate / 2, limits.receive_rate / 2)
        manifests = ALL_MANIFESTS * limits.manifest_rate / 2
        self.manifests = Bucket(manifests, manifests)
        self.nuisance = Bucket(ALL_NUISANCES * limits.nuisance_rate, 4 * ALL_NUISANCES * limits.nuisance_rate)


class Allowance:
    """Budgets of one neighbour. A burst is two seconds' worth.

    Parameters
    ----------
    limits : Limits
        How much is too much.
    """

    def __init__(self, limits: Limits) -> None:
        self._bytes = Bucket(limits.sender_rate, 2 * limits.sender_rate)
        assured = limits.receive_rate / 2 / limits.neighbours
        self._assured_bytes = Bucket(assured, 2 * assured)
        self._manifests = Bucket(limits.manifest_rate, 2 * limits.manifest_rate)
        assured = ALL_MANIFESTS * limits.manifest_rate / 2 / limits.neighbours
        self._assured_manifests = Bucket(assured, 2 * assured)
        self._nuisance = Bucket(limits.nuisance_rate, _PATIENCE * limits.nuisance_rate)
        self._promises = Bucket(_PROMISES, _MOST_PROMISES)
        self._gossip = Bucket(_GOSSIP, _MOST_GOSSIP)

    def take_bytes(self, amount: float, pool: Pool, now: float) -> bool:
        """Tell whether so many bytes may come."""
        return self._bytes.take(amount, now) and (self._assured_bytes.take(amount, now) or pool.bytes.take(amount, now))

    def may_announce(self, now: float) -> bool:
        """Tell whether a manifest is worth a look: cheaper than `take_manifest`, and it takes nothing."""
        return self._manifests.available(now) >= 1 and self._promises.available(now) >= 1

    def take_manifest(self, pool: Pool, now: float) -> bool:
        """Tell whether a manifest's signature may be checked: seldom, if no head ever follows."""
        return (
            self._promises.take(1, now)
            and self._manifests.take(1, now)
            and (self._assured_manifests.take(1, now) or pool.manifests.take(1, now))
        )

    def kept(self) -> None:
        """Take note of a head that followed its manifest: another one may."""
        self._promises.give(1)

    def take_gossip(self, now: float) -> bool:
        """Tell whether addresses that were handed on may be looked at."""
        return self._gossip.take(1, now)

    def bothered(self, price: float, pool: Pool, now: float) -> bool:
        """Take note of a message for nothing; True: that was one too many, and all of them together hurt.

        While they do not, nobody is let go: some honest peers are too quick for a slow line, and most of what they
        send comes late.
        """
        pool.nuisance.take(price, now)
        return not self._nuisance.take(price, now) and pool.nuisance.tokens < pool.nuisance.burst / 10

    def make_up(self, credit: float) -> None:
        """Take note of something useful: it makes up for what was not."""
        self._nuisance.give(credit)


_FIRST_WORDS = 4
"""Datagrams of a newcomer that have a budget of their own: what a handshake takes, and once more."""


class Strangers:
    """Budgets for handshakes from anybody, by address, by network, and for all together.

    A handshake takes two datagrams. Those who say more than a few spend a budget that all of them share, and those who
    begin have one that is theirs: a flood from a few hundred addresses does not keep newcomers out. A hello costs a
    hash, but a join costs signatures: those have a budget of their own.

    Parameters
    ----------
    rate : float
        Datagrams a second of one address; of a network ten times, of all newcomers twenty and of all others ten times
        as many. Joins of one address, too, of a host and of all together, though many may come at once; and next to
        none while there is no room.
    """

    def __init__(self, rate: float) -> None:
        self._of_address = Budgets[Address](rate=rate, burst=2 * rate)
        self._of_network = Budgets[str](rate=10 * rate, burst=40 * rate)
        self._begun = Bucket(10 * rate, 40 * rate)
        self._new = Bucket(20 * rate, 100 * rate)
        self._joins = Budgets[Address](rate=rate, burst=rate)
        self._joins_of_host = Budgets[str](rate=rate, burst=8 * rate)
        self._all_joins = Bucket(rate, 8 * rate)
        self._joins_in_vain = Bucket(0.4 * rate, 4 * rate)

    def admit(self, address: Address, now: float) -> bool:
        """Tell whether a datagram of an address is to be looked at."""
        left = self._of_address.spend(address, 1, now)
        if left is None or not self._of_network.take(network_of(address), 1, now):
            return False
        new = left >= self._of_address.burst - _FIRST_WORDS
        return (self._new if new else self._begun).take(1, now)

    def may_join(self, address: Address, now: float, *, full: bool) -> bool:
        """Tell whether a join of an address, which has a cookie, is to be checked; `full`: there is no room for it."""
        return (
            self._joins.take(address, 1, now)
            and self._joins_of_host.take(address[0], 1, now)
            and (self._joins_in_vain if full else self._all_joins).take(1, now)
        )
