"""Neighbours and strangers that do not keep to the protocol."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bristle.p2p import Limits
from bristle.p2p.neighbour import Link, PendingHandshake
from bristle.p2p.node import Node
from bristle.wire import Group, Refusal
from bristle.wire import messages as wire
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, encode_manifest
from bristle.wire.messages import Peers, Piece, SignedManifest
from bristle.wire.sizes import piece_bytes
from tests.support import manifests

if TYPE_CHECKING:
    from tests.support.network import Matrix, VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
Heads = Callable[..., "Matrix"]

GROUP = Group(application="test", backbone="backbone", classes=tuple("0123456789"), features=80)


def deflated(raw: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(raw) + deflater.flush()


near = st.integers(2**41 - 4, 2**41 + 4)
valid_messages = st.one_of(
    st.builds(Piece, near, st.integers(0, 9), st.integers(0, 20), st.binary(min_size=1, max_size=1300)),
    st.builds(wire.Acknowledgement, near, st.integers(0, 99), st.integers(0, 65_535), st.integers(0, 2**40)),
    st.builds(
        SignedManifest,
        st.integers(0, 2**32 - 1),
        st.integers(512, 8192),
        st.binary(min_size=1, max_size=1000),
        st.sampled_from([0, 1, 2**40]),
        st.integers(100, 2**32 - 1),
        st.binary(max_size=100),
    ),
    st.builds(Peers, st.integers(0, 2**64 - 1), st.just(((bytes(20), ("127.0.0.1", 9)),))),
    st.just(wire.Leave()),
).map(wire.encode)


def link_between(one: Node, other: Node) -> Link:
    return next(link for link in one.membership.links.values() if link.key_id == other.membership.identity.key_id)


def say(one: Node, other: Node, message: wire.Message | bytes) -> None:
    """Send something as a neighbour can that does not keep to the protocol."""
    one.send_message(link_between(one, other), message if isinstance(message, bytes) else wire.encode(message))


def test_a_replayed_datagram_is_refused_and_counted(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    nodes = network.mesh(2, group)
    network.traffic.clear()
    nodes[0].share(head_of(group), iteration=1, now=network.now)
    network.run(1)
    assert len(nodes[1].take()) == 1
    before = nodes[1].counters.refused[Refusal.REPLAY]
    replayed = [(source, datagram) for source, to, datagram in network.traffic if to == ("127.0.0.1", 2)]
    for source, datagram in replayed:
        nodes[1].receive(source, datagram, network.now)
    assert nodes[1].counters.refused[Refusal.REPLAY] == before + len(replayed)
    assert not nodes[1].take()
    # From another address, it does not even find a session.
    nodes[1].receive(("127.0.0.1", 99), replayed[0][1], network.now)
    assert nodes[1].counters.refused[Refusal.UNKNOWN_SESSION] == 1


def test_an_old_manifest_is_refused_though_its_sender_seals_it_anew(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    nodes = network.mesh(2, group)
    nodes[0].share(head_of(group), iteration=1, now=network.now)
    old = nodes[0].outbox.current
    assert old is not None
    network.run(1)
    nodes[0].share(head_of(group), iteration=2, now=network.now)
    network.run(1)
    nodes[1].take()
    say(nodes[0], nodes[1], SignedManifest(1, piece_bytes(), old.signed, size=1000))
    network.run(1)
    assert nodes[1].counters.refused[Refusal.REPLAY] == 1
    assert not nodes[1].take()


def manifest_of(node: Node, of: Group, body: bytes, **changes: object) -> Manifest:
    return manifests.manifest_of(body, of, node.membership.identity.key, 2**40, **changes)


def test_forged_manifests_are_refused_for_what_is_wrong_with_them(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, other = network.mesh(3, group)
    body, sent = manifests.head_bodies(np.ones(group.shape, np.float32))
    identity = liar.membership.identity
    victim = manifest_of(other, group, body)
    forgeries = {
        Refusal.FORGED_SENDER: encode_manifest(victim, identity),
        Refusal.BAD_SIGNATURE: encode_manifest(manifest_of(liar, group, body), other.membership.identity),
        Refusal.WRONG_GROUP: encode_manifest(manifest_of(liar, group, body, group=bytes(20)), identity),
        Refusal.WRONG_SHAPE: encode_manifest(manifest_of(liar, group, body, features=79), identity),
        Refusal.OVERSIZE: encode_manifest(manifest_of(liar, group, body + bytes(1)), identity),
        Refusal.VERSION: b"\x01" + encode_manifest(manifest_of(liar, group, body), identity)[1:],
        Refusal.MALFORMED: encode_manifest(manifest_of(liar, group, body), identity)[:-1],
    }
    for refusal, signed in forgeries.items():
        say(liar, honest, SignedManifest(1, piece_bytes(), signed, size=len(sent)))
        network.run(0.1)
        assert honest.counters.refused[refusal] == 1, refusal
    assert honest.inbox.memory == 0
    assert not link_between(honest, liar).incoming


@pytest.mark.parametrize(
    ("refusal", "altered", "changes"),
    [
        (Refusal.BAD_DIGEST, lambda sent: sent, {"digests": (bytes(16),)}),
        (Refusal.BAD_DIGEST, lambda sent: manifests.head_bodies(np.ones(GROUP.shape, np.float32))[1], {}),
        (Refusal.BAD_BODY, lambda sent: sent[:-1], {}),
        (Refusal.BAD_BODY, lambda sent: b"no deflate" * 10, {}),
        (Refusal.BOMB, lambda sent: deflated(bytes(5000)), {}),
    ],
)
@pytest.mark.parametrize("beside", [0, 100])
def test_bodies_that_are_not_what_they_should_be_are_refused(
    virtual: Networks,
    group: Group,
    head_of: Heads,
    refusal: Refusal,
    altered: Callable[[bytes], bytes],
    changes: dict[str, object],
    beside: int,
) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    body, right = manifests.head_bodies(head_of(group))
    manifest, sent = manifest_of(liar, group, body, **changes), altered(right)
    signed = encode_manifest(manifest, liar.membership.identity)
    say(liar, honest, SignedManifest(1, 2000, signed, size=len(sent), start=sent[:beside]))
    if beside < len(sent):
        say(liar, honest, Piece(wire.transfer_of(manifest.sequence, 0), 1, 0, sent[beside:]))
    network.run(1)
    assert honest.counters.refused == {refusal: 1}
    assert not honest.take()
    assert honest.inbox.memory == 0


def test_memory_for_heads_is_bounded(virtual: Networks, group: Group) -> None:
    network = virtual()
    body = bytes(1610)
    honest, *liars = network.mesh(4, group, limits=Limits(memory=5000, loopback_datagram=1232))
    for liar in liars:
        signed = encode_manifest(manifest_of(liar, group, body), liar.membership.identity)
        say(liar, honest, SignedManifest(1, piece_bytes(), signed, size=2400))
        network.run(0.1)
    assert honest.inbox.memory == 4800
    assert honest.counters.refused[Refusal.NO_MEMORY] == 1
    # What never comes is not waited for.
    network.run(30)
    assert honest.inbox.memory == 0
    assert honest.counters.refused[Refusal.TOO_SLOW] == 2


def _has_links(node: Node) -> bool:
    return bool(node.membership.links)


def test_heads_that_wait_are_few_however_many_senders_there_were(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    limits = Limits(neighbours=3, loopback_datagram=1232, handshake_rate=1000.0)
    resting = network.add(group, port=1, limits=limits)
    friend = network.add(group, port=2)
    friend.name(("127.0.0.1", 1), network.now)
    for port in range(10, 30):
        passing = network.add(group, port=port)
        passing.name(("127.0.0.1", 1), network.now)
        network.run(5, partial(_has_links, passing))
        passing.share(head_of(group, port), iteration=port, now=network.now)
        network.run(0.5)
        friend.share(head_of(group), iteration=port, now=network.now)
        network.run(0.5)
        passing.leave()
        network.remove(("127.0.0.1", port))
        network.run(1.0)
    assert resting.counters.refused[Refusal.NO_MEMORY] > 5
    waiting = resting.take()
    assert len(waiting) == 6
    # Who is still there has lost nothing.
    assert [one.iteration for one in waiting if one.sender == friend.membership.identity.key_id] == [29]


def test_pieces_without_a_manifest_are_few(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    for index in range(500):
        say(liar, honest, Piece(2**40, 1, index, bytes(1000)))
    network.run(0.1)
    incoming = link_between(honest, liar).incoming.get(Kind.HEAD)
    assert incoming is not None
    assert len(incoming.received) == 32


def test_a_neighbour_that_sends_too_much_is_held_back_and_the_rest_is_not(
    virtual: Networks, group: Group, head_of: Heads
) -> None:
    network = virtual()
    limits = Limits(sender_rate=50_000, loopback_datagram=1232)
    honest, flooder, friend = network.mesh(3, group, limits=limits)
    for _ in range(200):
        say(flooder, honest, Piece(2**40, 1, 1, bytes(1100)))
    friend.share(head_of(group), iteration=5, now=network.now)
    network.run(1)
    assert honest.counters.refused[Refusal.OVER_BUDGET] > 80
    assert [received.iteration for received in honest.take()] == [5]


def test_joins_are_budgeted_before_signatures_are_checked(virtual: Networks, group: Group) -> None:
    network = virtual()
    target = network.add(group, port=1)
    flooder = network.add(group, port=2)
    calls: dict[bytes, PendingHandshake] = {}
    for _ in range(300):
        flooder.membership.pending.clear()
        flooder.membership.call(("127.0.0.1", 1), network.now)
        calls |= flooder.membership.pending
    flooder.membership.pending = calls
    network.run(0.5)
    assert target.counters.refused[Refusal.OVER_BUDGET] > 200
    assert len(target.membership.sessions) <= 2
    # Once it has stopped shouting, it is let in.
    network.run(3)
    flooder.name(("127.0.0.1", 1), network.now)
    assert network.run(5, lambda: len(target.membership.links) == 1)


def test_neighbours_cannot_make_a_peer_contact_just_anything(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    # Seen from outside this machine.
    link_between(honest, liar).address = ("192.0.2.1", 2)
    addresses = [("127.0.0.1", 22), ("224.0.0.1", 5353), ("0.0.0.0", 80), ("255.255.255.255", 9), ("192.0.2.7", 0)]
    link = link_between(honest, liar)
    handed_on = tuple((bytes([index] * 20), address) for index, address in enumerate(addresses))
    honest.membership.learn(Peers(0, handed_on), link.key_id, link.address, network.now)
    assert honest.counters.refused[Refusal.BAD_ADDRESS] == len(addresses)
    many = [(bytes([index] * 20), ("192.0.2.7", 1000 + index)) for index in range(200)]
    honest.membership.learn(Peers(0, tuple(many)), link.key_id, link.address, network.now)
    assert len(honest.membership.contacts) <= 2 + 32


def test_endless_manifests_cost_few_signature_checks(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    honest, liar, friend = network.mesh(3, group)
    body = bytes(1610)
    for index in range(200):
        manifest = manifest_of(liar, group, body, sequence=2**40 + index)
        signed = encode_manifest(manifest, liar.membership.identity)
        say(liar, honest, SignedManifest(1, piece_bytes(), signed, size=2000))
    friend.share(head_of(group), iteration=5, now=network.now)
    network.run(0.5)
    assert honest.counters.refused[Refusal.OVER_BUDGET] > 130
    assert [received.iteration for received in honest.take()] == [5]


def test_a_manifest_whose_pieces_nobody_could_count_is_refused(virtual: Networks) -> None:
    network = virtual()
    huge = Group(application="test", backbone="backbone", classes=("a",), features=12_000_000)
    honest, liar = network.mesh(2, huge)
    manifest = replace(manifest_of(liar, huge, bytes(1)), body=24_000_001, digests=(bytes(16),) * 16)
    signed = encode_manifest(manifest, liar.membership.identity)
    say(liar, honest, SignedManifest(1, 400, signed, size=30_000_000))
    say(liar, honest, SignedManifest(1, 512, signed, size=37_000_000))
    network.run(0.1)
    assert honest.counters.refused == {Refusal.MALFORMED: 1, Refusal.OVERSIZE: 1}
    honest.counters.refused.clear()
    say(liar, honest, SignedManifest(1, 512, signed, size=36_000_000))
    network.run(0.1)
    assert honest.counters.refused == {Refusal.MALFORMED: 1}
    say(liar, honest, SignedManifest(1, 1188, signed, size=30_000_000))
    network.run(0.1)
    assert honest.inbox.memory == 30_000_000


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sayings=st.lists(st.one_of(st.binary(max_size=200), valid_messages), max_size=30), data=st.data())
def test_whatever_a_neighbour_says_nothing_breaks(virtual: Networks, sayings: list[bytes], data: st.DataObject) -> None:
    network = virtual(7)
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
    assert honest.inbox.memory == 0
    assert not honest.take()
    assert len(honest.membership.contacts) <= Limits().contacts
