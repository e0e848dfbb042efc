from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle.p2p import Limits
from bristle.wire import Group, Identity, Refusal
from bristle.wire.grid import encode_grid, on_grid
from bristle.wire.session import SEALED
from bristle.wire.sizes import head_bytes

if TYPE_CHECKING:
    from bristle.p2p.node import Node
    from tests.support.network import Matrix, VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
Heads = Callable[..., "Matrix"]


def test_a_new_peer_that_knows_one_address_finds_all(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = network.mesh(8, group)
    assert all(len(node.neighbours(network.now)) == 7 for node in nodes)
    # Fast, too: a round trip to the known one, one to the others.
    assert network.now < 1003


def test_heads_go_to_all_with_their_claims(virtual: Networks, large: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(4, large)
    claims = np.arange(10) % 3 == 0
    head = head_of(large)
    nodes[0].share(head, iteration=7, claims=claims, now=network.now)
    assert network.run(2, lambda: nodes[0].outbox.settled(network.now))
    found = []
    for node in nodes[1:]:
        (received,) = node.take()
        assert received.sender == nodes[0].membership.identity.key_id
        assert received.iteration == 7
        assert received.claims is not None
        np.testing.assert_array_equal(received.claims, claims)
        assert received.head.dtype == np.float32
        found.append(received.head)
        assert not node.take()
    np.testing.assert_allclose(found[0], head, atol=0.02 * np.abs(head).max())
    assert all(np.array_equal(found[0], other) for other in found[1:])
    assert nodes[0].counters.heads_out == 3


@pytest.mark.parametrize("datagram", [1232, 8192])
def test_what_a_head_takes_is_what_the_size_function_says(
    virtual: Networks, large: Group, head_of: Heads, datagram: int
) -> None:
    network = virtual()
    nodes = network.mesh(2, large, limits=Limits(loopback_datagram=datagram))
    head: Any = head_of(large)
    public, most = None, 0
    for iteration in range(4):
        before, public = public, on_grid(head, public)
        network.sent_bytes = 0
        nodes[0].share(head, iteration=iteration, now=network.now)
        network.run(0.1)
        assert network.sent_bytes == head_bytes(10, 800, body=len(encode_grid(public, before)), datagram=datagram)
        most = max(most, network.sent_bytes)
        head = head + head_of(large, 10 + iteration) / 20
    assert network.sent_bytes < most / 2


def share_and_take(network: VirtualNetwork, nodes: list[Node], head: Matrix, iteration: int, size: float) -> float:
    """Share a head of the first node, and see to it that all others get the same; return the bytes it took."""
    network.sent_bytes = 0
    nodes[0].share(head, iteration=iteration, now=network.now)
    assert network.run(4, lambda: nodes[0].outbox.settled(network.now))
    heads = [received.head for node in nodes[1:] for received in node.take()]
    assert len(heads) == len(nodes) - 1
    assert all(np.array_equal(heads[0], other) for other in heads)
    np.testing.assert_allclose(heads[0], head, atol=size)
    return network.sent_bytes


def test_who_missed_some_heads_gets_what_it_needs(virtual: Networks, large: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(3, large)
    head: Any = head_of(large)
    whole = share_and_take(network, nodes, head, 1, 0.005)
    deaf = ("127.0.0.1", 3)
    for missed in (1, 3, 9):
        network.silenced.add(deaf)
        for iteration in range(missed):
            head = head + head_of(large, iteration) / 100
            nodes[0].share(head, iteration=iteration, now=network.now)
            network.run(0.2)
        network.silenced.clear()
        nodes[1].take()
        head = head + head_of(large, 99) / 100
        sent = share_and_take(network, nodes, head, 50 + missed, 0.005)
        assert sent < whole if missed < 8 else sent < 2 * whole
        assert not any(node.counters.refused.total() for node in nodes)


def test_a_neighbour_without_the_base_asks_for_the_whole_head(virtual: Networks, large: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(3, large)
    head: Any = head_of(large)
    share_and_take(network, nodes, head, 1, 0.005)
    for spoilt in (False, True):
        bases = next(iter(nodes[2].membership.links[nodes[0].membership.identity.key_id].bases.values()))
        if spoilt:
            bases.steps[0, 0] += 1  # It leads to another head than the one that was signed.
        else:
            nodes[2].membership.links[nodes[0].membership.identity.key_id].bases.clear()
        head = head + head_of(large, 7) / 100
        share_and_take(network, nodes, head, 2, 0.005)
        assert nodes[2].counters.refused.total() == nodes[2].counters.refused[Refusal.BAD_DIGEST] == spoilt
        assert nodes[0].counters.heads_given_up == 0
    assert share_and_take(network, nodes, head, 3, 0.005) < 5000


def test_where_no_head_has_room_to_be_kept_all_are_sent_whole(virtual: Networks, large: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(2, large, limits=Limits(memory=100_000))
    sent = [share_and_take(network, nodes, head_of(large), iteration, 0.005) for iteration in range(3)]
    assert min(sent) > 7000
    assert not nodes[1].membership.links[nodes[0].membership.identity.key_id].bases


def test_heads_arrive_through_loss_delay_reordering_and_duplication(
    virtual: Networks, rough: dict[str, float], large: Group, head_of: Heads
) -> None:
    network = virtual(3, **rough)
    nodes = network.mesh(5, large)

    def all_have(count: int) -> bool:
        return all(node.counters.heads_in == count for node in nodes)

    for iteration in range(1, 6):
        for index, node in enumerate(nodes):
            node.share(head_of(large, index), iteration=iteration, now=network.now)
        assert network.run(10, partial(all_have, 4 * iteration))
        for node in nodes:
            received = node.take()
            assert len(received) == 4
            assert {each.iteration for each in received} == {iteration}
    assert sum(node.counters.retransmissions for node in nodes) > 0
    # Twenty in a hundred are lost; sending everything twice would be a bad way to cope.
    shared = sum(node.counters.heads_out for node in nodes)
    assert sum(node.counters.retransmissions for node in nodes) < 0.6 * 6 * shared


def test_a_newer_head_replaces_one_in_flight(virtual: Networks, large: Group, head_of: Heads) -> None:
    network = virtual(delay=0.05)
    nodes = network.mesh(2, large)
    nodes[0].share(head_of(large, 1), iteration=1, now=network.now)
    network.run(0.02)
    nodes[0].share(head_of(large, 2), iteration=2, now=network.now)
    assert network.run(2, lambda: nodes[0].outbox.settled(network.now))
    (received,) = nodes[1].take()
    assert received.iteration == 2
    assert nodes[0].counters.heads_given_up == 1
    network.run(2)
    assert not nodes[1].take()
    assert nodes[1].inbox.memory == 0


def test_a_newcomer_gets_the_newest_head(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(2, group)
    nodes[0].share(head_of(group), iteration=9, now=network.now)
    network.run(1)
    late = network.add(group, port=9)
    late.name(("127.0.0.1", 2), network.now)
    network.run(3)
    assert [received.iteration for received in late.take()] == [9]


def test_neighbours_are_bounded_and_the_rest_still_find_somebody(virtual: Networks, group: Group) -> None:
    network = virtual(5)
    limits = Limits(neighbours=3, loopback_datagram=1232)
    nodes = [network.add(group, port=1 + index, limits=limits) for index in range(10)]
    for node in nodes[1:]:
        node.name(("127.0.0.1", 1), network.now)
    network.run(40)
    counts = [len(node.membership.links) for node in nodes]
    assert max(counts) <= 3
    assert min(counts) >= 1
    assert nodes[0].counters.refused[Refusal.FULL] > 0
    assert all(len(node.membership.sessions) < 20 for node in nodes)


def test_a_neighbour_whom_the_user_named_gets_room(virtual: Networks, group: Group) -> None:
    network = virtual()
    limits = Limits(neighbours=2, loopback_datagram=1232)
    crowded = network.add(group, port=1, limits=limits)
    for port in (2, 3):
        network.add(group, port=port).name(("127.0.0.1", 1), network.now)
    assert network.run(5, lambda: len(crowded.membership.links) == 2)
    friend = network.add(group, port=4)
    crowded.name(("127.0.0.1", 4), network.now)
    assert network.run(5, lambda: ("127.0.0.1", 4) in [each.address for each in crowded.neighbours(network.now)])
    assert len(crowded.membership.links) == 2
    assert network.run(1, lambda: bool(friend.membership.links))


def test_a_silent_peer_is_dropped_and_comes_back(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = network.mesh(3, group)
    network.silenced.add(("127.0.0.1", 3))
    assert network.run(60, lambda: len(nodes[0].membership.links) == 1)
    assert [(each.address or ("", 0))[1] for each in nodes[0].neighbours(network.now)] == [2]
    network.run(60)  # Long enough for all that was handed on to be forgotten.
    network.silenced.clear()
    # The one that was cut off knows one address, and tries it for ever.
    assert network.run(60, lambda: all(len(node.membership.links) == 2 for node in nodes))


def test_a_peer_that_leaves_is_let_go_at_once(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = network.mesh(3, group)
    nodes[2].leave()
    network.remove(("127.0.0.1", 3))
    assert network.run(0.5, lambda: all(len(node.membership.links) == 1 for node in nodes[:2]))


def test_a_peer_that_restarts_takes_the_place_of_its_past_and_gets_heads(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    identity = Identity.generate()
    first, second = network.add(group, port=1), network.add(group, port=2, identity=identity)
    second.name(("127.0.0.1", 1), network.now)
    assert network.run(5, lambda: bool(first.membership.links))
    second.share(head_of(group), iteration=3, now=network.now)
    network.run(1)
    assert [received.iteration for received in first.take()] == [3]
    first.share(head_of(group), iteration=1, now=network.now)
    # kill -9, and its clock is an hour behind when it is back.
    network.remove(("127.0.0.1", 2))
    network.run(1)
    again = network.add(group, port=2, identity=identity, slow=3600)
    again.name(("127.0.0.1", 1), network.now)
    assert network.run(5, lambda: bool(again.membership.links))
    network.run(1)
    assert [received.iteration for received in again.take()] == [1]
    again.share(head_of(group), iteration=4, now=network.now)
    network.run(1)
    assert [received.iteration for received in first.take()] == [4]
    assert len(first.membership.links) == 1


def test_two_groups_never_exchange_a_head(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    other_group = replace(group, application="another")
    nodes = [network.add(group if index % 2 else other_group, port=1 + index) for index in range(4)]
    for node in nodes:
        for port in range(1, 5):
            node.name(("127.0.0.1", port), network.now)
    network.run(5)
    for index, node in enumerate(nodes):
        node.share(head_of(group), iteration=index, now=network.now)
    network.run(5)
    assert [[received.iteration for received in node.take()] for node in nodes] == [[2], [3], [0], [1]]
    assert all(node.counters.refused[Refusal.WRONG_GROUP] > 0 for node in nodes)


@pytest.mark.parametrize("closed_by", ["secret", "members"])
def test_an_outsider_gets_nothing_from_a_closed_group(
    virtual: Networks, group: Group, head_of: Heads, closed_by: str
) -> None:
    network = virtual()
    insiders, outsider = [Identity.generate() for _ in range(2)], Identity.generate()
    if closed_by == "secret":
        closed = replace(group, secret=b"correct horse battery staple")
        outside = replace(group, secret=b"incorrect horse battery staple")
        # Even one that knows the group's id, which all can see, but not its secret.
        object.__setattr__(outside, "id", closed.id)
    else:
        closed = replace(group, members=frozenset(each.key_id for each in insiders))
        outside = group
    first, second = (network.add(closed, port=1 + index, identity=each) for index, each in enumerate(insiders))
    second.name(("127.0.0.1", 1), network.now)
    spy = network.add(outside, port=3, identity=outsider)
    spy.name(("127.0.0.1", 1), network.now)
    first.name(("127.0.0.1", 3), network.now)  # Somebody even named the outsider's address.
    network.run(5)
    first.share(head_of(group), iteration=1, now=network.now)
    network.run(5)
    assert [received.iteration for received in second.take()] == [1]
    assert not spy.take()
    assert not spy.membership.links
    assert first.counters.refused[Refusal.NOT_A_MEMBER] > 0
    # What it was sent says nothing but who called: a cookie, a hello, a join.
    assert {len(datagram) for _, to, datagram in network.traffic if to[1] == 3} <= {56, 64, 205}
    assert all(datagram[22] in (1, 2, 3) for _, to, datagram in network.traffic if to[1] == 3)


def test_a_neighbour_that_never_acknowledges_does_not_hold_up_the_rest(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    nodes = network.mesh(5, group)
    network.silenced.add(("127.0.0.1", 5))
    nodes[0].share(head_of(group), iteration=1, now=network.now)
    start = network.now
    assert network.run(5, lambda: nodes[0].outbox.settled(network.now))
    assert network.now - start < 0.5
    network.run(6)
    assert nodes[0].counters.heads_given_up == 1
    start = network.now
    nodes[0].share(head_of(group), iteration=2, now=network.now)
    assert network.run(5, lambda: nodes[0].outbox.settled(network.now))
    assert network.now - start < 0.05


def test_a_peer_that_calls_itself_forgets_about_it(virtual: Networks, group: Group) -> None:
    network = virtual()
    node = network.add(group, port=1)
    node.name(("127.0.0.1", 1), network.now)
    network.run(5)
    assert not node.membership.links
    assert ("127.0.0.1", 1) not in node.membership.contacts


def test_a_peer_outside_its_own_list_of_members_is_told_so(virtual: Networks, group: Group) -> None:
    with pytest.raises(ValueError, match="not in the group's list of members"):
        virtual().add(replace(group, members=frozenset([bytes(20)])), port=1)


def test_wrong_heads_are_refused_before_they_leave(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    node = network.add(group, port=1)
    with pytest.raises(ValueError, match="shape"):
        node.share(np.zeros((10, 81), np.float32), iteration=1, now=network.now)
    with pytest.raises(ValueError, match="claims"):
        node.share(head_of(group), iteration=1, claims=np.ones(9, np.bool_), now=network.now)
    with pytest.raises(ValueError, match="iteration"):
        node.share(head_of(group), iteration=-1, now=network.now)


def test_a_peer_with_two_addresses_is_called_at_one(virtual: Networks, group: Group) -> None:
    network, one, other = virtual(), ("127.0.0.1", 1), ("127.0.0.1", 2)
    faces = [("127.9.0.1", 1), ("127.9.0.2", 1)]
    deliver = network.deliver

    def relayed(source: Any, to: Any, datagram: bytes) -> None:
        deliver(to, one if source == other else other, datagram)

    network.deliver = relayed  # type: ignore[method-assign]
    network.add(group, port=1)
    caller = network.add(group, port=2)
    for face in faces:
        caller.name(face, network.now)
    assert network.run(10, lambda: len(caller.neighbours(network.now)) == 1)
    network.run(300)
    before = len(network.traffic)
    network.run(1000)
    # Signs of life to one of the addresses, and no handshake with the other again and again.
    assert all(datagram[0] == SEALED for _, _, datagram in network.traffic[before:])
    assert {to for source, to, _ in network.traffic[before:] if source == other} == {
        caller.neighbours(network.now)[0].address
    }
