"""Peers of different versions of the wire format say so on both sides, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from bristle.wire import Group, handshake
from bristle.wire.messages import Address
from bristle.wire.refusal import Refusal

if TYPE_CHECKING:
    from tests.support.network import RealNetwork

Scenario = Callable[[Callable[["RealNetwork"], Awaitable[None]]], None]
Wait = Callable[..., Coroutine[Any, Any, None]]

NONCE = bytes(range(16))


@pytest.fixture
def stranger() -> Any:
    """Return a socket of loopback, closed at the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.setblocking(False)
        yield opened


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "bristle.p2p"]


@pytest.mark.parametrize(
    ("version", "hello", "answer"),
    [
        (1, "0002 {group} 01 01 {nonce} {zeros}", "0002 {group} 01 02 {nonce} {zeros}"),
        (3, "6272 {group} 01 03 {nonce} {zeros} aabbcc", "6272 {group} 05 02 {nonce}"),
    ],
)
def test_a_caller_of_another_version_is_answered_counted_and_logged_once(
    on_network: Scenario,
    wait: Wait,
    group: Group,
    stranger: socket.socket,
    caplog: pytest.LogCaptureFixture,
    version: int,
    hello: str,
    answer: str,
) -> None:
    parts = {"group": group.id.hex(), "nonce": NONCE.hex(), "zeros": "00" * 24}
    calls = 3

    async def scenario(network: RealNetwork) -> None:
        peer = await network.peer(group)
        for count in range(1, calls + 1):
            stranger.sendto(bytes.fromhex(hello.format(**parts)), peer.address)
            await wait(lambda count=count: peer.counters.refused[Refusal.VERSION] == count)
            heard = await asyncio.get_running_loop().sock_recv(stranger, 9000)
            assert heard == bytes.fromhex(answer.format(**parts))
        assert not peer.neighbours()

    with caplog.at_level(logging.WARNING, logger="bristle.p2p"):
        on_network(scenario)
    port = stranger.getsockname()[1]
    assert said(caplog) == [
        f"the peer at 127.0.0.1 port {port} speaks version {version} of the wire format, this one version 2; "
        "install the same release of Bristle on both"
    ]


def test_who_calls_a_peer_of_another_version_learns_it_from_the_answer(
    on_network: Scenario, wait: Wait, group: Group, stranger: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(network: RealNetwork) -> None:
        peer = await network.peer(group, known=[stranger.getsockname()])
        loop = asyncio.get_running_loop()
        hello = await loop.sock_recv(stranger, 9000)
        nonce = hello[24:40]
        assert hello == b"br" + group.id + bytes([1, 2]) + nonce + bytes(24)
        # Somebody who has not seen the hello cannot answer it.
        stranger.sendto(b"br" + group.id + bytes([5, 3]) + bytes(16), peer.address)
        await wait(lambda: peer.counters.refused[Refusal.UNKNOWN_SESSION] == 1)
        assert not peer.counters.refused[Refusal.VERSION]
        stranger.sendto(b"br" + group.id + bytes([5, 3]) + nonce, peer.address)
        await wait(lambda: peer.counters.refused[Refusal.VERSION] == 1)

    with caplog.at_level(logging.WARNING, logger="bristle.p2p"):
        on_network(scenario)
    assert len(said(caplog)) == 1
    assert "speaks version 3 of the wire format, this one version 2" in said(caplog)[0]


def test_two_releases_say_so_on_both_sides(
    on_network: Scenario, wait: Wait, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    """Two whole peers; what either sends is relabelled on its way, so that each hears a peer of version 3."""

    async def scenario(network: RealNetwork) -> None:
        called, caller = await network.peer(group), await network.peer(group)
        for peer in (called, caller):
            peer.node.transmit = partial(relabelled, peer.node.transmit)
        caller.node.name(called.address, asyncio.get_running_loop().time())
        await wait(lambda: all(peer.counters.refused[Refusal.VERSION] for peer in (called, caller)))
        assert not called.neighbours()
        assert not caller.neighbours()

    with caplog.at_level(logging.WARNING, logger="bristle.p2p"):
        on_network(scenario)
    assert len(said(caplog)) == 2
    assert all("speaks version 3 of the wire format, this one version 2" in line for line in said(caplog))


def relabelled(transmit: Callable[[Address, bytes], None], address: Address, datagram: bytes) -> None:
    assert handshake.is_handshake(datagram)
    transmit(address, datagram[:23] + b"\x03" + datagram[24:])


def test_a_flood_of_other_versions_does_not_fill_the_log(
    on_network: Scenario, wait: Wait, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 40

    async def scenario(network: RealNetwork) -> None:
        peer = await network.peer(group)
        hello = b"br" + group.id + bytes([1, 9]) + NONCE + bytes(24)
        for port in range(1, calls + 1):
            peer.node.receive(("127.0.0.1", port), hello, 100.0)
        assert peer.counters.refused[Refusal.VERSION] == calls

    with caplog.at_level(logging.WARNING, logger="bristle.p2p"):
        on_network(scenario)
    assert 0 < len(said(caplog)) <= 8
