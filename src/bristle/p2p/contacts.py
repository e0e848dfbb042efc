"""Which addresses to call, and which neighbours keep a slot. No sockets, no clock."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Container, Mapping
from dataclasses import dataclass

from bristle.p2p.limits import Bucket, Budgets, Limits
from bristle.p2p.neighbour import Link
from bristle.wire.messages import Address, network_of

MOST_TRIES = 6
"""Calls to an address that was handed on before it is forgotten; somebody may hand it on again."""

LEAST_SHARE = 8
"""Addresses that one member may have handed on, at least, in however small a list."""


@dataclass
class Contact:
    """An address, where it is from, and when to try it next."""

    named: bool
    source: bytes
    next_try: float
    key_id: bytes = b""
    tries: int = 0
    connected: bool = False


class Contacts:
    """Addresses worth a try. Nothing else is ever contacted.

    Parameters
    ----------
    limits : Limits
        How many to keep, and how often to try.
    rng : Random
        Spreads tries, so that peers that start together do not call together for ever.
    """

    def __init__(self, limits: Limits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._contacts: dict[Address, Contact] = {}

    def __contains__(self, address: Address) -> bool:
        return address in self._contacts

    def __len__(self) -> int:
        return len(self._contacts)

    def name(self, address: Address, now: float) -> None:
        """Add an address that the user named."""
        self._contacts[address] = Contact(named=True, source=b"", next_try=now)

    @property
    def named(self) -> list[Address]:
        """The addresses that the user named."""
        return [address for address, contact in self._contacts.items() if contact.named]

    def hand_on(self, address: Address, source: bytes, now: float, *, key_id: bytes = b"") -> bool:
        """Add an address that a member handed on, and whose it is; False if there is no room for more of its."""
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

    def is_named(self, address: Address) -> bool:
        """Tell whether the user named an address."""
        contact = self._contacts.get(address)
        return contact is not None and contact.named

    def due(self, now: float, *, named_only: bool, linked: Container[bytes] = ()) -> list[Address]:
        """Return the addresses to call now, and note the next time; those tried in vain too often are forgotten.

        Peers that are linked, by whichever of their addresses, are not called.
        """
        due = []
        for address, contact in list(self._contacts.items()):
            if (
                contact.connected
                or contact.key_id in linked
                or contact.next_try > now
                or (named_only and not contact.named)
            ):
                continue
            if contact.tries >= MOST_TRIES and not contact.named:
                del self._contacts[address]
                continue
            wait = min(self._limits.longest_retry, self._limits.retry * 2 ** min(contact.tries, 16))
            contact.next_try = now + wait * self._rng.uniform(0.75, 1.25)
            contact.tries += 1
            due.append(address)
        return due

    def connected(self, address: Address, key_id: bytes, now: float) -> None:
        """Note that a peer was reached: no more calls while it lasts."""
        if address not in self._contacts and len(self._contacts) >= self._limits.contacts:
            return  # It called us, and may again.
        contact = self._contacts.setdefault(address, Contact(named=False, source=key_id, next_try=now))
        contact.connected, contact.tries, contact.key_id = True, 0, key_id

    def full(self, address: Address, now: float) -> None:
        """Note that a peer has no room: it is asked again, but not soon."""
        contact = self._contacts.get(address)
        if contact is not None:
            contact.next_try = now + self._limits.longest_retry * self._rng.uniform(0.75, 1.25)

    def lost(self, address: Address, now: float) -> None:
        """Note that a peer went away: it is called again."""
        contact = self._contacts.get(address)
        if contact is not None:
            contact.connected, contact.tries, contact.next_try = False, 0, now + self._limits.retry

    def forget(self, address: Address) -> None:
        """Never call an address again, unless it is handed on again: it is our own, or nobody of the group."""
        self._contacts.pop(address, None)


BARRED_FOR = 60.0
"""Seconds for which a key is kept out whose owner was a nuisance."""

MOST_BARRED = 4096
_ADMISSIONS = 1.0
_MOST_ADMISSIONS = 4.0


class Places:
    """The places among the neighbours.

    No part of the network (256 addresses of IPv4, one link of IPv6) keeps more than half of them while others want
    one: whoever owns one machine cannot fill them all. Many peers behind one address may still have them all among
    themselves.

    Parameters
    ----------
    limits : Limits
        How many there are.
    links : mapping
        The neighbours, by key id.
    contacts : Contacts
        Tells whom the user named: they come first.
    rng : Random
        Chooses who gives way.
    """

    def __init__(self, limits: Limits, links: Mapping[bytes, Link], contacts: Contacts, rng: random.Random) -> None:
        self._limits, self._links, self._contacts, self._rng = limits, links, contacts, rng
        self._barred: OrderedDict[bytes, float] = OrderedDict()
        most = float(limits.neighbours)
        self._admissions = Bucket(_MOST_ADMISSIONS, 2 * most)
        self._admissions_of_network = Budgets[str](rate=_ADMISSIONS, burst=most)
        self._mercy = Bucket(1 / limits.keepalive, 1)

    @property
    def full(self) -> bool:
        """Whether every place is taken."""
        return len(self._links) >= self._limits.neighbours

    def room_for(self, key_id: bytes, address: Address) -> bool:
        """Tell whether there is a place, or somebody who would give way."""
        return key_id in self._links or not self.full or self.giving_way_to(address) is not None

    def admits(self, address: Address, now: float) -> bool:
        """Take note of somebody new; False: too many have come of late, so that none of them gets a place now."""
        if self._contacts.is_named(address):
            return True
        return self._admissions_of_network.take(network_of(address), 1, now) and self._admissions.take(1, now)

    def giving_way_to(self, address: Address) -> Link | None:
        """Return a neighbour that gives its place to a newcomer: to one whom the user named, or of a crowd."""
        crowd = self._crowd(address)
        if crowd:
            return self._rng.choice(crowd)
        others = self._others()
        return self._rng.choice(others) if others and self._contacts.is_named(address) else None

    def mercy(self, address: Address, now: float) -> Link | None:
        """Return a neighbour that gives its place to somebody who has none: else some would stay alone for ever.

        Seldom, none that we called ourselves, and of the rest none of those who have been here for longest: asking
        for mercy again and again drives nobody out who was here before.
        """
        if not self._mercy.take(1, now):
            return None
        # One of a crowd takes the place of one of its own.
        others = self._crowd(address) or self._crowd(None) or self._others()
        others = [link for link in others if not link.session.initiator]
        return self._rng.choice(others[len(others) // 2 :]) if others else None

    def _others(self) -> list[Link]:
        """Return whom the user did not name, those who have been here for longest first."""
        return [link for link in self._links.values() if not self._contacts.is_named(link.address)]

    def _crowd(self, address: Address | None) -> list[Link]:
        """Return the neighbours from a part of the network that has more than half of all places, unless it is theirs.

        `address` is that of a newcomer; None: whoever it is.
        """
        others = self._others()
        count = Counter(network_of(link.address) for link in others)
        crowded = [one for one, links in count.items() if 2 * links > self._limits.neighbours]
        if not crowded or (address is not None and crowded[0] == network_of(address)):
            return []
        return [link for link in others if network_of(link.address) == crowded[0]]

    def bar(self, key_id: bytes, now: float) -> None:
        """Keep somebody out for a while."""
        self._barred[key_id] = now + BARRED_FOR
        self._barred.move_to_end(key_id)
        if len(self._barred) > MOST_BARRED:
            self._barred.popitem(last=False)

    def barred(self, key_id: bytes, now: float) -> bool:
        """Tell whether somebody is kept out."""
        until = self._barred.get(key_id)
        if until is not None and until <= now:
            del self._barred[key_id]
        return until is not None and until > now
