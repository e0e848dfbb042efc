"""What crosses the loopback device while three peers exchange statements, and then three exchange heads.

Run in a network namespace of its own, where nothing else is heard and which needs no rights outside it. Prints as JSON
what was captured, and whether anything that must not be readable was in it.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import Peer, rules
from bristle.backbones import NoBackbone
from bristle.peer.pace import Pace
from bristle.wire.kinds import Kind
from bristle.wire.messages import Piece, SignedManifest, decode
from bristle.wire.session import Session

CLASSES = ("otorhinolaryngology", "pneumonoultramicroscopic", "psychoneuroendocrinology")
FEATURES = 96
WINDOW = 12
"""Bytes in a row of something secret that no datagram may hold: by chance, one of 2^96 does."""

_ALL_PROTOCOLS, _LOOPBACK = 0x0003, "lo"
_IPV4, _UDP = 0x0800, 17
_BUFFER = 64 << 20


class Capture:
    """Everything that crosses the loopback device, from now on."""

    def __init__(self) -> None:
        self.datagrams: list[tuple[int, int, bytes]] = []
        self.others: list[bytes] = []
        """What is no datagram: the kernel's answers to datagrams for a port that is closed again, for one."""
        self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL_PROTOCOLS))
        self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._raw.bind((_LOOPBACK, 0))
        self._raw.settimeout(0.2)
        self._ends = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                packet, (_, protocol, kind, *_) = self._raw.recvfrom(70_000)
            except TimeoutError:
                if self._ends:
                    return
                continue
            if kind == socket.PACKET_OUTGOING:  # Each packet is seen twice: as it leaves, and as it comes.
                continue
            header = 4 * (packet[0] & 15)
            if protocol != _IPV4 or packet[9] != _UDP:
                self.others.append(packet)
                continue
            source, to, length, _ = struct.unpack_from(">4H", packet, header)
            self.datagrams.append((source, to, packet[header + 8 : header + length]))

    def end(self) -> None:
        """Stop when nothing more comes."""
        self._ends = True
        self._thread.join()
        self._raw.close()


def found_in(datagrams: list[bytes], secrets: list[bytes], public: list[bytes]) -> int:
    """Return how many stretches of WINDOW bytes in datagrams are also in a secret; what is public is cut out of it."""
    known = re.compile(b"|".join(map(re.escape, public)) or b"(?!)", re.DOTALL)
    parts = [part for one in secrets for part in known.split(one)]
    secret = {part[at : at + WINDOW] for part in parts for at in range(len(part) - WINDOW + 1)}
    secret -= {bytes([byte]) * WINDOW for byte in range(256)}  # Padding is no secret.
    return sum(datagram[at : at + WINDOW] in secret for datagram in datagrams for at in range(len(datagram)))


def samples(seed: int, of: tuple[int, ...]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return samples of some classes."""
    centres = np.random.default_rng(0).normal(size=(len(CLASSES), FEATURES))
    labels = np.repeat(np.array(of, dtype=np.int64), 30)
    noise = np.random.default_rng(seed).normal(scale=0.3, size=(len(labels), FEATURES))
    return (centres[labels] + noise).astype(np.float32), labels


async def until(condition: Callable[[], bool]) -> None:
    """Wait, however slow the machine is."""
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.02)


async def exchange(folder: Path, rule: str, enough: Callable[[Peer], bool]) -> dict[str, list[bytes]]:
    """Let three peers exchange what they do; return what of it only members may read, and what is public."""
    usual: dict[str, Any] = {
        "application": "capture",
        "classes": CLASSES,
        "backbone": NoBackbone(FEATURES),
        "rule": rules.create(rule),
        "pace": Pace(interval=0.05, check_every=0.02),
    }
    async with (
        Peer(folder=folder / "first", **usual) as first,
        Peer(folder=folder / "second", known=[first.address], **usual) as second,
        Peer(folder=folder / "third", known=[first.address], **usual) as third,
    ):
        peers = (first, second, third)
        for number, peer in enumerate(peers):
            peer.add(*samples(number + 1, (number, (number + 1) % 3)), features=True)
        running = [asyncio.create_task(peer.run()) for peer in peers]
        await until(lambda: all(enough(peer) for peer in peers))
        for peer in peers:
            peer.stop()
        await asyncio.gather(*running)
        states = [state for peer in peers if (state := peer._state) is not None]
        stated = [state.own.signed for state in states if state.own is not None]
        return {
            "ports": [peer.address[1].to_bytes(2, "big") for peer in peers],
            "public": [first._group.id, *(peer._identity.key for peer in peers)],
            "statements": [one.body for one in stated],
            "manifests": [one.manifest for one in stated],
            "rows": [np.ascontiguousarray(peer.head, dtype="<f4").tobytes() for peer in peers],
            "features": [samples(number + 1, (number,))[0].tobytes() for number in range(3)],
        }


def captured(folder: Path, rule: str, enough: Callable[[Peer], bool]) -> dict[str, Any]:
    """Return what a capture of such an exchange shows."""
    sealed: list[bytes] = []
    seal = Session.seal

    def noting(self: Session, message: bytes) -> bytes:
        sealed.append(message)
        return seal(self, message)

    capture = Capture()
    Session.seal = noting  # type: ignore[method-assign]
    try:
        said = asyncio.run(exchange(folder, rule, enough))
    finally:
        Session.seal = seal  # type: ignore[method-assign]
        capture.end()
    seen, public = [datagram for _, _, datagram in capture.datagrams] + capture.others, said.pop("public")
    ports = [int.from_bytes(port, "big") for port in said.pop("ports")]
    said |= {"names": [name.encode() for name in CLASSES]}
    bodies = [message for message in map(decode, sealed) if isinstance(message, SignedManifest | Piece)]
    return {
        "datagrams": len(seen),
        "bytes": sum(map(len, seen)),
        "ports": ports,
        "sources": Counter(source for source, _, _ in capture.datagrams),
        "heads": sum(one.kind == Kind.HEAD for one in bodies),
        "statements": sum(one.kind == Kind.STATEMENT for one in bodies),
        # That the search finds what there is: keys are in the handshakes, statements in what was sealed.
        "public": found_in(seen, public, []),
        "sealed": found_in(sealed, said["statements"], public),
        "readable": {what: found_in(seen, secrets, public) for what, secrets in said.items()},
    }


def main(folder: Path) -> None:
    """Print both captures."""

    def stated(peer: Peer) -> bool:
        return peer.status().counters["statements_in"] >= 2

    def shared(peer: Peer) -> bool:
        return peer.status().counters["heads_in"] >= 6 and peer.iteration >= 5

    found = {
        rule: captured(folder / rule, rule, enough) for rule, enough in (("evidence", stated), ("bristle", shared))
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
