from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from bristle.p2p import Overlay
from bristle.p2p.beacon import Beacon
from bristle.p2p.flood_filter import AllowedTraffic
from bristle.p2p.udp import UDPSocket
from bristle.wire import Group, Identity
from bristle.wire.messages import Address
from bristle.wire.refusal import Refusal

GROUP = Group(application="a", backbone="b", classes=("0", "1"), features=8)


def taken_port() -> tuple[socket.socket, int]:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("", 0))
    return taken, taken.getsockname()[1]


def socket_at(port: int = 0, receive: Callable[[list[tuple[Address, bytes]]], int] = lambda come: 0) -> UDPSocket:
    return UDPSocket(
        "127.0.0.1",
        port,
        receive=receive,
        allowed=lambda: AllowedTraffic(bytes(22), (), ()),
        unread=lambda dropped: None,
    )


def test_a_closed_socket_says_so_and_may_be_closed_again() -> None:
    async def scenario() -> None:
        endpoint = socket_at()
        endpoint.close()
        assert not endpoint.is_open()
        await endpoint.open()
        assert endpoint.is_open()
        endpoint.close()
        endpoint.close()
        endpoint.read()
        for use in (endpoint.get_address, lambda: endpoint.send(("127.0.0.1", 9), b"x")):
            with pytest.raises(RuntimeError, match="closed"):
                use()

    asyncio.run(scenario())


def test_what_a_datagram_causes_may_close_the_socket() -> None:
    async def scenario() -> None:
        heard: list[bytes] = []

        def close(come: list[tuple[Address, bytes]]) -> int:
            heard.extend(datagram for _, datagram in come)
            receiving.close()
            return 0

        receiving, sending = socket_at(receive=close), socket_at()
        await receiving.open()
        await sending.open()
        to = receiving.get_address()
        sending.send(to, b"one")
        assert sending.bytes_up == 3
        async with asyncio.timeout(120):
            while not heard:
                await asyncio.sleep(0.01)
        receiving.read()
        assert heard == [b"one"]
        assert receiving.bytes_down == 3
        sending.close()

    asyncio.run(scenario())


def test_what_the_network_does_not_take_is_lost_and_not_counted() -> None:
    async def scenario() -> None:
        endpoint = socket_at()
        await endpoint.open()
        endpoint.send(("127.0.0.1", 9), bytes(70_000))  # more than a datagram can hold
        assert endpoint.bytes_up == 0
        endpoint.close()

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_named_and_nothing_stays_open() -> None:
    async def scenario() -> None:
        taken, port = taken_port()
        with taken:
            overlay = Overlay(identity=Identity.generate(), group=GROUP, listen=("127.0.0.1", 0), beacon=port)
            with pytest.raises(OSError, match=f"cannot use port {port} for the beacon"):
                await overlay.start()
            assert not overlay.running
            await overlay.stop()
            endpoint = socket_at(port)
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port} .*; choose another port"):
                await endpoint.open()
            assert not endpoint.is_open()

    asyncio.run(scenario())


def test_an_overlay_may_be_started_and_stopped_twice() -> None:
    async def scenario() -> None:
        overlay = Overlay(identity=Identity.generate(), group=GROUP, listen=("127.0.0.1", 0))
        await overlay.stop()
        await overlay.start()
        address = overlay.address
        await overlay.start()
        assert overlay.address == address
        await overlay.stop()
        await overlay.stop()
        assert not overlay.running

    asyncio.run(scenario())


def test_a_beacon_hears_so_much_and_no_more() -> None:
    async def scenario() -> None:
        refused: list[Refusal] = []
        beacon = Beacon(
            group=GROUP, port=0, listening=("127.0.0.1", 1), found=lambda address: None, refused=refused.append
        )
        await beacon.stop()  # One that never began falls silent too.
        for _ in range(1000):
            beacon.datagram_received(b"nonsense", ("127.0.0.1", 5))
        assert refused[0] is Refusal.MALFORMED
        assert refused[-1] is Refusal.OVER_BUDGET
        assert 10 < refused.count(Refusal.MALFORMED) < 500

    asyncio.run(scenario())
