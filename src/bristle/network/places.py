"""Who gets a place among the neighbours, who gives way, and who is kept out for a while. No sockets, no clock."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Mapping

from bristle.network.addresses import Address, network_of
from bristle.network.budget import Bucket, Budgets
from bristle.network.contacts import Contacts
from bristle.network.limits import Limits
from bristle.network.neighbour import Link

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
