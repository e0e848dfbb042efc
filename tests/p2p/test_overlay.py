"""Real overlays on real sockets of loopback, with a relay between them that spoils what it passes on."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bristle.p2p import Limits, Overlay
from bristle.wire import Group, Identity

if TYPE_CHECKING:
    from tests.support.network import Matrix, RealNetwork

Scenario = Callable[[Callable[["RealNetwork"], Awaitable[None]]], None]
Wait = Callable[..., Coroutine[Any, Any, None]]
Heads = Callable[..., "Matrix"]

QUICK = Limits(keepalive=0.2, silence=1.0, retry=0.1, longest_retry=0.5)
SMALL_DATAGRAMS = Limits(loopback_datagram=1232)


async def mesh(network: RealNetwork, wait: Wait, group: Group, count: int, **options: Any) -> list[Overlay]:
    peers = [await network.peer(group, **options)]
    for _ in range(count - 1):
        peers.append(await network.peer(group, known=[peers[0].address], **options))
    await wait(lambda: all(len(peer.neighbours()) == count - 1 for peer in peers))
    return peers


def test_ten_peers_find_each_other_from_one_address_and_share_with_all(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads
) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = await mesh(network, wait, large, 10)
        before = sum(peer.counters.bytes_out for peer in peers)
        for iteration in range(1, 4):
            for index, peer in enumerate(peers):
                peer.share(head_of(large, index), iteration=iteration, claims=np.arange(10) == index)
            await asyncio.gather(*(peer.sent() for peer in peers))
            await wait(lambda count=9 * iteration: all(peer.counters.heads_in == count for peer in peers))
            for index, peer in enumerate(peers):
                received = {each.sender: each for each in peer.take()}
                assert len(received) == 9
                for other, sender in enumerate(peers):
                    if other != index:
                        each = received[sender.identity.key_id]
                        assert (each.iteration, each.address) == (iteration, sender.address)
                        np.testing.assert_allclose(each.head, head_of(large, other), atol=0.005)
                        assert each.claims is not None
                        assert np.flatnonzero(each.claims).tolist() == [other]
        per_head = (sum(peer.counters.bytes_out for peer in peers) - before) / (3 * 90)
        assert per_head <= 9_000
        assert all(peer.counters.heads_out == 27 for peer in peers)

    on_network(scenario)


def test_bytes_of_a_head_with_everything_counted(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads
) -> None:
    async def scenario(network: RealNetwork) -> None:
        first, second = await mesh(network, wait, large, 2, limits=SMALL_DATAGRAMS)
        head: Any = head_of(large)
        for iteration, most in enumerate((9_000, 5_000)):
            before = first.counters.bytes_out + first.counters.bytes_in
            first.share(head, iteration=iteration)
            await second.arrival()
            await first.sent()
            assert first.counters.bytes_out + first.counters.bytes_in - before <= most
            assert len(second.take()) == 1
            head = head + head_of(large, 1) / 20

    on_network(scenario)


def test_heads_arrive_through_a_bad_network(on_network: Scenario, wait: Wait, large: Group, head_of: Heads) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(large, limits=SMALL_DATAGRAMS)
        relays = [network.relay(first.address, seed=seed) for seed in range(3)]
        others = [await network.peer(large, limits=SMALL_DATAGRAMS, known=[relay.address]) for relay in relays]
        await wait(lambda: len(first.neighbours()) == 3)
        for iteration in range(1, 4):
            for index, peer in enumerate([first, *others]):
                peer.share(head_of(large, index), iteration=iteration)
            await wait(lambda count=3 * iteration: first.counters.heads_in == count)
            received = {each.sender: each.head for each in first.take()}
            for index, peer in enumerate(others):
                np.testing.assert_allclose(received[peer.identity.key_id], head_of(large, index + 1), atol=0.005)
            await wait(lambda count=iteration: all(peer.counters.heads_in >= count for peer in others))
        lost = sum(relay.lost for relay in relays) / sum(relay.relayed for relay in relays)
        assert 0.1 < lost < 0.3
        assert first.counters.retransmissions > 0

    on_network(scenario)


def test_a_silent_peer_is_dropped_and_comes_back(on_network: Scenario, wait: Wait, group: Group) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(group, limits=QUICK)
        relay = network.relay(first.address)
        relay.impairment = replace(relay.impairment, loss=0, delay=0, jitter=0, duplication=0)
        second = await network.peer(group, limits=QUICK, known=[relay.address])
        await wait(lambda: bool(first.neighbours() and second.neighbours()))
        relay.cut = True
        await wait(lambda: not first.neighbours() and not second.neighbours())
        relay.cut = False
        await wait(lambda: bool(first.neighbours() and second.neighbours()))

    on_network(scenario)


def test_a_peer_that_comes_back_under_the_same_key_and_port(
    on_network: Scenario, wait: Wait, group: Group, head_of: Heads
) -> None:
    async def scenario(network: RealNetwork) -> None:
        identity = Identity.generate()
        first = await network.peer(group, limits=QUICK)
        second = await network.peer(group, limits=QUICK, identity=identity, known=[first.address])
        await wait(lambda: bool(first.neighbours()))
        address = second.address
        await second.stop()
        await wait(lambda: not first.neighbours())
        again = await network.peer(group, limits=QUICK, identity=identity, listen=address)
        # It knows nobody; but it is remembered.
        await wait(lambda: bool(again.neighbours()))
        again.share(head_of(group), iteration=1)
        await first.arrival()
        assert [each.sender for each in first.take()] == [identity.key_id]

    on_network(scenario)


def test_nothing_is_contacted_that_nobody_named(on_network: Scenario, wait: Wait, group: Group) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = [await network.peer(group, limits=QUICK) for _ in range(2)]
        await asyncio.sleep(0.5)
        assert all(not peer.neighbours() and peer.counters.datagrams == 0 for peer in peers)

    on_network(scenario)


def test_noise_is_counted_and_harms_nothing(on_network: Scenario, wait: Wait, group: Group, head_of: Heads) -> None:
    async def scenario(network: RealNetwork) -> None:
        first, second = await mesh(network, wait, group, 2)
        noise = np.random.default_rng(0)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for size in [*range(40), 500, 1500, 9000, 60_000]:
                stranger.sendto(noise.bytes(size), first.address)
                stranger.sendto(b"\xb5" + noise.bytes(size), first.address)
                stranger.sendto(b"br" + noise.bytes(size), first.address)
                stranger.sendto(b"br" + group.id + noise.bytes(size), first.address)
        second.share(head_of(group), iteration=1)
        await first.arrival()
        refused = first.counters.refused
        assert refused["malformed"] > 40
        assert refused["unknown session"] > 40
        assert refused["wrong group"] > 10
        assert refused["oversize"] > 4
        assert len(first.take()) == 1

    on_network(scenario)


def test_closed_groups_stay_closed(on_network: Scenario, wait: Wait, group: Group, head_of: Heads) -> None:
    async def scenario(network: RealNetwork) -> None:
        closed = replace(group, secret=b"correct horse battery staple")
        insiders = await mesh(network, wait, closed, 2)
        outsider = await network.peer(group, known=[insiders[0].address])
        guesser = await network.peer(replace(group, secret=b"a guess that is wrong"), known=[insiders[0].address])
        insiders[0].share(head_of(group), iteration=1)
        await insiders[1].arrival()
        await wait(lambda: insiders[0].counters.refused.get("wrong group", 0) >= 2)
        for spy in (outsider, guesser):
            assert not spy.neighbours()
            assert spy.counters.bytes_in == 0

    on_network(scenario)


def test_a_newer_share_replaces_an_older_and_sent_returns(
    on_network: Scenario, wait: Wait, large: Group, head_of: Heads
) -> None:
    async def scenario(network: RealNetwork) -> None:
        first, second = await mesh(network, wait, large, 2)
        for iteration in range(20):
            first.share(head_of(large, iteration), iteration=iteration)
        await first.sent()
        await wait(lambda: second.node.inbox.seen(first.identity.key_id) == first.node.outbox.next_sequence - 1)
        (received,) = second.take()
        assert received.iteration == 19
        np.testing.assert_allclose(received.head, head_of(large, 19), atol=0.005)

    on_network(scenario)


def test_sent_returns_when_there_is_nobody_or_when_it_stops(
    on_network: Scenario, wait: Wait, group: Group, head_of: Heads
) -> None:
    async def scenario(network: RealNetwork) -> None:
        alone = await network.peer(group)
        await alone.sent()
        alone.share(head_of(group), iteration=1)
        await alone.sent()
        first, second = await mesh(network, wait, group, 2)
        second.udp.close()  # Gone without a word.
        first.share(head_of(group), iteration=1)
        waiting = asyncio.ensure_future(first.sent())
        await asyncio.sleep(0)
        assert not waiting.done()
        await first.stop()
        await waiting
        await first.stop()

    on_network(scenario)


def test_ipv6(on_network: Scenario, wait: Wait, group: Group, head_of: Heads) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(group, listen=("::1", 0))
        others = [await network.peer(group, listen=("::1", 0), known=[first.address]) for _ in range(2)]
        await wait(lambda: all(len(peer.neighbours()) == 2 for peer in others))
        others[0].share(head_of(group), iteration=1)
        await others[1].arrival()

    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    on_network(scenario)


def test_names_of_hosts_are_looked_up(on_network: Scenario, wait: Wait, group: Group) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(group)
        second = await network.peer(group, known=[("localhost", first.address[1])])
        await wait(lambda: bool(second.neighbours()))

    on_network(scenario)


def test_a_beacon_finds_peers_of_the_same_network(on_network: Scenario, wait: Wait, group: Group) -> None:
    async def scenario(network: RealNetwork) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        first = await network.peer(group, beacon=port)
        second = await network.peer(group, beacon=port)
        other = await network.peer(replace(group, application="another"), beacon=port)
        await wait(lambda: bool(first.neighbours() and second.neighbours()))
        assert not other.neighbours()

    on_network(scenario)


def test_a_port_that_is_taken_is_an_error(on_network: Scenario, group: Group) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(group)
        with pytest.raises(OSError, match="choose another port"):
            await network.peer(group, listen=first.address)

    on_network(scenario)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"listen": ("localhost", 0)}, "IP address"),
        ({"listen": ("127.0.0.1", 70_000)}, "65535"),
        ({"known": [("127.0.0.1", 0)]}, "from 1 to 65535, not 0"),
        ({"beacon": 70_000}, "from 1 to 65535"),
    ],
)
def test_mistakes_are_named(group: Group, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Overlay(identity=Identity.generate(), group=group, **options)


def test_importing_the_network_loads_no_web_server() -> None:
    code = "import sys, bristle.p2p; print([name for name in ('aiohttp', 'aiohttp.web') if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
