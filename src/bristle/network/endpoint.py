"""A UDP socket as an IPv8 endpoint: bound to exactly the address asked for, and read many datagrams at a time."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable

from ipv8.messaging.interfaces.endpoint import Endpoint, EndpointClosedException, EndpointListener

from bristle.network.addresses import Address
from bristle.peer.wire_size import LARGEST_DATAGRAM

_BUFFER = 2**21
_AT_ONCE = 32
"""Datagrams read before others on the loop get their turn."""


class UDPSocket(Endpoint):  # type: ignore[misc]  # IPv8 has no types.
    """IPv8's own UDP endpoint listens on another port when one is taken, and reads through asyncio, a datagram a turn.

    Parameters
    ----------
    host, port
        Where to listen: an IPv4 or IPv6 address of this machine, and a port, or 0 for any.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self.family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        self._place = (host, port)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.bytes_up = self.bytes_down = 0

    async def open(self) -> bool:
        """Listen.

        Raises
        ------
        OSError
            If the address is not of this machine, or if somebody else listens there.
        """
        opened = socket.socket(self.family, socket.SOCK_DGRAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            if self.family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.setblocking(False)
            opened.bind(self._place)
        except OSError as error:
            opened.close()
            host, port = self._place
            raise OSError(
                error.errno,
                f"cannot listen on {host} port {port} ({error.strerror}); choose another port, or 0 for any",
            ) from None
        self._socket, self._loop = opened, asyncio.get_running_loop()
        self._loop.add_reader(opened, self.read)
        return True

    def read(self) -> None:
        """Hand on what has come, up to a bound."""
        for _ in range(_AT_ONCE):
            if self._socket is None:  # Closed by what the last datagram caused.
                return
            try:
                # One byte more than is looked at tells that a datagram was too long.
                datagram, address = self._socket.recvfrom(LARGEST_DATAGRAM + 1)
            except OSError:  # Nothing more, or an error report about something that was sent.
                return
            self.bytes_down += len(datagram)
            self.notify_listeners((address[:2], datagram))

    def send(self, socket_address: Address, packet: bytes) -> None:
        """Send a datagram. When the network does not take it, it is lost, as on any other part of its way."""
        self.assert_open()
        assert self._socket is not None
        try:
            self._socket.sendto(packet, socket_address)
            self.bytes_up += len(packet)
        except OSError as error:
            self._logger.debug("could not send to %s port %d: %s", *socket_address, error)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None and self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def assert_open(self) -> None:
        """Raise an error if this is not open."""
        if self._socket is None:
            raise EndpointClosedException(self)

    def is_open(self) -> bool:
        """Tell whether this listens."""
        return self._socket is not None

    def get_address(self) -> Address:
        """Return where this really listens."""
        self.assert_open()
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return host, port

    def reset_byte_counters(self) -> None:
        """Count bytes from 0."""
        self.bytes_up = self.bytes_down = 0


class Listener(EndpointListener):  # type: ignore[misc]  # IPv8 has no types.
    """Hands what an endpoint receives to a function.

    Parameters
    ----------
    endpoint : UDPSocket
        Where it comes from.
    receive : callable
        Takes an address and a datagram.
    """

    def __init__(self, endpoint: UDPSocket, receive: Callable[[Address, bytes], None]) -> None:
        super().__init__(endpoint)
        self._receive = receive
        endpoint.add_listener(self)

    def on_packet(self, packet: tuple[Address, bytes]) -> None:
        """Take a datagram."""
        self._receive(*packet)
