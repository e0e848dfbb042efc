"""A UDP socket as an IPv8 endpoint: bound to exactly the address asked for, and read many datagrams at a time."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import Callable

from ipv8.messaging.interfaces.endpoint import Endpoint, EndpointClosedException

from bristle.p2p.flood_filter import Shield, Welcomed
from bristle.wire.messages import Address
from bristle.wire.sizes import LARGEST_DATAGRAM

_BUFFER = 2**21
_AT_ONCE = 32
"""Datagrams read before others on the loop get their turn."""

CROWDED = 2000.0
"""Datagrams a second from which on the socket is looked at now and then, rather than whenever one comes."""

FLOODED = 1000.0
"""Datagrams a second that are refused from which on the shield is raised."""

NOW_AND_THEN = 0.005
"""Seconds between looks at a crowded socket."""

AT_A_LOOK = 256
"""Datagrams read at each look: what is more than that each time is lost, whoever sent it."""

SHIELDED = 1.0
"""Seconds for which a shield stays up."""

_MEASURED = 0.05
"""Seconds over which the rate is measured."""


class UDPSocket(Endpoint):  # type: ignore[misc]  # IPv8 has no types.
    """IPv8's own UDP endpoint listens on another port when one is taken, and reads through asyncio, a datagram a turn.

    A flood costs more by waking the process for every datagram than by anything that is done with them. So when there
    are many, they are left to the kernel's buffer for a few milliseconds, and as many are read then as a bound allows.
    When most are refused, a shield is raised for a second, as far as the system has one.

    Parameters
    ----------
    host, port
        Where to listen: an IPv4 or IPv6 address of this machine, and a port, or 0 for any.
    receive : callable
        Takes what has come, addresses and datagrams, and returns how many of them it refused.
    welcomed : callable
        Returns what passes the shield.
    unread : callable
        Takes how many datagrams the kernel has dropped.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        receive: Callable[[list[tuple[Address, bytes]]], int],
        welcomed: Callable[[], Welcomed],
        unread: Callable[[int], None],
    ) -> None:
        super().__init__()
        self.family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        self._place = (host, port)
        self._receive, self._welcomed, self._unread = receive, welcomed, unread
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.bytes_up = self.bytes_down = 0
        self._shield: Shield | None = None
        self._lowering: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._counted = self._refused = 0
        self._since = 0.0

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
        self._socket, self._loop, self._shield = opened, asyncio.get_running_loop(), Shield(opened)
        self._loop.add_reader(opened, self.read)
        return True

    @property
    def crowded(self) -> bool:
        """Whether so much comes that the socket is looked at only now and then."""
        return self._look is not None

    @property
    def shielded(self) -> bool:
        """Whether the kernel drops most of what comes."""
        return self._lowering is not None

    def read(self) -> None:
        """Hand on what has come, up to a bound."""
        self._drain(_AT_ONCE)
        if self._loop is None or self._socket is None or self.crowded:
            return
        if self._measure(CROWDED, meanwhile=False):
            self._loop.remove_reader(self._socket)
            self._look = self._loop.call_later(NOW_AND_THEN, self._look_again)

    def _look_again(self) -> None:
        """Look at a crowded socket; when it is crowded no more, be woken again by whatever comes."""
        assert self._loop is not None
        self._drain(AT_A_LOOK)
        if self._socket is None:
            return
        if self._measure(CROWDED / 2, meanwhile=True):
            self._look = self._loop.call_later(NOW_AND_THEN, self._look_again)
        else:
            self._look = None
            self._loop.add_reader(self._socket, self.read)

    def _measure(self, rate: float, *, meanwhile: bool) -> bool:
        """Tell whether more than so many datagrams a second came, or something else while that is not known yet."""
        assert self._loop is not None
        now = self._loop.time()
        elapsed = now - self._since
        if elapsed < _MEASURED:
            return meanwhile
        counted, refused = self._counted, self._refused
        self._counted, self._refused, self._since = 0, 0, now
        if refused > FLOODED * elapsed:
            self._raise_shield()
        return counted > rate * elapsed

    def _raise_shield(self) -> None:
        assert self._loop is not None
        assert self._shield is not None
        if not self.shielded and self._shield.raise_for(self._welcomed(), salt=random.getrandbits(32)):
            self._lowering = self._loop.call_later(SHIELDED, self._lower_shield)

    def _lower_shield(self) -> None:
        """Let everything through: if it is too much still, the shield is soon raised again, for others to pass."""
        assert self._shield is not None
        if self._lowering is not None:
            self._lowering.cancel()
            self._lowering = None
            self._shield.lower()
            self._unread(self._shield.dropped())

    def _drain(self, most: int) -> None:
        """Hand on up to so many datagrams."""
        come: list[tuple[Address, bytes]] = []
        if self._socket is None:
            return
        read = self._socket.recvfrom
        try:
            for _ in range(most):
                # One byte more than is looked at tells that a datagram was too long.
                datagram, address = read(LARGEST_DATAGRAM + 1)
                come.append((address[:2], datagram))
        except OSError:  # Nothing more, or an error report about something that was sent.
            pass
        self.bytes_down += sum(len(datagram) for _, datagram in come)
        if come:
            self._counted += len(come)
            self._refused += self._receive(come)

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
            self._lower_shield()
            if self._look is not None:
                self._look.cancel()
                self._look = None
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
