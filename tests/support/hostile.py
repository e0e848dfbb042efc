"""Attackers on sockets of their own, who speak the protocol as far as it serves them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bristle.wire import Group, Identity, handshake, messages
from bristle.wire.handshake import Caller, Cookie, Welcome
from bristle.wire.manifest import encode_manifest
from bristle.wire.messages import Address
from bristle.wire.session import SEALED, Session
from tests.support.manifests import head_bodies, manifest_of

if TYPE_CHECKING:
    from tests.support.network import Matrix, RealNetwork

PIECE = 4000

# What tests call fixtures.
Scenario = Callable[[Callable[["RealNetwork"], Any]], None]
Wait = Callable[..., Any]
Heads = Callable[..., "Matrix"]
Attackers = Callable[..., "Attacker"]
Bodies = Callable[[NDArray[np.float32]], tuple[bytes, bytes]]


class Attacker:
    """An identity with a socket, and with a session once it has joined."""

    def __init__(self, group: Group, *, host: str = "127.0.0.1", identity: Identity | None = None) -> None:
        self.group = group
        self.identity = identity or Identity.generate()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((host, 0))
        self.session: Session | None = None
        self.target: Address = ("", 0)
        self.sequence = 2**41

    @property
    def address(self) -> Address:
        host, port = self.socket.getsockname()
        return host, port

    async def join(self, target: Address, *, alone: bool = False, seconds: float = 60.0) -> bool:
        """Do a whole handshake; return whether there was room. Without an answer: TimeoutError."""
        self.target = target
        caller = Caller(self.identity, self.group, nonce=os.urandom(16), session_id=os.urandom(4))
        self.send(caller.hello())
        async with asyncio.timeout(seconds):
            while True:
                answer = handshake.decode(await self.heard(), self.group)
                if isinstance(answer, Cookie):
                    self.send(caller.join(answer.cookie, alone=alone))
                elif isinstance(answer, Welcome):
                    session = caller.finish(answer)
                    assert isinstance(session, Session)
                    self.session = session
                    self.say(messages.Peers(0))
                    return not answer.full

    async def heard(self) -> bytes:
        """Return the next datagram that comes."""
        datagram, _ = await asyncio.get_running_loop().sock_recvfrom(self.socket, 9000)
        return datagram

    def empty(self) -> Iterator[bytes]:
        """Yield the messages that have come, without waiting."""
        while True:
            try:
                datagram = self.socket.recv(9000)
            except OSError:
                return
            if self.session is not None and datagram[:1] == bytes([SEALED]):
                opened = self.session.open(datagram)
                if isinstance(opened, bytes):
                    yield opened

    def send(self, datagram: bytes) -> None:
        """Send anything."""
        try:
            self.socket.sendto(datagram, self.target)
        except BlockingIOError:  # The own buffer is full.
            return

    def say(self, message: messages.Message | bytes) -> None:
        """Send a message as a member."""
        assert self.session is not None
        self.send(self.session.seal(message if isinstance(message, bytes) else messages.encode(message)))

    def manifest(self, body: bytes, **changes: Any) -> tuple[int, bytes]:
        """Return a sequence and a signed manifest for it."""
        self.sequence += 1
        manifest = manifest_of(body, self.group, self.identity.key, self.sequence, **changes)
        return manifest.sequence, encode_manifest(manifest, self.identity)

    def share(self, bodies: tuple[bytes, bytes], **changes: Any) -> None:
        """Send a manifest of the first body, and the second."""
        body, sent = bodies
        sequence, signed = self.manifest(body, **changes)
        self.say(messages.SignedManifest(1, PIECE, signed, size=len(sent)))
        transfer = messages.transfer_of(sequence, 0)
        for index, at in enumerate(range(0, len(sent), PIECE)):
            self.say(messages.Piece(transfer, 2 + index, index, sent[at : at + PIECE]))

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def attackers() -> Iterator[Callable[..., Attacker]]:
    """Make attackers: attackers(group, host=..., identity=...)."""
    made: list[Attacker] = []

    def make(group: Group, **options: Any) -> Attacker:
        made.append(Attacker(group, **options))
        return made[-1]

    yield make
    for attacker in made:
        attacker.close()


@pytest.fixture
def bodies_of() -> Callable[[NDArray[np.float32]], tuple[bytes, bytes]]:
    """Return a head as it is signed, and as it is sent in full."""
    return head_bodies
