"""Addresses worth a try: those the user named, for ever, and those that members handed on, for a while."""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass

from bristle.network.addresses import Address
from bristle.network.limits import Limits

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
