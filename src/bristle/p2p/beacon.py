"""Discovery in the local network: a small broadcast datagram every few seconds, if enabled."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import struct
from collections.abc import Callable

from bristle.p2p.limits import TokenBucket
from bristle.wire.group import GROUP_ID_BYTES, PROOF_BYTES, Group
from bristle.wire.messages import Address
from bristle.wire.refusal import Refusal

INTERVAL = 5.0
"""Seconds between beacons."""

_MAGIC = b"bristle beacon 2"
_PURPOSE = b"bristle beacon\x00"
_NONCE_BYTES = 8
_BEACON = struct.Struct(f">16s{GROUP_ID_BYTES}s{_NONCE_BYTES}sH{PROOF_BYTES}s")
_MOST = 20.0
"""Beacons per second that are processed."""


def encode_beacon(group: Group, nonce: bytes, port: int) -> bytes:
    """Encode a beacon: magic 16, group 20, nonce 8, port 2, proof 16. With a group secret, only members can."""
    return _BEACON.pack(_MAGIC, group.id, nonce, port, group.prove(_PURPOSE, nonce + port.to_bytes(2, "big")))


def decode_beacon(data: bytes, group: Group) -> tuple[bytes, int] | Refusal:
    """Return the sender's nonce and port, or why the beacon is refused."""
    if len(data) != _BEACON.size:
        return Refusal.MALFORMED
    magic, group_id, nonce, port, proof = _BEACON.unpack(data)
    if magic != _MAGIC:
        return Refusal.VERSION if magic[:-1] == _MAGIC[:-1] else Refusal.MALFORMED
    if group_id != group.id:
        return Refusal.WRONG_GROUP
    if not port or not group.proven(proof, _PURPOSE, nonce + port.to_bytes(2, "big")):
        return Refusal.NOT_A_MEMBER
    return nonce, port


class Beacon(asyncio.DatagramProtocol):
    """Announces this peer in the local network, and listens for others.

    Parameters
    ----------
    group : Group
        The group to find peers of.
    port : int
        UDP port of the beacons, the same for all peers.
    listening : (str, int)
        The address of this peer.
    found : callable
        Called with the address of every peer found.
    refused : callable
        Called with the reason of every refusal.
    """

    def __init__(
        self,
        *,
        group: Group,
        port: int,
        listening: Address,
        found: Callable[[Address], None],
        refused: Callable[[Refusal], None],
    ) -> None:
        self._group, self._port, self._listening = group, port, listening
        self._found, self._refused = found, refused
        self._nonce = os.urandom(_NONCE_BYTES)
        self._budget = TokenBucket(_MOST, _MOST)
        self._transport: asyncio.DatagramTransport | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start announcing and listening."""
        loop = asyncio.get_running_loop()
        shared = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Peers of one machine share the port.
            shared.setblocking(False)
            shared.bind(("", self._port))
        except OSError as error:
            shared.close()
            raise OSError(error.errno, f"cannot use port {self._port} for the beacon ({error.strerror})") from None
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, sock=shared)
        self._task = loop.create_task(self._speak())

    async def _speak(self) -> None:
        loopback = ipaddress.ip_address(self._listening[0]).is_loopback
        everybody = "127.255.255.255" if loopback else "255.255.255.255"
        datagram = encode_beacon(self._group, self._nonce, self._listening[1])
        while self._transport is not None:
            self._transport.sendto(datagram, (everybody, self._port))
            await asyncio.sleep(INTERVAL)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Process a beacon."""
        if not self._budget.take(1, asyncio.get_running_loop().time()):
            self._refused(Refusal.OVER_BUDGET)
            return
        heard = decode_beacon(data, self._group)
        if isinstance(heard, Refusal):
            self._refused(heard)
        elif heard[0] != self._nonce:
            self._found((addr[0], heard[1]))

    async def stop(self) -> None:
        """Stop announcing and listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None:
            self._transport.close()
            self._transport = None
