"""Event loops that cannot watch sockets, as Windows' default one: everything works, by polling."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from bristle.p2p import Overlay
from bristle.p2p.flood_filter import AllowedTraffic
from bristle.p2p.udp import CROWDED, UDPSocket
from bristle.wire import Group
from bristle.wire.messages import Address
from tests.support.network import RealNetwork, eventually

if TYPE_CHECKING:
    from tests.support.network import Matrix

Heads = Callable[..., "Matrix"]


def arrived(peers: list[Overlay], heads: int) -> bool:
    return all(peer.counters.heads_in == heads for peer in peers)


class Blind(asyncio.SelectorEventLoop):
    """An event loop that watches no sockets for its users."""

    def add_reader(self, *_: Any) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError

    def remove_reader(self, *_: Any) -> NoReturn:
        raise NotImplementedError


def socket_of(receive: Callable[[list[tuple[Address, bytes]]], int]) -> UDPSocket:
    allowed = AllowedTraffic(bytes(22), (), ())
    return UDPSocket("127.0.0.1", 0, receive=receive, allowed=lambda: allowed, unread=lambda dropped: None)


def on_blind_loop(scenario: Callable[[RealNetwork], Any]) -> None:
    async def whole() -> None:
        network = RealNetwork()
        try:
            await scenario(network)
        finally:
            await network.close()

    with asyncio.Runner(loop_factory=Blind) as runner:
        runner.run(whole())


def test_peers_join_and_exchange(large: Group, head_of: Heads) -> None:
    async def scenario(network: RealNetwork) -> None:
        peers = [await network.peer(large)]
        dead = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with dead:
            dead.bind(("127.0.0.1", 0))
            nobody = dead.getsockname()
        # Calls to a port where nobody listens do no harm.
        peers += [await network.peer(large, known=[nobody, peers[0].address]) for _ in range(2)]
        await eventually(lambda: all(len(peer.neighbours()) == 2 for peer in peers))
        for iteration in range(1, 4):
            for number, peer in enumerate(peers):
                peer.share(head_of(large, number), iteration=iteration)
            await asyncio.gather(*(peer.sent() for peer in peers))
            await eventually(partial(arrived, peers, 2 * iteration))
            for peer in peers:
                heads = {head.sender: head.head for head in peer.take()}
                for number, other in enumerate(peers):
                    if other is not peer:
                        np.testing.assert_array_equal(heads[other.identity.key_id], head_of(large, number))
        await peers[0].stop()
        await eventually(lambda: all(len(peer.neighbours()) == 1 for peer in peers[1:]))

    on_blind_loop(scenario)


def test_a_socket_that_is_not_watched_is_polled_until_it_is_closed() -> None:
    async def scenario(network: RealNetwork) -> None:
        heard: list[bytes] = []

        def receive(come: list[tuple[Address, bytes]]) -> int:
            heard.extend(datagram for _, datagram in come)
            return 0

        sockets = [socket_of(receive) for _ in range(2)]
        for each in sockets:
            await each.open()
            assert each.crowded
        receiving, sending = sockets
        for number in range(int(CROWDED) // 10):  # More than one poll reads, and after a pause more.
            sending.send(receiving.get_address(), number.to_bytes(2, "big"))
        await eventually(lambda: len(heard) == CROWDED // 10)
        assert receiving.crowded
        receiving.close()
        assert not receiving.crowded
        receiving.close()
        sending.close()
        assert heard == [number.to_bytes(2, "big") for number in range(int(CROWDED) // 10)]

    on_blind_loop(scenario)


def test_what_the_system_reports_of_sent_datagrams_hides_none_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows reports a closed port, or a datagram that is too long, to whoever reads next."""
    queue: list[tuple[bytes, Address] | OSError] = [
        ConnectionResetError(errno.ECONNRESET, "reset"),
        (b"one", ("127.0.0.1", 1)),
        OSError(errno.EMSGSIZE, "too long"),
        (b"two", ("127.0.0.1", 1)),
    ]

    class Windows(socket.socket):
        def recvfrom(self, *_: Any) -> Any:
            if not queue:
                raise BlockingIOError
            found = queue.pop(0)
            if isinstance(found, OSError):
                raise found
            return found

    monkeypatch.setattr(socket, "socket", Windows)

    async def scenario() -> None:
        heard: list[bytes] = []

        def receive(come: list[tuple[Address, bytes]]) -> int:
            heard.extend(datagram for _, datagram in come)
            return 0

        endpoint = socket_of(receive)
        await endpoint.open()
        endpoint.read()
        endpoint.close()
        assert heard == [b"one", b"two"]

    asyncio.run(scenario())
