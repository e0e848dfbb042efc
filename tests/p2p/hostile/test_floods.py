"""Floods over real sockets: honest heads still arrive, and memory stays where it was."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle.p2p import Limits
from bristle.wire import Group, handshake, messages
from bristle.wire.kinds import Kind
from bristle.wire.session import SEALED

if TYPE_CHECKING:
    from tests.support.hostile import Attacker, Attackers, Bodies, Heads, Scenario, Wait
    from tests.support.network import RealNetwork


SOURCES = 60
ROUNDS = 8


def unsigned(kind: str, group: Group, rng: random.Random) -> bytes:
    return {
        "noise": lambda: rng.randbytes(100),
        "session": lambda: bytes([SEALED]) + rng.randbytes(100),
        "hello": lambda: handshake.encode_hello(group, rng.randbytes(16)),
        "join": lambda: handshake.prefix_of(group) + bytes([handshake.JOIN, handshake.VERSION, 0]) + rng.randbytes(212),
        "cookie": lambda: handshake.encode_cookie(group, rng.randbytes(16), rng.randbytes(16)),
    }[kind]()


async def honest(network: RealNetwork, wait: Wait, group: Group, count: int, **limits: Any) -> list[Any]:
    first = await network.peer(group, limits=Limits(**limits))
    peers = [first, *[await network.peer(group, known=[first.address]) for _ in range(count - 1)]]
    await wait(lambda: all(len(peer.neighbours()) == count - 1 for peer in peers))
    return peers


async def rounds(peers: list[Any], group: Group, head_of: Heads, wait: Wait, flood: Callable[[], None]) -> None:
    """Let honest peers share heads under a flood, and see to it that the first gets the newest of each in the end."""
    first, *others = peers
    for iteration in range(ROUNDS):
        for number, peer in enumerate(others):
            peer.share(head_of(group, 10 * iteration + number), iteration=iteration)
        flood()
        await asyncio.sleep(0.03)
    newest: dict[bytes, Any] = {}

    def all_there() -> bool:
        flood()
        newest.update({one.sender: one for one in first.take()})
        return all(peer.identity.key_id in newest for peer in others) and all(
            newest[peer.identity.key_id].iteration == ROUNDS - 1 for peer in others
        )

    await wait(all_there)
    for number, peer in enumerate(others):
        expected = head_of(group, 10 * (ROUNDS - 1) + number)
        np.testing.assert_array_equal(newest[peer.identity.key_id].head, expected)


@pytest.mark.parametrize("kind", ["noise", "session", "hello", "join", "cookie"])
def test_honest_heads_arrive_through_an_unsigned_flood(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads, attackers: Attackers, kind: str
) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = await honest(network, wait, large, 3)
        rng = random.Random(kind)
        crowd = [attackers(large, host=f"127.{1 + number}.0.1") for number in range(SOURCES)]
        sent = [unsigned(kind, large, rng) for _ in range(100)]

        def flood() -> None:
            for attacker in crowd:
                attacker.target = peers[0].address
                for _ in range(6):
                    attacker.send(rng.choice(sent))

        await rounds(peers, large, head_of, wait, flood)
        node = peers[0].node
        # What the filter has dropped is known when it is disabled.
        await wait(lambda: node.counters.refused.total() > 300)
        assert {link.key_id for link in node.membership.links.values()} == {peer.identity.key_id for peer in peers[1:]}
        assert len(node.membership.sessions) <= 4
        assert node.inbox.memory == 0
        # A newcomer finds its way in, once the flood is over at the latest.
        newcomer = await network.peer(large, known=[peers[0].address])
        await wait(lambda: len(newcomer.neighbours()) == 3)

    on_network(scenario)


@pytest.mark.parametrize("kind", ["acknowledgements", "pieces", "peers", "manifests", "leave"])
def test_members_who_flood_are_let_go_and_honest_heads_arrive(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads, attackers: Attackers, body_of: Bodies, kind: str
) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = await honest(network, wait, large, 3, neighbours=8, useless_rate=2.0)
        crowd = [attackers(large, host=f"127.{1 + number}.0.1") for number in range(6)]
        for attacker in crowd:
            assert await attacker.join(peers[0].address)
        await wait(lambda: len(peers[0].neighbours()) == 8)
        body = body_of(head_of(large, 99))
        strangers = tuple((os.urandom(20), (f"127.9.9.{n}", 9)) for n in range(messages.MOST_PEERS))

        def message(attacker: Attacker, turn: int) -> messages.Message:
            match kind:
                case "acknowledgements":
                    return messages.Acknowledgement(2**40 + turn, 1, 1, 2**64 - 1)
                case "pieces":
                    return messages.Piece(2**40 + turn, 1, turn, bytes(50))
                case "peers":
                    return messages.Peers(0, strangers)
                case "manifests":
                    return messages.SignedManifest(1, 4000, attacker.manifest(body)[1])
            return messages.Leave()

        def flood() -> None:
            for attacker in crowd:
                for turn in range(20):
                    attacker.say(message(attacker, turn))

        def flooding_until_let_go() -> bool:
            flood()
            return len(peers[0].neighbours()) == 2

        await rounds(peers, large, head_of, wait, flood)
        await wait(flooding_until_let_go)
        node = peers[0].node
        if kind != "leave":
            assert node.counters.refused.get("too many useless messages") == 6
        assert {link.key_id for link in node.membership.links.values()} == {peer.identity.key_id for peer in peers[1:]}
        assert node.inbox.memory == 0
        assert len(node.membership.contacts) <= Limits().contacts

    on_network(scenario)


def test_members_who_take_no_heads_hold_up_no_round(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads, attackers: Attackers
) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = await honest(network, wait, large, 2, neighbours=12)
        first = peers[0]
        first.share(head_of(large), iteration=0)
        await first.sent()
        await wait(lambda: first.counters.heads_out == 1)
        crowd = [attackers(large, host=f"127.{1 + number}.0.1") for number in range(10)]
        for attacker in crowd:
            assert await attacker.join(first.address)
        await wait(lambda: len(first.neighbours()) == 11)
        for iteration in range(1, 30):
            first.share(head_of(large, iteration), iteration=iteration)
            # Waiting for those who answer nothing would take seconds: only the honest one is waited for.
            link = first.node.membership.links[peers[1].identity.key_id]
            assert [one is link.outgoing[Kind.HEAD] for one in awaited(first)] == [True]
            await first.sent()
        assert first.node.outbox.next_sequence == first.node.outbox.first_sequence + 30
        await wait(lambda: peers[1].node.inbox.seen(first.identity.key_id) == first.node.outbox.next_sequence - 1)

    on_network(scenario)


def awaited(peer: Any) -> list[Any]:
    awaited: list[Any] = peer.node.outbox.awaited
    return awaited


def test_the_flood_filter_lets_through_what_it_should(
    on_network: Scenario,
    wait: Wait,
    group: Group,
    head_of: Heads,
    attackers: Attackers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bristle.p2p.udp.FILTER_SECONDS", 600.0)  # Until it is disabled here.

    async def scenario(network: RealNetwork) -> None:
        peers = await honest(network, wait, group, 2)
        endpoint = peers[0].udp
        endpoint.enable_filter()
        if not endpoint.filtering:
            pytest.skip("this system has no filter for sockets")
        stranger = attackers(group, host="127.200.0.1")
        stranger.target = peers[0].address
        before = peers[0].counters
        prefix = handshake.prefix_of(group)
        nearly = prefix[:-1] + bytes([prefix[-1] ^ 1])
        for size in range(200):
            stranger.send(os.urandom(size))
            stranger.send(bytes([SEALED]) + os.urandom(size))
            stranger.send(nearly + os.urandom(size))
        peers[1].share(head_of(group), iteration=1)
        await peers[0].arrival()
        assert peers[0].counters.refused == before.refused
        endpoint.disable_filter()
        assert peers[0].counters.refused["dropped unread in a flood"] == 600
        stranger.send(b"noise")
        await wait(lambda: peers[0].counters.refused.get("malformed") == 1)
        # Some sixteenth of all strangers is heard while it is up, another one each time.
        heard = 0
        crowd = [attackers(group, host=f"127.{1 + number}.7.1") for number in range(160)]
        endpoint.enable_filter()
        for attacker in crowd:
            attacker.target = peers[0].address
            attacker.send(handshake.encode_hello(group, os.urandom(16)))

        def answered() -> bool:
            nonlocal heard
            for attacker in crowd:
                try:
                    heard += bool(attacker.socket.recv(9000))
                except BlockingIOError:
                    continue
            return heard > 0

        await wait(answered)
        assert heard < 60
        # Those on a host that we know always are.
        friend = attackers(group)
        assert await friend.join(peers[0].address)

    on_network(scenario)


def test_a_socket_is_looked_at_now_and_then_while_it_is_crowded(
    on_network: Scenario, wait: Wait, group: Group, head_of: Heads, attackers: Attackers
) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = await honest(network, wait, group, 2)
        endpoint = peers[0].udp
        endpoint.enable_filter()
        filters = endpoint.filtering
        endpoint.disable_filter()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.connect(peers[0].address)

            def crowded() -> bool:
                for _ in range(100):
                    stranger.send(b"noise")
                return bool(endpoint.crowded)

            await wait(crowded)
            await wait(lambda: crowded() and (endpoint.filtering or not filters))
        peers[1].share(head_of(group), iteration=1)
        await peers[0].arrival()
        await wait(lambda: not endpoint.crowded and not endpoint.filtering)
        peers[1].share(head_of(group, 1), iteration=2)
        await wait(lambda: any(one.iteration == 2 for one in peers[0].take()))

    on_network(scenario)
