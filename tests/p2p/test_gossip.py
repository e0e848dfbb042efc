"""Statements passed on: to everybody, each of them once, renewals and proofs as well, whoever lies or falls silent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bristle.p2p import Limits
from bristle.p2p.neighbour import MOST_OFFERS
from bristle.p2p.node import Node
from bristle.wire import Group, Identity, Refusal
from bristle.wire.kinds import Kind
from bristle.wire.messages import SignedManifest, encode
from bristle.wire.offers import CONVICTED, EquivocationProof, Have, Holding, SignedRenewal, Want
from bristle.wire.statements import LEAST_RENEWAL, Proof, SignedStatement, sign_statement
from tests.p2p.test_statements import TRANSFERS, assert_same, offer, publish, say, statement_of

if TYPE_CHECKING:
    from tests.support.network import VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
HOUR = 3600
TWO = Limits(neighbours=2, loopback_datagram=1232)


def chain(
    network: VirtualNetwork, group: Group, count: int, *, ring: bool = False, room: bool = False, **options: object
) -> list[Node]:
    """Add nodes of which each has two neighbours, those before and after it, but at the ends of an open chain.

    With `room` the last one could have another neighbour.
    """
    nodes = []
    for index in range(count):
        ends = not ring and index in (0, count - 1)
        full = ends and not (room and index)
        limits = replace(TWO, neighbours=1 if full else 2, **options)  # type: ignore[arg-type]
        nodes.append(network.add(group, port=1 + index, limits=limits))
    for index, node in enumerate(nodes):
        for other in (index - 1, index + 1):
            if ring or 0 <= other < count:
                node.name(("127.0.0.1", 1 + other % count), network.now)
    wanted = [2 if ring or 0 < index < count - 1 else 1 for index in range(count)]
    assert network.run(30, lambda: [len(node.membership.links) for node in nodes] == wanted)
    return nodes


def known(node: Node) -> dict[bytes, int]:
    return {each.author: each.number for each in node.statements()}


def in_an_hour() -> int:
    return int(time.time()) + HOUR


def signed_by(identity: Identity, group: Group, number: int, seed: int = 0, *, expires: int = 0) -> SignedStatement:
    said = statement_of(group, seed)
    return sign_statement(said, number=number, expires=expires or in_an_hour(), identity=identity, group=group)


@pytest.mark.parametrize("impairment", [{}, {"loss": 0.2, "duplication": 0.1, "delay": 0.02, "jitter": 0.02}])
def test_in_a_ring_everybody_gets_every_statement_once(
    virtual: Networks, group: Group, impairment: dict[str, float]
) -> None:
    network = virtual(3, **impairment)
    nodes = chain(network, group, 9, ring=True)
    for index, node in enumerate(nodes):
        publish(network, node, statement_of(group, index), number=1 + index)
    assert network.run(30, lambda: all(len(node.statements()) == 8 for node in nodes))
    network.run(5)
    by_author = {node.membership.identity.key_id: index for index, node in enumerate(nodes)}
    for node in nodes:
        for heard in node.statements():
            assert_same(heard.statement, statement_of(group, by_author[heard.author]))
        assert node.counters.statements_in == 8
        if not impairment:
            assert not node.counters.refused
    assert sum(node.counters.statements_in for node in nodes) == 9 * 8
    if not impairment:
        # Nothing was sent to anybody who had it: as many were sent as came.
        assert sum(node.counters.statements_out for node in nodes) == 9 * 8


def test_in_a_full_mesh_nothing_is_sent_twice_and_silence_follows(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = network.mesh(6, group)
    for index, node in enumerate(nodes):
        publish(network, node, statement_of(group, index), number=1)
    network.run(3)
    assert [len(node.statements()) for node in nodes] == [5] * 6
    assert sum(node.counters.statements_out for node in nodes) == 6 * 5
    network.traffic.clear()
    network.run(20)
    # What is left are signs of life, every five seconds in each of 30 directions.
    assert max(len(datagram) for _, _, datagram in network.traffic) < 400
    assert len(network.traffic) <= 5 * 30


def test_a_newcomer_with_one_neighbour_gets_everything_and_what_is_newer_later(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = chain(network, group, 4, room=True)
    for index, node in enumerate(nodes):
        publish(network, node, statement_of(group, index), number=1)
    network.run(5)
    network.remove(("127.0.0.1", 1))
    # Its author is gone; what it stated is not.
    newcomer = network.add(group, port=9, limits=replace(TWO, neighbours=1))
    newcomer.name(("127.0.0.1", 4), network.now)
    assert network.run(10, lambda: len(newcomer.statements()) == 4)
    publish(network, nodes[1], statement_of(group, 7), number=2)
    assert network.run(5, lambda: known(newcomer)[nodes[1].membership.identity.key_id] == 2)
    assert all(known(node)[nodes[1].membership.identity.key_id] == 2 for node in nodes[2:])


@pytest.mark.parametrize("after", [0.06, 0.11, 0.16, 0.21])
def test_what_is_stated_while_an_older_statement_is_on_its_way_arrives(
    virtual: Networks, large: Group, after: float
) -> None:
    network = virtual(delay=0.05)
    first, second = network.mesh(2, large)
    for number in (1, 2):
        publish(network, first, statement_of(large, number, rank=40), number=number)
        network.run(after)
    assert network.run(3, lambda: known(second) == {first.membership.identity.key_id: 2})


def test_renewals_are_short_and_reach_everybody(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = chain(network, group, 4, room=True)
    publish(network, nodes[0], statement_of(group), number=1)
    network.run(3)
    (before,) = nodes[3].statements()
    network.traffic.clear()
    later = in_an_hour() + HOUR
    nodes[0].renew(later, network.now)
    network.run(2)
    for node in nodes[1:]:
        (heard,) = node.statements()
        assert (heard.expires, heard.number, heard.signed.manifest) == (later, 1, before.signed.manifest)
        assert node.counters.renewals_in == 1
        assert node.counters.statements_in == 1, "the statement itself is not sent again"
    assert max(len(datagram) for _, _, datagram in network.traffic) < 400
    # One that puts it off by a little is not passed on.
    nodes[0].renew(later + LEAST_RENEWAL - 1, network.now)
    network.run(2)
    assert {each.expires for node in nodes[1:] for each in node.statements()} == {later}
    # Who comes later gets statement and renewal together, though the statement alone has expired.
    for node in nodes:
        node.gossip.clock = lambda: later - 60.0
    newcomer = network.add(group, port=9, limits=replace(TWO, neighbours=1))
    newcomer.gossip.clock = lambda: later - 60.0
    newcomer.name(("127.0.0.1", 4), network.now)
    assert network.run(10, lambda: len(newcomer.statements()) == 1)
    (heard,) = newcomer.statements()
    assert heard.expires == later
    for node in nodes:
        assert set(node.counters.refused) <= {Refusal.FULL}, "the one with room for another looks for one"


def test_an_equivocator_is_known_to_all_within_two_exchanges(virtual: Networks, group: Group) -> None:
    """It says one thing to one end and another to the other; where the two meet, they are a proof, which travels."""
    network = virtual(delay=0.05)
    nodes = network.mesh(6, group)
    liar, identity = nodes[0], nodes[0].membership.identity
    versions = {
        node.membership.identity.key_id: signed_by(identity, group, 5, seed)
        for node, seed in zip(nodes[1:], (1, 2, 1, 2, 1), strict=True)
    }
    send, liar.gossip.own = liar.outbox.send_statement, versions[nodes[1].membership.identity.key_id]
    liar.outbox.send_statement = lambda link, signed, now: send(link, versions[link.key_id], now)  # type: ignore[method-assign]
    for node in nodes[1:]:
        digest = versions[node.membership.identity.key_id].digest
        say(liar, node, Have(next(TRANSFERS) % 2**32, (Holding(identity.key_id, 5, digest, in_an_hour()),)))
    # Messages take 0.05 s. An exchange is an offer, a wish and an answer; what is new is offered within 0.1 s.
    exchange = 0.1 + 3 * 0.05
    assert network.run(exchange, lambda: all(known(node) == {identity.key_id: 5} for node in nodes[1:]))
    assert network.run(2 * exchange, lambda: all(node.equivocators() for node in nodes[1:]))
    assert {key for node in nodes[1:] for key in node.equivocators()} == {identity.key_id}
    assert not [each for node in nodes[1:] for each in node.statements()]
    # Nothing that it says from then on is taken.
    liar.gossip.own = None
    publish(network, liar, statement_of(group, 3), number=9)
    network.run(3)
    assert not [each for node in nodes[1:] for each in node.statements()]
    # Who joins later learns it, from anybody.
    newcomer = network.add(group, port=20)
    newcomer.name(("127.0.0.1", 4), network.now)
    assert network.run(5, lambda: newcomer.equivocators() == {identity.key_id})


def test_a_false_proof_convicts_nobody(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    victim = Identity.generate()
    one, newer = (signed_by(victim, group, number, number) for number in (1, 2))
    forged = signed_by(liar.membership.identity, group, 1, 9)
    swapped = forged.manifest[:24] + victim.key + forged.manifest[56:]
    for proof, refusal in (
        (Proof(one.manifest, newer.manifest), Refusal.MALFORMED),
        (Proof(one.manifest, one.manifest), Refusal.MALFORMED),
        (Proof(one.manifest, swapped), Refusal.BAD_SIGNATURE),
        (Proof(one.manifest, b""), Refusal.MALFORMED),
    ):
        before = honest.counters.refused[refusal]
        offer(network, liar, honest, victim.key_id, CONVICTED)
        say(liar, honest, EquivocationProof(proof.to_bytes()))
        network.run(30)  # After a refusal a neighbour is asked again a while later.
        assert honest.counters.refused[refusal] == before + 1
    say(liar, honest, EquivocationProof(Proof(one.manifest, signed_by(victim, group, 1, 4).manifest).to_bytes()))
    network.run(1)
    assert honest.counters.refused[Refusal.NOT_WANTED] == 1, "nobody asked"
    assert not honest.equivocators()


def test_false_renewals_are_refused(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, author = network.mesh(3, group)
    publish(network, author, statement_of(group), number=1)
    network.run(1)
    (heard,) = honest.statements()
    liar.gossip.store.drop(heard.author)  # It answers with what follows, and with nothing else.
    later = heard.expires + HOUR
    right = heard.signed.renew(author.membership.identity, later)
    other = signed_by(author.membership.identity, group, 1, 3).renew(author.membership.identity, later)
    for data, refusal in (
        (right.renewal[:-1] + bytes([right.renewal[-1] ^ 1]), Refusal.BAD_SIGNATURE),
        (other.renewal, Refusal.MALFORMED),
        (heard.signed.renew(author.membership.identity, heard.expires + 1).renewal, Refusal.REPLAY),
        (heard.signed.renew(author.membership.identity, later + 40 * 86_400).renewal, Refusal.LIVES_TOO_LONG),
    ):
        before = honest.counters.refused[refusal]
        promised = Holding(heard.author, 1, heard.signed.digest, later)
        say(liar, honest, Have(next(TRANSFERS) % 2**32, (promised,)))
        network.run(0.1)
        say(liar, honest, SignedRenewal(data))
        network.run(30)
        assert honest.counters.refused[refusal] == before + 1
    say(liar, honest, SignedRenewal(right.renewal))
    network.run(1)
    assert honest.counters.refused[Refusal.NOT_WANTED] == 1, "nobody asked"
    assert [each.expires for each in honest.statements()] == [heard.expires]


def test_who_offers_and_never_delivers_delays_nobody_for_long(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, other = network.mesh(3, group)
    authors = [Identity.generate() for _ in range(12)]
    for author in authors:
        other.restore(signed_by(author, group, 1), network.now)
    # It is the first to offer all of them, with numbers that nobody has signed.
    offers = tuple(Holding(author.key_id, 2**60, bytes(16), in_an_hour()) for author in authors)
    say(liar, honest, Have(1, offers))
    assert network.run(4, lambda: len(honest.statements()) == 12)


def crowded(network: VirtualNetwork, group: Group, honest: Node, liar: Node) -> int:
    """Let a node offer 120 authors to one that has room for 20; return how many it keeps."""
    crowd = [Identity.generate() for _ in range(120)]
    liar.restore(signed_by(crowd[0], group, 1), network.now)
    honest.gossip.store.budget = 20 * liar.gossip.store.memory
    for author in crowd[1:]:
        liar.restore(signed_by(author, group, 1), network.now)
    network.run(10)
    assert honest.gossip.store.memory <= honest.gossip.store.budget
    return len(honest.gossip.store)


def test_statements_that_come_by_other_neighbours_find_room_beside_a_crowd(virtual: Networks, group: Group) -> None:
    """Memory is shared out by who delivers: authors are free."""
    network = virtual()
    honest = network.add(group, port=1, limits=Limits(neighbours=3, statement_rate=1000.0, loopback_datagram=8192))
    liar, *others = (network.add(group, port=at, limits=replace(TWO, neighbours=1)) for at in (2, 3, 4))
    for node in (liar, *others):
        node.name(("127.0.0.1", 1), network.now)
    assert network.run(10, lambda: len(honest.membership.links) == 3)
    assert 15 <= crowded(network, group, honest, liar) <= 20
    assert honest.counters.refused[Refusal.NO_MEMORY] <= 12, "little is asked for that has no room"
    told = [Identity.generate() for _ in range(10)]
    for index, author in enumerate(told):
        others[index % 2].restore(signed_by(author, group, 1), network.now)
    assert network.run(10, lambda: {each.key_id for each in told} <= set(known(honest)))
    assert honest.gossip.store.memory <= honest.gossip.store.budget


def test_what_a_neighbour_says_itself_finds_room_though_it_passes_a_crowd_on(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, *others = network.mesh(4, group, limits=Limits(statement_rate=1000.0, loopback_datagram=8192))
    assert crowded(network, group, honest, liar) <= 20
    for number in (1, 2):
        for index, node in enumerate(others):
            publish(network, node, statement_of(group, index), number=number)
        wanted = {node.membership.identity.key_id: number for node in others}
        assert network.run(5, lambda wanted=wanted: wanted.items() <= known(honest).items())  # type: ignore[misc]
    assert honest.gossip.store.memory <= honest.gossip.store.budget


def test_offers_and_wishes_without_end_are_bounded(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar = network.mesh(2, group)
    rng = random.Random(0)
    for _ in range(400):
        offers = tuple(Holding(rng.randbytes(20), 1, bytes(16), in_an_hour()) for _ in range(100))
        say(liar, honest, Have(rng.randrange(1, 2**32), offers))
        say(liar, honest, Want(0, tuple((rng.randbytes(20), False) for _ in range(50))))
    network.run(5)
    exchange = honest.gossip.exchanges.get(liar.membership.identity.key_id)
    assert exchange is None or len(exchange.offers) <= MOST_OFFERS
    assert exchange is None or not exchange.wanted
    assert honest.counters.refused[Refusal.OVER_BUDGET] > 300


def test_after_a_crash_the_same_statement_is_no_equivocation(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second = network.mesh(2, group)
    publish(network, first, statement_of(group), number=3)
    network.run(1)
    own = first.gossip.own
    assert own is not None
    stored = own.to_bytes()
    network.remove(("127.0.0.1", 1))
    back = network.add(group, identity=first.membership.identity, port=1)
    assert back.restore(SignedStatement.from_bytes(stored), network.now)
    network.run(10)
    assert not second.equivocators()
    assert second.counters.statements_in == 1
    assert not second.counters.refused


def test_who_forwards_nothing_says_only_what_is_its_own(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = chain(network, group, 3, forward_rate=0)
    for index, node in enumerate(nodes):
        publish(network, node, statement_of(group, index), number=1)
    network.run(5)
    assert [len(node.statements()) for node in nodes] == [1, 2, 1]


def test_a_neighbour_is_sent_so_many_statements_and_no_more(virtual: Networks, group: Group) -> None:
    network = virtual()
    limits = Limits(statement_rate=1.0, loopback_datagram=1232)
    honest, greedy = network.mesh(2, group, limits=limits)
    publish(network, honest, statement_of(group), number=1)
    network.run(1)
    for _ in range(60):
        say(greedy, honest, Want(0, ((honest.membership.identity.key_id, False),)))
        network.run(0.1)
    assert honest.counters.statements_out <= 16 + 8


def test_what_expires_fades_everywhere(virtual: Networks, group: Group) -> None:
    network = virtual()
    nodes = chain(network, group, 3)
    publish(network, nodes[0], statement_of(group), number=1)
    network.run(2)
    assert all(len(node.statements()) == 1 for node in nodes[1:])
    gone = time.time() + HOUR + 301
    for node in nodes:
        node.gossip.clock = lambda: gone
    network.run(11)
    assert all(len(node.gossip.store) == 0 for node in nodes)
    newcomer = network.add(group, port=9)
    newcomer.gossip.clock = lambda: gone
    newcomer.name(("127.0.0.1", 3), network.now)
    network.run(3)
    assert not newcomer.statements()


def test_a_fork_that_nobody_asked_for_is_a_proof_as_well(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, author = network.mesh(3, group)
    identity = author.membership.identity
    publish(network, author, statement_of(group), number=4)
    network.run(1)
    other = signed_by(identity, group, 4, 8)
    message = SignedManifest(1, 1188, other.manifest, next(TRANSFERS), len(other.body), kind=Kind.STATEMENT)
    assert len(encode(message)) < 1232
    say(liar, honest, message)
    network.run(1)
    assert honest.equivocators() == {identity.key_id}
    assert honest.counters.refused == {Refusal.EQUIVOCATION: 1}
    assert not any(np.any(each.statement.counts) for each in honest.statements())
