"""Who gets a place, without a network."""

from __future__ import annotations

import random

from bristle.p2p import Limits
from bristle.p2p.contacts import BAN_SECONDS, MOST_BANS, Contacts, NeighbourSlots
from bristle.p2p.limits import NeighbourBudget
from bristle.p2p.neighbour import Link
from bristle.wire.messages import Address, network_of
from bristle.wire.session import Session

LIMITS = Limits(neighbours=8)


def slots_with(addresses: list[Address], *, called: bool = False) -> tuple[NeighbourSlots, dict[bytes, Link], Contacts]:
    contacts, links = Contacts(LIMITS, random.Random(0)), dict[bytes, Link]()
    for number, address in enumerate(addresses):
        session = Session(bytes(32), bytes(32), initiator=called, local=bytes(4), remote=bytes(4))
        key_id = bytes([number]) * 20
        links[key_id] = Link(bytes(64), key_id, address, session, NeighbourBudget(LIMITS), 0.0, 0.0)
    return NeighbourSlots(LIMITS, links, contacts, random.Random(0)), links, contacts


def test_parts_of_the_network() -> None:
    assert network_of(("192.0.2.1", 1)) == network_of(("192.0.2.255", 2)) != network_of(("192.0.3.1", 1))
    assert network_of(("2001:db8::1", 1)) == network_of(("2001:db8::ffff:1", 2)) != network_of(("2001:db8:0:1::1", 1))


def test_a_crowd_gives_way_and_only_to_others() -> None:
    crowd = [("192.0.2.1", port) for port in range(1, 6)]
    others = [(f"10.{number}.0.1", 1) for number in range(3)]
    slots, links, _ = slots_with(crowd + others)
    assert slots.full
    assert not slots.room_for(b"x" * 20, ("192.0.2.7", 9))
    assert slots.room_for(b"x" * 20, ("198.51.100.1", 9))
    for _ in range(20):
        other = slots.evict_for(("198.51.100.1", 9))
        assert other is not None
        assert other.address in crowd
    # Half of the slots is no crowd.
    del links[bytes([0]) * 20]
    links[b"new" * 6] = slots_with([("198.51.100.1", 9)])[1][bytes(20)]
    assert not slots.room_for(b"x" * 20, ("203.0.113.1", 9))


def test_mercy_is_seldom_and_spares_the_oldest_and_those_we_called() -> None:
    addresses = [(f"10.{number}.0.1", 1) for number in range(8)]
    slots, _, _ = slots_with(addresses)
    chosen = [slots.evict_for_isolated(("192.0.2.1", 1), 10.0 * turn) for turn in range(50)]
    assert {link.address for link in chosen if link is not None} == set(addresses[4:])
    assert slots.evict_for_isolated(("192.0.2.1", 1), 490.0) is None
    called, _, _ = slots_with(addresses, called=True)
    assert called.evict_for_isolated(("192.0.2.1", 1), 0.0) is None


def test_newcomers_are_admitted_one_after_the_other_but_for_those_the_user_named() -> None:
    slots, _, contacts = slots_with([])
    assert sum(slots.admits(("192.0.2.1", port), 0.0) for port in range(100)) == 8
    assert sum(slots.admits((f"10.{number}.0.1", 1), 0.0) for number in range(100)) <= 16
    contacts.name(("192.0.2.1", 1), 0.0)
    assert slots.admits(("192.0.2.1", 1), 0.0)


def test_bars_end_and_are_not_remembered_for_ever() -> None:
    slots, _, _ = slots_with([])
    slots.ban(b"a" * 20, 0.0)
    assert slots.banned(b"a" * 20, BAN_SECONDS - 1)
    assert not slots.banned(b"b" * 20, 0.0)
    assert not slots.banned(b"a" * 20, BAN_SECONDS)
    for number in range(MOST_BANS + 10):
        slots.ban(number.to_bytes(20, "big"), 0.0)
    assert not slots.banned((0).to_bytes(20, "big"), 1.0)
    assert slots.banned((MOST_BANS + 9).to_bytes(20, "big"), 1.0)
