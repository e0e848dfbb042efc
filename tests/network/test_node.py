from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.network import Group, Identity, Limits, Refusal
from bristle.network import messages as wire
from bristle.network.manifest import Manifest, digests_of, encode_manifest
from bristle.network.messages import Peers, Piece, SignedManifest
from bristle.network.neighbour import Link
from bristle.network.node import Node
from bristle.peer.wire_size import head_bytes, piece_bytes

if TYPE_CHECKING:
    from tests.network.conftest import Matrix, VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
Heads = Callable[..., "Matrix"]

GROUP = Group(application="test", backbone="backbone", classes=tuple("0123456789"), features=80)
near = st.integers(2**40 - 2, 2**40 + 2)
valid_messages = st.one_of(
    st.builds(Piece, near, st.integers(0, 20), st.binary(min_size=1, max_size=1300)),
    st.builds(wire.Acknowledgement, near, st.integers(0, 65_535), st.integers(0, 2**40)),
    st.builds(SignedManifest, st.integers(512, 8192), st.binary(min_size=1, max_size=1100)),
    st.builds(Peers, st.integers(0, 2**64 - 1), st.just(((bytes(20), ("127.0.0.1", 9)),))),
    st.just(wire.Leave()),
).map(wire.encode)


def link_between(one: Node, other: Node) -> Link:
    return next(link for link in one.membership.links.values() if link.key_id == other.membership._identity.key_id)


def say(one: Node, other: Node, message: wire.Message | bytes) -> None:
    """Send something as a neighbour can that does not keep to the protocol."""
    one._say(link_between(one, other), message if isinstance(message, bytes) else wire.encode(message))


def test_a_new_peer_that_knows_one_address_finds_all(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = network.mesh(8, group)
    assert all(len(node.neighbours(network.now)) == 7 for node in nodes)
    # Fast, too: a round trip to the known one, one to the others.
    assert network.now < 1003


@pytest.mark.parametrize("encoding", ["float32", "float16", "int8"])
def test_heads_go_to_all_with_their_claims(virtual: Networks, large: Group, head_of: Heads, encoding: str) -> None:
    network = virtual()
    nodes = network.mesh(4, large)
    claims = np.arange(10) % 3 == 0
    head = head_of(large)
    nodes[0].share(head, iteration=7, claims=claims, encoding=encoding, now=network.now)  # type: ignore[arg-type]
    assert network.run(2, lambda: nodes[0].outbox.settled(network.now))
    for node in nodes[1:]:
        (received,) = node.take()
        assert received.sender == nodes[0].membership._identity.key_id
        assert received.iteration == 7
        assert received.claims is not None
        np.testing.assert_array_equal(received.claims, claims)
        np.testing.assert_allclose(received.head, head, atol={"float32": 0, "float16": 1e-4, "int8": 2e-3}[encoding])
        assert received.head.dtype == np.float32
        assert not node.take()
    assert nodes[0].tally.heads_out == 3


@pytest.mark.parametrize("datagram", [1232, 8192])
@pytest.mark.parametrize("encoding", ["float32", "int8"])
def test_what_a_head_takes_is_what_the_size_function_says(
    virtual: Networks, large: Group, head_of: Heads, encoding: str, datagram: int
) -> None:
    network = virtual()
    nodes = network.mesh(2, large, limits=Limits(loopback_datagram=datagram))
    network.sent_bytes = 0
    nodes[0].share(head_of(large), iteration=1, encoding=encoding, compress=False, now=network.now)  # type: ignore[arg-type]
    network.run(0.5)
    assert network.sent_bytes == head_bytes(10, 800, encoding=encoding, datagram=datagram)  # type: ignore[arg-type]


def test_heads_arrive_through_loss_delay_reordering_and_duplication(
    virtual: Networks, rough: dict[str, float], large: Group, head_of: Heads
) -> None:
    network = virtual(3, **rough)
    nodes = network.mesh(5, large)

    def all_have(count: int) -> bool:
        return all(node.tally.heads_in == count for node in nodes)

    for iteration in range(1, 6):
        for index, node in enumerate(nodes):
            node.share(head_of(large, index), iteration=iteration, now=network.now)
        assert network.run(10, partial(all_have, 4 * iteration))
        for node in nodes:
            received = node.take()
            assert len(received) == 4
            assert {each.iteration for each in received} == {iteration}
    assert sum(node.tally.retransmissions for node in nodes) > 0
    # Twenty in a hundred are lost; sending everything twice would be a bad way to cope.
    shared = sum(node.tally.heads_out for node in nodes)
    assert sum(node.tally.retransmissions for node in nodes) < 0.6 * 28 * shared


def test_a_newer_head_replaces_one_in_flight(virtual: Networks, large: Group, head_of: Heads) -> None:
    network = virtual(delay=0.05)
    nodes = network.mesh(2, large)
    nodes[0].share(head_of(large, 1), iteration=1, now=network.now)
    network.run(0.02)
    nodes[0].share(head_of(large, 2), iteration=2, now=network.now)
    assert network.run(2, lambda: nodes[0].outbox.settled(network.now))
    (received,) = nodes[1].take()
    assert received.iteration == 2
    assert nodes[0].tally.heads_given_up == 1
    network.run(2)
    assert not nodes[1].take()
    assert nodes[1].inbox._memory == 0


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
    assert nodes[0].tally.refused[Refusal.FULL] > 0
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
    assert [each.address[1] for each in nodes[0].neighbours(network.now)] == [2]
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
    clock, network.now = network.now, network.now - 3600
    again = network.add(group, port=2, identity=identity)
    network.now = clock
    network._ticks["127.0.0.1", 2] = clock
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
    assert all(node.tally.refused[Refusal.WRONG_GROUP] > 0 for node in nodes)


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
    assert first.tally.refused[Refusal.NOT_A_MEMBER] > 0
    # What it was sent says nothing but who called: a cookie, a hello, a join.
    assert {len(datagram) for _, to, datagram in network.traffic if to[1] == 3} <= {55, 64, 22 + 215}
    assert all(datagram[22] in (1, 2, 3) for _, to, datagram in network.traffic if to[1] == 3)


def test_a_replayed_datagram_is_refused_and_counted(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(2, group)
    network.traffic.clear()
    nodes[0].share(head_of(group), iteration=1, now=network.now)
    network.run(1)
    assert len(nodes[1].take()) == 1
    before = nodes[1].tally.refused[Refusal.REPLAY]
    replayed = [(source, datagram) for source, to, datagram in network.traffic if to == ("127.0.0.1", 2)]
    for source, datagram in replayed:
        nodes[1].receive(source, datagram, network.now)
    assert nodes[1].tally.refused[Refusal.REPLAY] == before + len(replayed)
    assert not nodes[1].take()
    # From another address, it does not even find a session.
    nodes[1].receive(("127.0.0.1", 99), replayed[0][1], network.now)
    assert nodes[1].tally.refused[Refusal.UNKNOWN_SESSION] == 1


def test_an_old_manifest_is_refused_though_its_sender_seals_it_anew(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    nodes = network.mesh(2, group)
    nodes[0].share(head_of(group), iteration=1, now=network.now)
    old = nodes[0].outbox._share
    assert old is not None
    network.run(1)
    nodes[0].share(head_of(group), iteration=2, now=network.now)
    network.run(1)
    nodes[1].take()
    say(nodes[0], nodes[1], SignedManifest(piece_bytes(), old.signed))
    network.run(1)
    assert nodes[1].tally.refused[Refusal.REPLAY] == 1
    assert not nodes[1].take()


def manifest_of(node: Node, of: Group, body: bytes, **changes: object) -> Manifest:
    plain = Manifest(
        group=of.id,
        sender=node.membership._identity.key_id,
        sequence=2**40,
        iteration=1,
        encoding="float32",
        compression=0,
        classes=of.shape[0],
        features=of.shape[1],
        body=len(body),
        digests=digests_of(body),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_forged_manifests_are_refused_for_what_is_wrong_with_them(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, other = network.mesh(3, group)
    body = np.ones(group.shape, np.float32).tobytes()
    identity = liar.membership._identity
    victim = manifest_of(other, group, body)
    forgeries = {
        Refusal.FORGED_SENDER: encode_manifest(victim, identity),
        Refusal.BAD_SIGNATURE: encode_manifest(manifest_of(liar, group, body), other.membership._identity),
        Refusal.WRONG_GROUP: encode_manifest(manifest_of(liar, group, body, group=bytes(20)), identity),
        Refusal.WRONG_SHAPE: encode_manifest(manifest_of(liar, group, body, features=79), identity),
        Refusal.OVERSIZE: encode_manifest(manifest_of(liar, group, body + bytes(1)), identity),
        Refusal.VERSION: b"\x02" + encode_manifest(manifest_of(liar, group, body), identity)[1:],
        Refusal.MALFORMED: encode_manifest(manifest_of(liar, group, body), identity)[:-1],
    }
    for refusal, signed in forgeries.items():
        say(liar, honest, SignedManifest(piece_bytes(), signed))
        network.run(0.1)
        assert honest.tally.refused[refusal] == 1, refusal
    assert honest.inbox._memory == 0
    assert link_between(honest, liar).incoming is None


@pytest.mark.parametrize(
    ("refusal", "body", "changes"),
    [
        (Refusal.NOT_FINITE, np.full((800, 1), np.nan, "<f4").view(np.uint8).T.tobytes(), {}),
        (Refusal.BAD_DIGEST, bytes(3200), {"digests": (bytes(16),)}),
        (Refusal.BAD_BODY, bytes(3199), {}),
        (Refusal.BAD_BODY, b"no zlib" * 10, {"compression": 1}),
    ],
)
def test_bodies_that_are_not_what_they_should_be_are_refused(
    virtual: Networks, group: Group, refusal: Refusal, body: bytes, changes: dict[str, object]
) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    manifest = manifest_of(liar, group, body, **changes)
    say(liar, honest, SignedManifest(2000, encode_manifest(manifest, liar.membership._identity)))
    for index in range(-(-len(body) // 2000)):
        say(liar, honest, Piece(manifest.sequence, index, body[2000 * index : 2000 * (index + 1)]))
    network.run(1)
    assert honest.tally.refused == {refusal: 1}
    assert not honest.take()
    assert honest.inbox._memory == 0


def test_memory_for_heads_is_bounded(virtual: Networks, group: Group) -> None:
    network = virtual()
    body = bytes(3200)
    honest, *liars = network.mesh(4, group, limits=Limits(memory=7000, loopback_datagram=1232))
    for liar in liars:
        manifest = manifest_of(liar, group, body)
        say(liar, honest, SignedManifest(piece_bytes(), encode_manifest(manifest, liar.membership._identity)))
        network.run(0.1)
    assert honest.inbox._memory == 6400
    assert honest.tally.refused[Refusal.NO_MEMORY] == 1
    # What never comes is not waited for.
    network.run(30)
    assert honest.inbox._memory == 0
    assert honest.tally.refused[Refusal.TOO_SLOW] == 2


def test_pieces_without_a_manifest_are_few(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    for index in range(500):
        say(liar, honest, Piece(2**40, index, bytes(1000)))
    network.run(0.1)
    incoming = link_between(honest, liar).incoming
    assert incoming is not None
    assert len(incoming._pieces) == 32


def test_a_neighbour_that_sends_too_much_is_held_back_and_the_rest_is_not(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    limits = Limits(sender_rate=50_000, loopback_datagram=1232)
    honest, flooder, friend = network.mesh(3, group, limits=limits)
    for _ in range(200):
        say(flooder, honest, Piece(2**40, 1, bytes(1100)))
    friend.share(head_of(group), iteration=5, now=network.now)
    network.run(1)
    assert honest.tally.refused[Refusal.OVER_BUDGET] > 80
    assert [received.iteration for received in honest.take()] == [5]


def test_joins_are_budgeted_before_signatures_are_checked(virtual: Networks, group: Group) -> None:
    network = virtual()
    target = network.add(group, port=1)
    flooder = network.add(group, port=2)
    for _ in range(300):
        flooder.membership.call(("127.0.0.1", 1), network.now)
    network.run(0.5)
    assert target.tally.refused[Refusal.OVER_BUDGET] > 200
    assert len(target.membership.sessions) <= 2
    assert len(target.membership.links) == 1


def test_neighbours_cannot_make_a_peer_contact_just_anything(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    # Seen from outside this machine.
    link_between(honest, liar).address = ("192.0.2.1", 2)
    addresses = [("127.0.0.1", 22), ("224.0.0.1", 5353), ("0.0.0.0", 80), ("255.255.255.255", 9), ("192.0.2.7", 0)]
    honest.membership.heard(
        link_between(honest, liar),
        Peers(0, tuple((bytes([index] * 20), address) for index, address in enumerate(addresses))),
        network.now,
    )
    assert honest.tally.refused[Refusal.BAD_ADDRESS] == len(addresses)
    many = [(bytes([index] * 20), ("192.0.2.7", 1000 + index)) for index in range(200)]
    honest.membership.heard(link_between(honest, liar), Peers(0, tuple(many)), network.now)
    assert len(honest.membership.contacts) <= 2 + 32


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
    assert nodes[0].tally.heads_given_up == 1
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


def test_endless_manifests_cost_few_signature_checks(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    honest, liar, friend = network.mesh(3, group)
    body = bytes(3200)
    for index in range(200):
        manifest = manifest_of(liar, group, body, sequence=2**40 + index)
        say(liar, honest, SignedManifest(piece_bytes(), encode_manifest(manifest, liar.membership._identity)))
    friend.share(head_of(group), iteration=5, now=network.now)
    network.run(0.5)
    assert honest.tally.refused[Refusal.OVER_BUDGET] > 130
    assert [received.iteration for received in honest.take()] == [5]


def test_a_manifest_whose_pieces_nobody_could_count_is_refused(virtual: Networks) -> None:
    network = virtual()
    huge = Group(application="test", backbone="backbone", classes=("a",), features=10_000_000)
    honest, liar = network.mesh(2, huge)
    manifest = replace(manifest_of(liar, huge, bytes(1)), body=40_000_000, digests=(bytes(16),) * 32)
    signed = encode_manifest(manifest, liar.membership._identity)
    say(liar, honest, SignedManifest(512, signed))
    network.run(0.1)
    assert honest.tally.refused == {Refusal.MALFORMED: 1}
    say(liar, honest, SignedManifest(1192, signed))
    network.run(0.1)
    assert honest.inbox._memory == 40_000_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=200), valid_messages), max_size=30), st.data())
def test_whatever_a_neighbour_says_nothing_breaks(sayings: list[bytes], data: st.DataObject) -> None:
    network = _network(7)
    honest, liar = network.mesh(2, GROUP)
    for saying in sayings:
        say(liar, honest, saying)
        network.run(data.draw(st.sampled_from([0.0, 0.05])))
    network.run(1)
    for source, to, datagram in list(network.traffic)[-20:]:
        changed = bytearray(datagram)
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        if to in network.nodes:
            network.nodes[to].receive(source, bytes(changed), network.now)
    network.run(20)
    assert honest.inbox._memory == 0
    assert not honest.take()
    assert len(honest.membership.contacts) <= Limits().contacts


def _network(seed: int) -> VirtualNetwork:
    """Return a network without a fixture, which hypothesis would share between examples."""
    return NETWORK[0](seed)


NETWORK: list[Networks] = []


@pytest.fixture(autouse=True)
def _keep_networks(virtual: Networks) -> None:
    NETWORK[:] = [virtual]
