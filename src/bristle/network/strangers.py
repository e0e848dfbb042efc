"""What strangers may cost: a budget for each address, before more than the first bytes of a datagram is looked at."""

from __future__ import annotations

from bristle.network.addresses import Address, network_of
from bristle.network.budget import Bucket, Budgets

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
