"""A UDP relay between real peers that loses, delays, reorders and duplicates what they send each other."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from bristle.wire.messages import Address

_BUFFER = 2**21
_AT_ONCE = 32
_LARGEST = 65_536


@dataclass(frozen=True, kw_only=True)
class Impairment:
    """What a line does to datagrams.

    Parameters
    ----------
    loss, duplication : float
        Fraction of datagrams that are lost, and that are sent twice.
    delay, jitter : float
        Seconds of delay of every datagram, and of the largest random delay on top; jitter reorders datagrams.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("loss", self.loss), ("duplication", self.duplication)):
            if not 0 <= value <= 0.5:
                raise ValueError(f"{name} must lie between 0 and 0.5, not {value}")
        if not 0 <= self.delay <= 10 or not 0 <= self.jitter <= 10:
            raise ValueError(f"delay and jitter must lie between 0 and 10 s, not {self.delay} and {self.jitter}")


ROUGH = Impairment(loss=0.2, duplication=0.05, delay=0.05, jitter=0.02)
"""A bad line: one datagram in five is lost, and the others are late and out of order."""


class ImpairedLine:
    """Forwards datagrams, of which some are lost, late, out of order or sent twice.

    Parameters
    ----------
    impairment : Impairment
        What the line does; may be replaced at any time.
    seed : int
        Seed of the random draws.
    """

    def __init__(self, impairment: Impairment, *, seed: int = 0) -> None:
        self.impairment = impairment
        self.relayed = self.lost = self.delivered = self.delayed = 0
        self._rng = random.Random(seed)
        self._loop = asyncio.get_running_loop()

    def forward(self, datagram: bytes, out: socket.socket, to: Address | None) -> None:
        """Send a datagram from `out` to an address; None: it is lost."""
        self.relayed += 1
        how = self.impairment
        for _ in range(2 if self._rng.random() < how.duplication else 1):
            if to is None or self._rng.random() < how.loss:
                self.lost += 1
            elif how.delay or how.jitter:
                self.delayed += 1
                wait = how.delay + self._rng.uniform(0, how.jitter)
                self._loop.call_later(wait, self._send_late, datagram, out, to)
            else:
                self._send(datagram, out, to)

    def _send_late(self, datagram: bytes, out: socket.socket, to: Address) -> None:
        self.delayed -= 1
        self._send(datagram, out, to)

    def _send(self, datagram: bytes, out: socket.socket, to: Address) -> None:
        if out.fileno() < 0:
            return
        try:
            out.sendto(datagram, to)
            self.delivered += 1
        except OSError:  # No room, or nobody there.
            self.lost += 1


class Relay(ImpairedLine):
    """Relays between all pairs of peers: each peer sees every other one at an address of the relay's.

    Peer i is given the addresses `known(i)` and no others. The relay learns where a peer is from its first datagram.

    Parameters
    ----------
    members : int
        Number of peers.
    impairment, seed
        As for `ImpairedLine`.
    """

    def __init__(self, members: int, impairment: Impairment, *, seed: int = 0) -> None:
        super().__init__(impairment, seed=seed)
        self._cut: frozenset[tuple[int, int]] = frozenset()
        self._where: dict[int, Address] = {}
        self._faces: dict[tuple[int, int], socket.socket] = {}
        for near in range(members):
            for far in range(members):
                if near != far:
                    face = self._faces[near, far] = bound_socket()
                    self._loop.add_reader(face, self._read, face, near, far)

    def known(self, member: int) -> list[Address]:
        """Return the addresses at which a peer reaches all others."""
        return [face.getsockname() for (near, _), face in self._faces.items() if near == member]

    def cut(self, *sides: Iterable[int]) -> None:
        """Partition the network: nothing passes between the sides. Without sides, heal it."""
        groups = [frozenset(side) for side in sides]
        self._cut = frozenset(
            (near, far) for near, far in self._faces if any((near in group) != (far in group) for group in groups)
        )

    def close(self) -> None:
        """Close all sockets."""
        for face in self._faces.values():
            self._loop.remove_reader(face)
            face.close()

    def _read(self, face: socket.socket, near: int, far: int) -> None:
        for _ in range(_AT_ONCE):
            if face.fileno() < 0:
                return
            try:
                datagram, source = face.recvfrom(_LARGEST)
            except OSError:  # Nothing more, or an error report about something that was sent.
                return
            if self._where.setdefault(near, source) == source:  # Other senders are ignored.
                to = None if (near, far) in self._cut else self._where.get(far)
                self.forward(datagram, self._faces[far, near], to)


def bound_socket() -> socket.socket:
    """Return a UDP socket on any free port of 127.0.0.1 with a large receive buffer."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    bound.bind(("127.0.0.1", 0))
    return bound
