"""Who gets a place, without a network."""

from __future__ import annotations

import random

from bristle.p2p import Limits
from bristle.p2p.contacts import BARRED_FOR, MOST_BARRED, Contacts, Places
from bristle.p2p.limits import Allowance
from bristle.p2p.neighbour import Link
from bristle.wire.messages import Address, network_of
from bristle.wire.session import Session

LIMITS = Limits(neighbours=8)


def places_with(addresses: list[Address], *, called: bool = False) -> tuple[Places, dict[bytes, Link], Contacts]:
    contacts, links = Contacts(LIMITS, random.Random(0)), dict[bytes, Link]()
    for number, address in enumerate(addresses):
        session = Session(bytes(32), initiator=called, local=bytes(4), remote=bytes(4))
        key_id = bytes([number]) * 20
        links[key_id] = Link(bytes(64), key_id, address, session, Allowance(LIMITS), 0.0, 0.0)
    return Places(LIMITS, links, contacts, random.Random(0)), links, contacts


def test_parts_of_the_network() -> None:
    assert network_of(("192.0.2.1", 1)) == network_of(("192.0.2.255", 2)) != network_of(("192.0.3.1", 1))
    assert network_of(("2001:db8::1", 1)) == network_of(("2001:db8::ffff:1", 2)) != network_of(("2001:db8:0:1::1", 1))


def test_a_crowd_gives_way_and_only_to_others() -> None:
    crowd = [("192.0.2.1", port) for port in range(1, 6)]
    others = [(f"10.{number}.0.1", 1) for number in range(3)]
    places, links, _ = places_with(crowd + others)
    assert places.full
    assert not places.room_for(b"x" * 20, ("192.0.2.7", 9))
    assert places.room_for(b"x" * 20, ("198.51.100.1", 9))
    for _ in range(20):
        other = places.giving_way_to(("198.51.100.1", 9))
        assert other is not None
        assert other.address in crowd
    # Half of the places is no crowd.
    del links[bytes([0]) * 20]
    links[b"new" * 6] = places_with([("198.51.100.1", 9)])[1][bytes(20)]
    assert not places.room_for(b"x" * 20, ("203.0.113.1", 9))


def test_mercy_is_seldom_and_spares_the_oldest_and_those_we_called() -> None:
    addresses = [(f"10.{number}.0.1", 1) for number in range(8)]
    places, _, _ = places_with(addresses)
    chosen = [places.mercy(("192.0.2.1", 1), 10.0 * turn) for turn in range(50)]
    assert {link.address for link in chosen if link is not None} == set(addresses[4:])
    assert places.mercy(("192.0.2.1", 1), 490.0) is None
    called, _, _ = places_with(addresses, called=True)
    assert called.mercy(("192.0.2.1", 1), 0.0) is None


def test_newcomers_are_admitted_one_after_the_other_but_for_those_the_user_named() -> None:
    places, _, contacts = places_with([])
    assert sum(places.admits(("192.0.2.1", port), 0.0) for port in range(100)) == 8
    assert sum(places.admits((f"10.{number}.0.1", 1), 0.0) for number in range(100)) <= 16
    contacts.name(("192.0.2.1", 1), 0.0)
    assert places.admits(("192.0.2.1", 1), 0.0)


def test_bars_end_and_are_not_remembered_for_ever() -> None:
    places, _, _ = places_with([])
    places.bar(b"a" * 20, 0.0)
    assert places.barred(b"a" * 20, BARRED_FOR - 1)
    assert not places.barred(b"b" * 20, 0.0)
    assert not places.barred(b"a" * 20, BARRED_FOR)
    for number in range(MOST_BARRED + 10):
        places.bar(number.to_bytes(20, "big"), 0.0)
    assert not places.barred((0).to_bytes(20, "big"), 1.0)
    assert places.barred((MOST_BARRED + 9).to_bytes(20, "big"), 1.0)
