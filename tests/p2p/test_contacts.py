from __future__ import annotations

import itertools
import random

import pytest

from bristle.p2p import Limits
from bristle.p2p.contacts import CALLS_A_SECOND, MOST_TRIES, Contacts


@pytest.fixture
def contacts() -> Contacts:
    return Contacts(Limits(contacts=64, retry=1.0, longest_retry=8.0), random.Random(0))


def tries(contacts: Contacts, seconds: int) -> list[float]:
    return [now / 10 for now in range(seconds * 10) if contacts.due(now / 10, taken=0)]


def test_a_named_address_is_tried_for_ever_less_and_less_often(contacts: Contacts) -> None:
    contacts.name(("192.0.2.1", 1), 0.0)
    times = tries(contacts, 300)
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits[0] < 1.5
    assert all(5.9 <= wait <= 10.1 for wait in waits[4:])
    assert len(times) > 30


def test_an_address_that_was_handed_on_is_tried_a_few_times(contacts: Contacts) -> None:
    assert contacts.hand_on(("192.0.2.1", 1), b"member", 0.0)
    assert len(tries(contacts, 300)) == MOST_TRIES
    assert len(contacts) == 0


def test_connected_ones_are_left_alone_and_tried_again_when_lost(contacts: Contacts) -> None:
    contacts.name(("192.0.2.1", 1), 0.0)
    contacts.connected(("192.0.2.1", 1), b"key", 0.0)
    assert not tries(contacts, 100)
    contacts.lost(("192.0.2.1", 1), 100.0)
    assert contacts.due(101.0, taken=32) == [("192.0.2.1", 1)]
    contacts.full(("192.0.2.1", 1), 101.0)
    assert not contacts.due(105.0, taken=32)
    assert contacts.due(112.0, taken=32)


def test_one_member_cannot_fill_the_list(contacts: Contacts) -> None:
    taken = sum(contacts.hand_on(("192.0.2.1", port), b"liar", 0.0) for port in range(1, 100))
    assert taken == 8
    assert contacts.hand_on(("192.0.2.2", 1), b"honest", 0.0)
    for member in range(20):
        for port in range(1, 10):
            contacts.hand_on((f"192.0.2.{member + 3}", port), bytes([member]), 0.0)
    assert len(contacts) == 64


def test_with_no_room_only_named_ones_are_called(contacts: Contacts) -> None:
    contacts.name(("192.0.2.1", 1), 0.0)
    contacts.hand_on(("192.0.2.2", 1), b"member", 0.0)
    assert contacts.due(1.0, taken=32) == [("192.0.2.1", 1)]
    assert contacts.is_named(("192.0.2.1", 1))
    assert not contacts.is_named(("192.0.2.2", 1))
    contacts.forget(("192.0.2.1", 1))
    assert ("192.0.2.1", 1) not in contacts


def test_from_half_of_the_slots_on_few_are_called_at_a_time() -> None:
    contacts = Contacts(Limits(neighbours=10, contacts=1000), random.Random(0))
    for port in range(1, 201):
        contacts.hand_on(("192.0.2.2", port), bytes([port % 20]), 0.0)
    contacts.name(("192.0.2.1", 1), 0.0)
    called: list[tuple[str, int]] = []
    for tick in range(600):
        for address in contacts.due(tick / 10, taken=5):
            called.append(address)
            contacts.full(address, tick / 10)
    handed = [address for address in called if address[0] == "192.0.2.2"]
    assert 38 <= len(handed) <= 10 + 60 * CALLS_A_SECOND + 1
    assert len(set(handed)) == len(handed)
    assert handed != sorted(handed)
    assert ("192.0.2.1", 1) in called
    hurried = contacts.due(60.0, taken=4)
    assert len(hurried) > 100


def test_a_peer_is_not_called_at_another_of_its_addresses(contacts: Contacts) -> None:
    contacts.hand_on(("192.0.2.1", 1), b"member", 0.0, key_id=b"key")
    contacts.hand_on(("192.0.2.2", 1), b"member", 0.0, key_id=b"another")
    assert contacts.due(0.0, taken=0, linked={b"key"}) == [("192.0.2.2", 1)]
    assert contacts.due(0.1, taken=0, linked={b"another"}) == [("192.0.2.1", 1)]


def test_a_caller_is_not_kept_in_mind_where_there_is_no_room(contacts: Contacts) -> None:
    for port in range(1, 65):
        contacts.name(("192.0.2.1", port), 0.0)
    contacts.connected(("192.0.2.2", 1), b"key", 0.0)
    assert ("192.0.2.2", 1) not in contacts
    contacts.connected(("192.0.2.1", 1), b"key", 0.0)
    assert len(contacts) == 64


def test_what_is_said_of_unknown_addresses_changes_nothing(contacts: Contacts) -> None:
    contacts.full(("192.0.2.1", 1), 0.0)
    contacts.lost(("192.0.2.1", 1), 0.0)
    contacts.forget(("192.0.2.1", 1))
    assert len(contacts) == 0
    assert not contacts.due(100.0, taken=0)
