"""Which addresses to call, and which neighbours keep a slot. No sockets, no clock."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Container, Mapping
from dataclasses import dataclass

from bristle.p2p.limits import Limits, TokenBucket, TokenBuckets
from bristle.p2p.neighbour import Link
from bristle.p2p.route import Route, Via, next_hop
from bristle.wire.messages import Address, network_of

MOST_TRIES = 6
"""Calls to an address before it is forgotten; another peer may pass it on again."""

LEAST_SHARE = 8
"""Addresses that one member may always pass on, however small the list is."""

CALLS_A_SECOND = 0.5
"""Most calls a second, in the long run, to addresses that others passed on, once half of the slots are taken."""


@dataclass
class Contact:
    """An address, who passed it on, and when to try it next."""

    named: bool
    source: bytes
    next_try: float
    key_id: bytes = b""
    tries: int = 0
    connected: bool = False


class Contacts:
    """Addresses to call. Nothing else is ever contacted.

    Parameters
    ----------
    limits : Limits
        Number of addresses, and retry times.
    rng : Random
        Adds jitter to retries, so that peers that start together do not keep calling at the same time.
    """

    def __init__(self, limits: Limits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._contacts: dict[Address, Contact] = {}
        self._named: dict[Address, Contact] = {}
        self._calls = TokenBucket(CALLS_A_SECOND, limits.neighbours)

    def __contains__(self, address: Address) -> bool:
        return address in self._contacts

    def __len__(self) -> int:
        return len(self._contacts)

    def get(self, address: Address) -> Contact:
        """Return what is known of an address."""
        return self._contacts[address]

    def name(self, address: Address, now: float) -> None:
        """Add an address that the user named."""
        self._contacts[address] = self._named[address] = Contact(named=True, source=b"", next_try=now)

    @property
    def named(self) -> list[Address]:
        """The addresses that the user named."""
        return list(self._named)

    def hand_on(self, address: Address, source: bytes, now: float, *, key_id: bytes = b"") -> bool:
        """Add an address that a member passed on, with its key id; return False if its share is used up."""
        if address in self._contacts:
            return True
        if len(self._contacts) >= self._limits.contacts:
            return False
        share = max(LEAST_SHARE, self._limits.contacts // 8)
        handed = sum(1 for contact in self._contacts.values() if contact.source == source and not contact.connected)
        if handed >= share:
            return False
        self._contacts[address] = Contact(named=False, source=source, next_try=now, key_id=key_id)
        return True

    def is_named(self, address: Route) -> bool:
        """Return whether the user named an address."""
        contact = self._found(address)
        return contact is not None and contact.named

    def due(self, now: float, *, taken: int, linked: Container[bytes] = ()) -> list[Address]:
        """Return the addresses to call now and schedule their retries; forget those that failed too often.

        Peers that are neighbours already, at any of their addresses, are not called. If all slots are `taken`, only
        named peers are. Once half of the slots are taken, the others are called a few at a time, the least tried first:
        where most peers have no free slot, each would otherwise keep calling all that it knows.
        """
        hurried = 2 * taken < self._limits.neighbours
        named_only = taken >= self._limits.neighbours or not (hurried or self._calls.available(now) >= 1)
        contacts = list((self._named if named_only else self._contacts).items())
        if not hurried:
            self._rng.shuffle(contacts)
            contacts.sort(key=lambda each: each[1].tries)
        due = []
        for address, contact in contacts:
            if contact.connected or contact.key_id in linked or contact.next_try > now:
                continue
            if contact.tries >= MOST_TRIES and not contact.named:
                del self._contacts[address]
                continue
            if not (hurried or contact.named or self._calls.take(1, now)):
                continue
            wait = min(self._limits.longest_retry, self._limits.retry * 2 ** min(contact.tries, 16))
            contact.next_try = now + wait * self._rng.uniform(0.75, 1.25)
            contact.tries += 1
            due.append(address)
        return due

    def connected(self, address: Address, key_id: bytes, now: float) -> None:
        """Note a connection: no more calls while it lasts."""
        if address not in self._contacts and len(self._contacts) >= self._limits.contacts:
            return  # It called us, and may again.
        contact = self._contacts.setdefault(address, Contact(named=False, source=key_id, next_try=now))
        contact.connected, contact.tries, contact.key_id = True, 0, key_id

    def full(self, address: Route, now: float) -> None:
        """Note that a peer has no free slot: retry after the longest wait."""
        contact = self._found(address)
        if contact is not None:
            contact.next_try = now + self._limits.longest_retry * self._rng.uniform(0.75, 1.25)

    def lost(self, address: Route, now: float) -> None:
        """Note that a neighbour left: call it again."""
        contact = self._found(address)
        if contact is not None:
            contact.connected, contact.tries, contact.next_try = False, 0, now + self._limits.retry

    def forget(self, address: Route) -> None:
        """Forget an address: it is our own, or its peer was banned."""
        if not isinstance(address, Via):
            self._contacts.pop(address, None)
            self._named.pop(address, None)

    def _found(self, route: Route) -> Contact | None:
        return None if isinstance(route, Via) else self._contacts.get(route)


BAN_SECONDS = 60.0
"""Seconds for which a key is banned."""

MOST_BANS = 4096
_ADMISSIONS = 1.0
_MOST_ADMISSIONS = 4.0


class NeighbourSlots:
    """Decides which peers get and keep a neighbour slot.

    No subnet (/24 of IPv4, /64 of IPv6) keeps more than half of the slots while others want one: the owner of one
    machine cannot take them all. Neighbours that another one forwards to count for its subnet. Many peers behind one
    address may still have all slots among themselves.

    Parameters
    ----------
    limits : Limits
        Number of slots.
    links : mapping
        The neighbours, by key id.
    contacts : Contacts
        Knows which peers the user named: they come first.
    rng : Random
        Chooses which neighbour is evicted.
    """

    def __init__(self, limits: Limits, links: Mapping[bytes, Link], contacts: Contacts, rng: random.Random) -> None:
        self._limits, self._links, self._contacts, self._rng = limits, links, contacts, rng
        self._bans: OrderedDict[bytes, float] = OrderedDict()
        most = float(limits.neighbours)
        self._admissions = TokenBucket(_MOST_ADMISSIONS, 2 * most)
        self._admissions_of_network = TokenBuckets[str](rate=_ADMISSIONS, burst=most)
        self._isolated_evictions = TokenBucket(1 / limits.keepalive, 1)

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return len(self._links) >= self._limits.neighbours

    def room_for(self, key_id: bytes, address: Route) -> bool:
        """Return whether a slot is free, or can be freed."""
        return key_id in self._links or not self.full or self.evict_for(address) is not None

    def admits(self, address: Route, now: float) -> bool:
        """Count a new neighbour; return False while too many come, overall or from one subnet."""
        if self._contacts.is_named(address):
            return True
        return self._admissions_of_network.take(network_of(next_hop(address)), 1, now) and self._admissions.take(1, now)

    def evict_for(self, address: Route) -> Link | None:
        """Return a neighbour to evict for a newcomer: one of an overrepresented subnet, or any for a named peer."""
        crowd = self._crowd(address)
        if crowd:
            return self._rng.choice(crowd)
        others = self._others()
        return self._rng.choice(others) if others and self._contacts.is_named(address) else None

    def evict_for_isolated(self, address: Route, now: float) -> Link | None:
        """Return a neighbour to evict for a peer without any neighbour, which might otherwise stay isolated.

        At most one per keep-alive period, none that this peer called itself, and none of the older half: asking again
        and again evicts nobody who was here before.
        """
        if not self._isolated_evictions.take(1, now):
            return None
        # A peer of an overrepresented subnet replaces one of its own.
        others = self._crowd(address) or self._crowd(None) or self._others()
        others = [link for link in others if not link.session.initiator]
        return self._rng.choice(others[len(others) // 2 :]) if others else None

    def _others(self) -> list[Link]:
        """Return the neighbours that the user did not name, oldest first."""
        return [link for link in self._links.values() if not self._contacts.is_named(link.address)]

    def _crowd(self, address: Route | None) -> list[Link]:
        """Return the neighbours of a subnet that has more than half of all slots, unless the newcomer is of it.

        `address` is the newcomer's; None: any.
        """
        others = self._others()
        count = Counter(network_of(next_hop(link.address)) for link in others)
        crowded = [one for one, links in count.items() if 2 * links > self._limits.neighbours]
        if not crowded or (address is not None and crowded[0] == network_of(next_hop(address))):
            return []
        return [link for link in others if network_of(next_hop(link.address)) == crowded[0]]

    def ban(self, key_id: bytes, now: float) -> None:
        """Ban a key for a while."""
        self._bans[key_id] = now + BAN_SECONDS
        self._bans.move_to_end(key_id)
        if len(self._bans) > MOST_BANS:
            self._bans.popitem(last=False)

    def banned(self, key_id: bytes, now: float) -> bool:
        """Return whether a key is banned."""
        until = self._bans.get(key_id)
        if until is not None and until <= now:
            del self._bans[key_id]
        return until is not None and until > now
