"""A UDP socket that is read in batches and filtered under floods."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
from collections.abc import Callable

from bristle.p2p.flood_filter import AllowedTraffic, FloodFilter
from bristle.wire.messages import Address
from bristle.wire.sizes import LARGEST_DATAGRAM

LOG = logging.getLogger("bristle.p2p")

_BUFFER = 2**21
_AT_ONCE = 32
"""Datagrams read before the event loop gets its turn."""

CROWDED = 2000.0
"""Datagrams per second beyond which the socket is polled rather than waited for."""

FLOODED = 1000.0
"""Refused datagrams per second beyond which the flood filter is enabled."""

POLL_SECONDS = 0.005
"""Seconds between polls of a crowded socket, or of one that the event loop cannot watch."""

POLL_DATAGRAMS = 256
"""Datagrams read per poll; the rest stays in the kernel's buffer, or is dropped when that is full."""

NEAR = 2
"""Hops of a datagram that is to pass this machine's router, and to be dropped by the next one."""

FILTER_SECONDS = 1.0
"""Seconds for which the flood filter stays enabled."""

_MEASURED = 0.05
"""Seconds over which rates are measured."""


class UDPSocket:
    """A UDP socket bound to exactly the requested address.

    In a flood, waking the process for every datagram costs more than processing it. Beyond a rate, the socket is
    therefore polled every few milliseconds, for a bounded number of datagrams. While many are refused, a flood filter
    drops most of them in the kernel, where the system has one.

    An event loop that cannot watch sockets, such as Windows' default one, polls all the time. Its datagram transports
    are no way out: they go deaf for good after one datagram to a port where nobody listens (CPython issue 127057), and
    peers call addresses of which some are always dead.

    Parameters
    ----------
    host, port
        An IPv4 or IPv6 address of this machine, and a port, or 0 for any free one.
    receive : callable
        Called with lists of (address, datagram); returns how many of them it refused.
    allowed : callable
        Returns what the flood filter accepts.
    unread : callable
        Called with the number of datagrams that the kernel dropped.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        receive: Callable[[list[tuple[Address, bytes]]], int],
        allowed: Callable[[], AllowedTraffic],
        unread: Callable[[int], None],
    ) -> None:
        self.family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        self._place = (host, port)
        self._receive, self._allowed_traffic, self._unread = receive, allowed, unread
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.bytes_up = self.bytes_down = 0
        self._filter: FloodFilter | None = None
        self._filter_timer: asyncio.TimerHandle | None = None
        self._poll_timer: asyncio.TimerHandle | None = None
        self._watched = True
        self._counted = self._refused = 0
        self._since = 0.0

    async def open(self) -> None:
        """Start listening.

        Raises
        ------
        OSError
            If the address is not one of this machine, or is in use.
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
        self._socket, self._loop, self._filter = opened, asyncio.get_running_loop(), FloodFilter(opened)
        try:
            self._loop.add_reader(opened, self.read)
        except NotImplementedError:
            self._watched = False
            self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll)

    @property
    def crowded(self) -> bool:
        """Whether the socket is polled, because of heavy traffic or because the event loop cannot watch it."""
        return self._poll_timer is not None

    @property
    def filtering(self) -> bool:
        """Whether the flood filter is enabled."""
        return self._filter_timer is not None

    def read(self) -> None:
        """Process waiting datagrams, up to a bound."""
        self._drain(_AT_ONCE)
        if self._loop is None or self._socket is None or self.crowded:
            return
        if self._measure(CROWDED, meanwhile=False):
            self._loop.remove_reader(self._socket)
            self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        """Poll the socket; return to waiting when traffic has fallen, where the event loop can."""
        assert self._loop is not None
        self._drain(POLL_DATAGRAMS)
        if self._socket is None:
            return
        crowded = self._measure(CROWDED / 2, meanwhile=True)
        if crowded or not self._watched:
            self._poll_timer = self._loop.call_later(POLL_SECONDS, self._poll)
        else:
            self._poll_timer = None
            self._loop.add_reader(self._socket, self.read)

    def _measure(self, rate: float, *, meanwhile: bool) -> bool:
        """Return whether more than `rate` datagrams per second came; `meanwhile` until that is measured."""
        assert self._loop is not None
        now = self._loop.time()
        elapsed = now - self._since
        if elapsed < _MEASURED:
            return meanwhile
        counted, refused = self._counted, self._refused
        self._counted, self._refused, self._since = 0, 0, now
        if refused > FLOODED * elapsed:
            self.enable_filter()
        return counted > rate * elapsed

    def enable_filter(self) -> None:
        """Enable the flood filter for a while, where the system has one."""
        assert self._loop is not None
        assert self._filter is not None
        if not self.filtering and self._filter.enable(self._allowed_traffic(), salt=random.getrandbits(32)):
            self._filter_timer = self._loop.call_later(FILTER_SECONDS, self.disable_filter)

    def disable_filter(self) -> None:
        """Disable the flood filter; if the flood goes on, it is soon enabled again, for other addresses."""
        assert self._filter is not None
        if self._filter_timer is not None:
            self._filter_timer.cancel()
            self._filter_timer = None
            self._filter.disable()
            self._unread(self._filter.dropped())

    def _drain(self, most: int) -> None:
        """Process up to `most` datagrams."""
        come: list[tuple[Address, bytes]] = []
        if self._socket is None:
            return
        read = self._socket.recvfrom
        for _ in range(most):
            try:
                # One byte more than allowed, to recognise datagrams that are too long.
                datagram, address = read(LARGEST_DATAGRAM + 1)
            except BlockingIOError:
                break
            except OSError:  # A report about something that was sent, or, on Windows, a datagram that was too long.
                continue
            come.append((address[:2], datagram))
        self.bytes_down += sum(len(datagram) for _, datagram in come)
        if come:
            self._counted += len(come)
            self._refused += self._receive(come)

    def send(self, socket_address: Address, packet: bytes) -> None:
        """Send a datagram; what the operating system refuses is lost, as on any other hop."""
        opened = self._opened()
        try:
            opened.sendto(packet, socket_address)
            self.bytes_up += len(packet)
        except OSError as error:
            LOG.debug("could not send to %s port %d: %s", *socket_address, error)

    def send_near(self, socket_address: Address, packet: bytes) -> None:
        """Send a datagram that passes this machine's router and no other one."""
        opened = self._opened()
        level, option = (
            (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS)
            if self.family == socket.AF_INET6
            else (socket.IPPROTO_IP, socket.IP_TTL)
        )
        usual = opened.getsockopt(level, option)
        opened.setsockopt(level, option, NEAR)
        try:
            self.send(socket_address, packet)
        finally:
            opened.setsockopt(level, option, usual)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None and self._loop is not None:
            self.disable_filter()
            if self._poll_timer is not None:
                self._poll_timer.cancel()
                self._poll_timer = None
            if self._watched:
                self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def is_open(self) -> bool:
        """Return whether the socket is open."""
        return self._socket is not None

    def get_address(self) -> Address:
        """Return the bound address."""
        host, port = self._opened().getsockname()[:2]
        return host, port

    def _opened(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("the UDP socket is closed; open it first")
        return self._socket
