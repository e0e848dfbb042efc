"""A UDP relay between real peers that loses, delays, reorders and duplicates what they send each other."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass

Address = tuple[str, int]

_BUFFER = 2**21
_AT_ONCE = 32
_LARGEST = 65_536


@dataclass(frozen=True, kw_only=True)
class Impairment:
    """What becomes of datagrams.

    Parameters
    ----------
    loss, duplication : float
        Share of datagrams that are lost, and that come twice.
    delay, jitter : float
        Seconds that all take, and up to which each takes longer; with jitter they overtake each other.
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


class Relay:
    """Stands between all pairs of peers, as routers do: each peer sees every other one at an address of the relay's.

    Peer i is told `known(i)` and nothing else. The relay learns where a peer really is when it first hears from it.

    Parameters
    ----------
    members : int
        How many peers there are.
    impairment : Impairment
        What becomes of datagrams.
    seed : int
        Of what is lost, doubled and late.
    """

    def __init__(self, members: int, impairment: Impairment, *, seed: int = 0) -> None:
        self.impairment = impairment
        self.relayed = self.lost = 0
        self._cut: frozenset[tuple[int, int]] = frozenset()
        self._rng = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        self._where: dict[int, Address] = {}
        self._faces: dict[tuple[int, int], socket.socket] = {}
        for near in range(members):
            for far in range(members):
                if near != far:
                    face = self._faces[near, far] = _bound()
                    self._loop.add_reader(face, self._read, face, near, far)

    def known(self, member: int) -> list[Address]:
        """Return where a peer finds all others."""
        return [face.getsockname() for (near, _), face in self._faces.items() if near == member]

    def cut(self, *sides: Iterable[int]) -> None:
        """Part the peers: nothing passes from one side to another. Without sides everybody is together again."""
        groups = [frozenset(side) for side in sides]
        self._cut = frozenset(
            (near, far) for near, far in self._faces if any((near in group) != (far in group) for group in groups)
        )

    def close(self) -> None:
        """Pass nothing on any more."""
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
            if self._where.setdefault(near, source) == source:  # Else somebody for whom this address is not meant.
                self._pass_on(datagram, near, far)

    def _pass_on(self, datagram: bytes, near: int, far: int) -> None:
        self.relayed += 1
        to, how = self._where.get(far), self.impairment
        for _ in range(2 if self._rng.random() < how.duplication else 1):
            if to is None or (near, far) in self._cut or self._rng.random() < how.loss:
                self.lost += 1
            elif how.delay or how.jitter:
                wait = how.delay + self._rng.uniform(0, how.jitter)
                self._loop.call_later(wait, self._emit, datagram, near, far, to)
            else:
                self._emit(datagram, near, far, to)

    def _emit(self, datagram: bytes, near: int, far: int, to: Address) -> None:
        face = self._faces[far, near]
        if face.fileno() >= 0:
            try:
                face.sendto(datagram, to)
            except OSError:  # No room, or nobody there.
                self.lost += 1


def _bound() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    bound.bind(("127.0.0.1", 0))
    return bound
