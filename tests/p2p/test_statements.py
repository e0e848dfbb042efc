"""Statements on the network: beside heads, signed once, the same for all, refused for what is wrong with them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle.p2p.node import Node
from bristle.rules import Statement
from bristle.wire import Group, Identity, Refusal
from bristle.wire.encoding import encode_statement
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, encode_manifest
from bristle.wire.messages import Message, Piece, SignedManifest, encode
from bristle.wire.offers import Have, Holding
from bristle.wire.statements import SKEW, SignedStatement, verify_statement
from tests.support.manifests import manifest_of

if TYPE_CHECKING:
    from tests.support.network import Matrix, RealNetwork, VirtualNetwork

Scenario = Callable[[Callable[["RealNetwork"], Awaitable[None]]], None]
Wait = Callable[..., Coroutine[Any, Any, None]]
Heads = Callable[..., "Matrix"]
Networks = Callable[..., "VirtualNetwork"]


def statement_of(group: Group, number: int = 0, rank: int = 3) -> Statement:
    """Return a statement whose values float16 holds exactly."""
    classes, features = group.shape
    rng = np.random.default_rng(number)
    counts = rng.integers(0, 3, classes) * 25
    counts[0] = 50 + number
    rows = rng.integers(-99, 99, (classes, features)) * (counts > 0)[:, None]
    return Statement(
        rows, counts, rng.integers(-9, 9, (rank, features)).astype(float), rng.integers(0, 9, features).astype(float)
    )


def assert_same(heard: Statement, said: Statement) -> None:
    for found, part in zip(vars(heard).values(), vars(said).values(), strict=True):
        np.testing.assert_array_equal(found, part)


def test_a_statement_travels_beside_heads_over_real_sockets(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads
) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(large)
        second = await network.peer(large, known=[first.address])
        await wait(lambda: bool(first.neighbours() and second.neighbours()))
        said, expires = statement_of(large, rank=30), int(time.time()) + 3600
        first.publish(first.sign_statement(said, number=7, expires=expires))
        for iteration in range(1, 4):  # Heads replace one another, and never the statement.
            first.share(head_of(large, iteration), iteration=iteration)
        await second.statement_arrival()
        await first.sent()
        await wait(lambda: bool(second.counters.heads_in) and first.counters.statements_out == 1)
        (heard,) = second.take_statements()
        assert (heard.author, heard.expires, heard.source) == (first.identity.key_id, expires, first.identity.key_id)
        assert_same(heard.statement, said)
        assert not second.take_statements()
        # With what came, anybody can check who said it, to whom it never spoke.
        passed_on = SignedStatement.from_bytes(heard.signed.to_bytes())
        found = verify_statement(passed_on, large)
        assert isinstance(found, Statement)
        assert_same(found, said)
        assert (passed_on.author, passed_on.number, passed_on.expires) == (first.identity.key_id, 7, expires)
        # Who joins later gets the very same bytes.
        third = await network.peer(large, known=[first.address])
        await third.statement_arrival()
        (later,) = third.take_statements()
        assert later.signed == heard.signed

    on_network(scenario)


def publish(network: VirtualNetwork, node: Node, statement: Statement, *, number: int, expires: int = 0) -> None:
    """Let a node publish a statement that holds for an hour, or until `expires`."""
    expires = expires or int(time.time()) + 3600
    node.publish(node.sign_statement(statement, number=number, expires=expires), network.now)


def test_a_newer_statement_replaces_an_older_one(virtual: Networks, group: Group, head_of: Heads) -> None:
    network = virtual()
    first, second = network.mesh(2, group)
    publish(network, first, statement_of(group), number=1)
    network.run(1)
    assert [heard.number for heard in second.take_statements()] == [1]
    first.share(head_of(group), iteration=1, now=network.now)
    for number, change in enumerate(({"number": 1}, {"rank": 0}), 2):
        publish(network, first, statement_of(group, **change), number=number)
        network.run(1)
        (heard,) = second.take_statements()
        assert heard.number == number
        assert_same(heard.statement, statement_of(group, **change))
        assert [each.number for each in second.statements()] == [number]
    assert [head.iteration for head in second.take()] == [1]
    assert not second.take_statements()


def test_what_cannot_be_published_is_named(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second = network.mesh(2, group)
    said, hour = statement_of(group), int(time.time()) + 3600
    with pytest.raises(ValueError, match="statements of this group have shape"):
        first.sign_statement(Statement(np.ones((2, 2)), np.ones(2)), number=1, expires=hour)
    with pytest.raises(ValueError, match="from 1 to"):
        first.sign_statement(said, number=0, expires=hour)
    with pytest.raises(ValueError, match="expired"):
        first.publish(first.sign_statement(said, number=1, expires=1_000_000), network.now)
    with pytest.raises(ValueError, match="expires too late"):
        first.publish(first.sign_statement(said, number=1, expires=hour + 31 * 86_400), network.now)
    with pytest.raises(ValueError, match="only an own statement"):
        first.publish(second.sign_statement(said, number=1, expires=hour), network.now)
    with pytest.raises(ValueError, match="publish one first"):
        first.renew(hour, network.now)
    publish(network, first, said, number=2)
    with pytest.raises(ValueError, match="larger number"):
        publish(network, first, statement_of(group, 1), number=2)


def test_statements_are_restored_as_they_were_signed(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second, third = network.mesh(3, group)
    own = first.sign_statement(statement_of(group), number=5, expires=int(time.time()) + 3600)
    assert first.restore(SignedStatement.from_bytes(own.to_bytes()), network.now)
    network.run(1)
    assert [heard.signed for heard in second.take_statements()] == [own]
    other = second.sign_statement(statement_of(group, 1), number=9, expires=int(time.time()) + 3600)
    assert third.restore(other, network.now)
    assert [heard.signed for heard in third.statements() if heard.author == other.author] == [other]
    assert other.author not in [heard.author for heard in third.take_statements()]
    assert not third.restore(second.sign_statement(statement_of(group, 1), number=9, expires=1_000_000), network.now), (
        "it has expired"
    )
    with pytest.raises(ValueError, match="is refused: chunk does not match"):
        third.restore(replace(other, body=other.body[:-1] + b"x"), network.now)
    with pytest.raises(ValueError, match="hold no signed statement"):
        SignedStatement.from_bytes(b"something else")


def test_a_statement_arrives_through_loss_and_beside_a_stream_of_heads(
    virtual: Networks, large: Group, head_of: Heads
) -> None:
    network = virtual(loss=0.2, duplication=0.1, delay=0.05, jitter=0.02)
    first, second = network.mesh(2, large)
    publish(network, first, statement_of(large, rank=40), number=1)
    for iteration in range(1, 30):
        first.share(head_of(large, iteration), iteration=iteration, now=network.now)
        network.run(0.05)
    assert network.run(10, lambda: second.statement_store.changed)
    (heard,) = second.take_statements()
    assert_same(heard.statement, statement_of(large, rank=40))


def say(node: Node, to: Node, message: Message) -> None:
    (link,) = (link for link in node.membership.links.values() if link.key_id == to.membership.identity.key_id)
    node.send_message(link, encode(message))


TRANSFERS = itertools.count(2**42 + 1)


def offer(network: VirtualNetwork, liar: Node, honest: Node, author: bytes, number: int, digest: bytes = b"") -> None:
    """Let a node offer a statement, so that it is asked for it."""
    say(liar, honest, Have(next(TRANSFERS) % 2**32, (Holding(author, number, digest or bytes(16), AHEAD),)))
    network.run(0.1)


def deliver(
    network: VirtualNetwork, liar: Node, honest: Node, manifest: Manifest, body: bytes, signer: Identity
) -> None:
    """Let a node offer a statement and send it when asked, whatever is wrong with it."""
    signed, transfer = encode_manifest(manifest, signer), next(TRANSFERS)
    offer(network, liar, honest, manifest.sender, manifest.sequence)
    say(liar, honest, SignedManifest(1, 2000, signed, transfer, manifest.body, kind=Kind.STATEMENT))
    for index in range(-(-len(body) // 2000)):
        piece = body[2000 * index : 2000 * (index + 1)]
        say(liar, honest, Piece(transfer, 2 + index, index, piece, Kind.STATEMENT))
    network.run(1)


EXPIRED, AHEAD = 1_000_000, int(time.time()) + 3600


@pytest.mark.parametrize(
    ("refusal", "changes"),
    [
        (Refusal.EXPIRED, {"expires": EXPIRED}),
        (Refusal.WRONG_GROUP, {"group": bytes(20)}),
        (Refusal.WRONG_SHAPE, {"rank": 4_000}),
        (Refusal.MALFORMED, {"kind": Kind.HEAD, "rank": 0, "encoding": "float32"}),
        (Refusal.MALFORMED, {"encoding": "grid"}),
        (Refusal.OVERSIZE, {"rank": 0}),
        (Refusal.BAD_BODY, {"rank": 5}),
        (Refusal.BAD_BODY, {"compression": 1}),
        (Refusal.BAD_DIGEST, {"digests": (bytes(16),)}),
    ],
)
def test_statements_that_are_not_what_they_should_be_are_refused(
    virtual: Networks, group: Group, refusal: Refusal, changes: dict[str, object]
) -> None:
    network = virtual()
    honest, liar, again = network.mesh(3, group)
    said = replace(statement_of(group), counts=np.full(group.shape[0], 25))
    body = encode_statement(said, compress=False)
    identity = liar.membership.identity
    right: dict[str, object] = {"kind": Kind.STATEMENT, "encoding": "float16", "rank": 3, "expires": AHEAD}
    wrong = manifest_of(body, group, identity.key, 2**41, **(right | changes))
    deliver(network, liar, honest, wrong, body, identity)
    assert honest.counters.refused[refusal] >= 1
    assert not honest.take_statements()
    assert not honest.take()
    assert honest.inbox.memory == 0
    # The same with nothing wrong is taken, so it was that.
    good = manifest_of(body, group, identity.key, 2**41 + 1, **right)
    deliver(network, again, honest, good, body, identity)
    (heard,) = honest.take_statements()
    assert_same(heard.statement, said)


def test_statements_in_anothers_name_are_refused(virtual: Networks, group: Group) -> None:
    network = virtual()
    honest, liar, other = network.mesh(3, group)
    body = encode_statement(statement_of(group))
    fields: dict[str, object] = {
        "kind": Kind.STATEMENT,
        "encoding": "float16",
        "rank": 3,
        "compression": 1,
        "expires": AHEAD,
    }
    mine, theirs = liar.membership.identity, other.membership.identity
    deliver(network, liar, honest, manifest_of(body, group, theirs.key, 2**41, **fields), body, mine)
    assert honest.counters.refused == {Refusal.BAD_SIGNATURE: 1}
    # What was signed by its author is right, whoever brings it.
    right = manifest_of(body, group, theirs.key, 2**41, **fields)
    network.run(5)
    deliver(network, liar, honest, right, body, theirs)
    (heard,) = honest.take_statements()
    assert (heard.author, heard.source) == (theirs.key_id, mine.key_id)
    # What nobody asked for is refused before its signature is looked at.
    unasked = manifest_of(body, group, mine.key, 2**41, **fields)
    signed = SignedManifest(1, 2000, encode_manifest(unasked, mine), next(TRANSFERS), unasked.body, kind=Kind.STATEMENT)
    say(liar, honest, signed)
    network.run(1)
    assert honest.counters.refused == {Refusal.BAD_SIGNATURE: 1, Refusal.NOT_WANTED: 1}
    assert not honest.take_statements()


def test_expiry_is_by_the_receivers_clock(group: Group, virtual: Networks) -> None:
    network = virtual()
    first, second = network.mesh(2, group)
    first.gossip.clock = lambda: 2_000.0
    second.gossip.clock = lambda: 2_000.0 + SKEW
    publish(network, first, statement_of(group), number=1, expires=2_001)
    network.run(1)
    assert len(second.statements()) == 1
    second.gossip.clock = lambda: 2_001.0 + SKEW
    assert not second.statements()
    publish(network, first, statement_of(group), number=2, expires=2_001)
    network.run(1)
    assert second.counters.refused == {Refusal.EXPIRED: 1}


def test_an_old_statement_is_not_taken_again(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second = network.mesh(2, group)
    publish(network, first, statement_of(group), number=1)
    network.run(1)
    old = first.gossip.own
    assert old is not None
    publish(network, first, statement_of(group, 1), number=2)
    network.run(1)
    assert [heard.number for heard in second.take_statements()] == [2]
    replayed = SignedManifest(1, 1188, old.manifest, next(TRANSFERS), len(old.body), kind=Kind.STATEMENT)
    for offered in (False, True):
        if offered:
            offer(network, first, second, old.author, 3)
        say(first, second, replace(replayed, base=next(TRANSFERS)))
        network.run(1)
        assert second.counters.refused == {Refusal.REPLAY: 1 + offered}
    assert not second.take_statements()


def test_waiting_ends_when_a_statement_comes(on_network: Scenario, group: Group) -> None:
    async def scenario(network: RealNetwork) -> None:
        peer = await network.peer(group)
        waiting = asyncio.ensure_future(peer.statement_arrival())
        other = await network.peer(group, known=[peer.address])
        other.publish(other.sign_statement(statement_of(group), number=1, expires=int(time.time()) + 3600))
        await waiting
        assert len(peer.take_statements()) == 1

    on_network(scenario)
