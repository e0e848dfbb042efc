"""A peer of a group on a real network: the protocol of `Node` over a UDP socket, on asyncio's clock."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import time
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.beacon import Beacon
from bristle.p2p.flood_filter import AllowedTraffic
from bristle.p2p.inbox import ReceivedHead
from bristle.p2p.limits import Limits
from bristle.p2p.members.roster import Roster
from bristle.p2p.neighbour import Counters, Neighbour
from bristle.p2p.node import Node
from bristle.p2p.statements import ReceivedStatement
from bristle.p2p.udp import UDPSocket
from bristle.rules.evidence.statement import Statement
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.messages import Address, Scope, scope_of
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import Encoding
from bristle.wire.statements import SignedStatement

DEFAULTS = Limits()

LOOK_SECONDS = 30.0
"""Seconds between checks of this machine's own addresses, which change when it moves."""

_ELSEWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}


def local_addresses(listening: Address) -> tuple[Address, ...]:
    """Return the private address at which peers behind the same router find a socket, if there is one."""
    ip = ipaddress.ip_address(listening[0])
    host = listening[0]
    if ip.is_unspecified:
        # A connected UDP socket sends nothing, but has the address that this machine would send from.
        family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((_ELSEWHERE[ip.version], 9))
            except OSError:
                return ()
            host = str(probe.getsockname()[0])
    address = host.partition("%")[0], listening[1]
    return (address,) if scope_of(address) is Scope.SITE else ()


class Overlay:
    """A peer of a group on a real network.

    Contacts the known addresses, addresses passed on by members of the group and, with a beacon, peers of the group
    in the local network; nothing else.

    Parameters
    ----------
    identity : Identity
        This peer's key pair.
    group : Group
        The group to join.
    listen : (str, int)
        IPv4 or IPv6 address of this machine and port; port 0 for any free one.
    known : iterable of (str, int)
        Host names or addresses of other peers, with ports. One that is up is enough.
    limits : Limits
        Bounds on neighbours, memory and rates.
    beacon : int, optional
        UDP port for discovery in the local network.
    roster : Roster, optional
        Who is a member, in a group with founders.
    probe : array, optional
        The own backbone's output for the group's test sample, to be compared with the neighbours'.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        group: Group,
        listen: Address = ("127.0.0.1", 0),
        known: Iterable[Address] = (),
        limits: Limits = DEFAULTS,
        beacon: int | None = None,
        roster: Roster | None = None,
        probe: NDArray[np.float32] | None = None,
    ) -> None:
        try:
            ipaddress.ip_address(listen[0])
        except ValueError:
            raise ValueError(f"listen needs an IP address of this machine or 0.0.0.0, not {listen[0]!r}") from None
        if beacon is not None and ipaddress.ip_address(listen[0]).version != 4:
            raise ValueError(f"the beacon needs IPv4, which {listen[0]} is not; name a known address instead")
        self.group = group
        self.identity = identity
        self._known = list(known)
        if not 0 <= listen[1] <= 65_535:
            raise ValueError(f"the port to listen on is from 0, for any, to 65535, not {listen[1]}")
        for port in [port for _, port in self._known] + ([] if beacon is None else [beacon]):
            if not 1 <= port <= 65_535:
                raise ValueError(f"the port of a known peer, or of the beacon, is from 1 to 65535, not {port}")
        self.udp = UDPSocket(*listen, receive=self._receive, allowed=self._allowed_traffic, unread=self._unread)
        self.node = Node(
            identity=identity,
            group=group,
            limits=limits,
            send=self._transmit,
            send_near=self._transmit_near,
            sequence=int(time.time() * 1000),
            roster=roster,
            probe=probe,
        )
        self._beacon_port = beacon
        self._beacon: Beacon | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._arrived = asyncio.Event()
        self._statement_arrived = asyncio.Event()
        self._waiting_for_sent: list[asyncio.Future[None]] = []
        self._resolving: asyncio.Task[None] | None = None
        self._looked = -math.inf

    @property
    def address(self) -> Address:
        """The bound address, once started."""
        host, port = self.udp.get_address()[:2]
        return host, port

    @property
    def running(self) -> bool:
        """Whether this peer is started."""
        return self.udp.is_open()

    async def start(self) -> None:
        """Start listening and looking for peers.

        Raises
        ------
        OSError
            If the address cannot be used.
        """
        if self.running:
            return
        await self.udp.open()
        if self._beacon_port is not None:
            node = self.node
            self._beacon = Beacon(
                group=self.group,
                port=self._beacon_port,
                listening=self.address,
                found=self._found,
                refused=node.counters.refuse,
            )
            try:
                await self._beacon.start()
            except OSError:
                self.udp.close()
                raise
        self._resolving = asyncio.get_running_loop().create_task(self._resolve())
        self._tick()

    async def _resolve(self) -> None:
        """Resolve known host names; retry those that fail until they resolve."""
        loop = asyncio.get_running_loop()
        family, unresolved = self.udp.family, list(self._known)
        wait = 1.0
        while unresolved:
            for place in list(unresolved):
                try:
                    found = await loop.getaddrinfo(*place, family=family, type=socket.SOCK_DGRAM)
                except socket.gaierror:
                    continue
                unresolved.remove(place)
                host, port = found[0][4][:2]
                self.node.name((str(host), int(port)), loop.time())
                self._tick()
            await asyncio.sleep(wait if unresolved else 0)
            wait = min(60.0, 2 * wait)

    def _found(self, address: Address) -> None:
        self.node.membership.contacts.hand_on(address, b"beacon", self._now())

    async def stop(self) -> None:
        """Leave the network and stop listening."""
        if not self.running:
            return
        self.node.leave()
        if self._resolving is not None:
            self._resolving.cancel()
            await asyncio.gather(self._resolving, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        if self._beacon is not None:
            await self._beacon.stop()
        self.udp.close()
        for waiting in self._waiting_for_sent:
            if not waiting.done():
                waiting.set_result(None)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _transmit(self, address: Address, datagram: bytes) -> None:
        if self.udp.is_open():
            self.udp.send(address, datagram)

    def _transmit_near(self, address: Address, datagram: bytes) -> None:
        if self.udp.is_open():
            self.udp.send_near(address, datagram)

    def _receive(self, come: list[tuple[Address, bytes]]) -> int:
        now, ended, receive = self._now(), self.node.outbox.ended, self.node.receive
        refused = self.node.counters.refused.total()
        for address, datagram in come:
            receive(address, datagram, now)
        inbox = self.node.inbox
        if self.node.outbox.ended != ended or inbox.waiting or self.node.statement_store.changed:
            self._notice(now)
        return self.node.counters.refused.total() - refused

    def _allowed_traffic(self) -> AllowedTraffic:
        return self.node.membership.allowed()

    def _unread(self, count: int) -> None:
        self.node.counters.refuse(Refusal.UNREAD, count)

    def _notice(self, now: float) -> None:
        if self.node.inbox.waiting:
            self._arrived.set()
        if self.node.statement_store.changed:
            self._statement_arrived.set()
        if self._waiting_for_sent and self.node.outbox.settled(now):
            for waiting in self._waiting_for_sent:
                if not waiting.done():
                    waiting.set_result(None)
            self._waiting_for_sent = []

    def _tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.running:
            return
        now = self._now()
        if now - self._looked > LOOK_SECONDS:
            self._looked, self.node.membership.meetings.local = now, local_addresses(self.address)
        self.udp.read()  # What has come while this process was busy is not late.
        now = self._now()
        self._timer = asyncio.get_running_loop().call_at(self.node.tick(now), self._tick)
        self._notice(now)

    def share(
        self,
        head: NDArray[np.floating],
        *,
        iteration: int,
        claims: NDArray[np.bool_] | None = None,
    ) -> None:
        """Share a head with all neighbours, and with those that join before the next one.

        It replaces an older one that is still in flight.

        Parameters
        ----------
        head : array [C, D]
            Finite numbers.
        iteration : int
            Iteration of this peer.
        claims : bool array [C], optional
            Classes that this peer trains and tests itself.

        Raises
        ------
        ValueError
            If the head does not fit the group.
        """
        self.node.share(head, iteration=iteration, claims=claims, now=self._now())
        self._tick()

    def sign_statement(
        self,
        statement: Statement,
        *,
        number: int,
        expires: int,
        encoding: Encoding = "float16",
        compress: bool = True,
    ) -> SignedStatement:
        """Sign a statement of this peer; nothing is sent.

        Store it, or its number and digest, before it is published: all peers exclude an author that signs two different
        statements with the same number.

        Parameters
        ----------
        statement : Statement
            With factors and diagonal.
        number : int
            Above those of all earlier statements, such as the time in milliseconds.
        expires : int
            When it ceases to count, in seconds since 1970, within 30 days.
        encoding : str
            "int8", as live peers use it, "float16" or "float32", each row scaled by a power of two; int8 rounds factors
            to five bits, and stores the square root of the diagonal.
        compress : bool
            Whether to use zlib.

        Raises
        ------
        ValueError
            If the statement does not fit the group, or all peers would refuse it.
        """
        return self.node.sign_statement(statement, number=number, expires=expires, encoding=encoding, compress=compress)

    def publish(self, signed: SignedStatement) -> None:
        """Publish a signed statement of this peer in place of an older one; neighbours ask for it.

        Raises
        ------
        ValueError
            If all peers would refuse it, or its number is not above that of the previous one.
        """
        self.node.publish(signed, self._now())
        self._tick()

    def renew(self, expires: int) -> SignedStatement:
        """Extend the own statement until `expires`, by a short message; return it with its renewal, to be stored.

        Raises
        ------
        ValueError
            If nothing was published.
        """
        renewed = self.node.renew(expires, self._now())
        self._tick()
        return renewed

    def restore(self, signed: SignedStatement) -> bool:
        """Restore a statement from disk, the own one or another's; return False if it has expired or been replaced.

        The own one is published again unchanged. Others are in `statements`, not in `take_statements`.

        Raises
        ------
        ValueError
            If it is not a statement that its author signed for this group.
        """
        return self.node.restore(signed, self._now())

    def statements(self) -> list[ReceivedStatement]:
        """Return the newest valid statement of every other author that is known now."""
        return self.node.statements()

    def equivocators(self) -> frozenset[bytes]:
        """Return the key ids of authors that signed two different statements with the same number."""
        return self.node.equivocators()

    async def sent(self) -> None:
        """Wait until the last head was acknowledged, given up or superseded, without waiting for stragglers."""
        if self.running and not self.node.outbox.settled(self._now()):
            waiting = asyncio.get_running_loop().create_future()
            self._waiting_for_sent.append(waiting)
            await waiting

    def take(self) -> list[ReceivedHead]:
        """Return the newest head of every sender since the last call, without waiting."""
        self._arrived.clear()
        return self.node.take()

    async def arrival(self) -> None:
        """Wait until `take` would return something."""
        await self._arrived.wait()

    def take_statements(self) -> list[ReceivedStatement]:
        """Return the statements that are new since the last call, without waiting."""
        self._statement_arrived.clear()
        return self.node.take_statements()

    async def statement_arrival(self) -> None:
        """Wait until `take_statements` would return something, or there is a new equivocator."""
        await self._statement_arrived.wait()

    def neighbours(self) -> list[Neighbour]:
        """Return the current neighbours."""
        return self.node.neighbours(self._now())

    @property
    def counters(self) -> Counters:
        """Traffic and refusals since the start."""
        return self.node.counters.snapshot()
