"""What goes inside sealed datagrams: manifest, piece, acknowledgement, peers, leave. Decoders are pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bristle.network.addresses import Address, decode_address, encode_address
from bristle.network.identity import KEY_ID_BYTES
from bristle.network.refusal import Refusal
from bristle.peer.wire_size import LARGEST_DATAGRAM

MANIFEST, PIECE, ACKNOWLEDGEMENT, PEERS, LEAVE = range(1, 6)
STOP = 0xFFFF
"""An acknowledgement's base that means: send no more of this head, whether it has arrived or was refused."""

MOST_UNITS = STOP - 1
LARGEST_BITMAP = 128
"""Bytes: a receiver tells of 1024 units beyond the first that it misses, and a sender keeps no more on their way."""

MOST_PEERS = 24

_PIECE = struct.Struct(">BQIH")
_ACKNOWLEDGEMENT = struct.Struct(">BQIH")
_MANIFEST = struct.Struct(">BIH")
_PEERS = struct.Struct(">BQB")
_SMALLEST_PIECE, _LARGEST_PIECE = 512, LARGEST_DATAGRAM


@dataclass(frozen=True)
class SignedManifest:
    """A manifest as it was signed, and the size of the pieces in which its body follows."""

    order: int
    piece_size: int
    signed: bytes


@dataclass(frozen=True)
class Piece:
    """A part of a body. `order`: the how-manieth datagram of this head this is, sent again or not."""

    sequence: int
    order: int
    index: int
    data: bytes


@dataclass(frozen=True)
class Acknowledgement:
    """Which units of a head have arrived. Unit 0 is the manifest, unit i > 0 is piece i - 1.

    Parameters
    ----------
    sequence : int
        Which head.
    newest : int
        The highest order of a datagram that has come.
    base : int
        All units below it have arrived; `STOP`: send no more.
    later : int
        Bit i tells whether unit base + 1 + i has arrived.
    """

    sequence: int
    newest: int
    base: int
    later: int = 0


@dataclass(frozen=True)
class Peers:
    """A sign of life, the newest sequence seen from the receiver of it, and where other peers of the group listen."""

    seen: int
    others: tuple[tuple[bytes, Address], ...] = ()


@dataclass(frozen=True)
class Leave:
    """The sender stops; it need not be waited for."""


Message = SignedManifest | Piece | Acknowledgement | Peers | Leave


def encode(message: Message) -> bytes:
    """Return a message as bytes, to be sealed."""
    match message:
        case Piece(sequence, order, index, data):
            return _PIECE.pack(PIECE, sequence, order, index) + data
        case Acknowledgement(sequence, newest, base, later):
            bitmap = later.to_bytes((later.bit_length() + 7) // 8, "little")[:LARGEST_BITMAP]
            return _ACKNOWLEDGEMENT.pack(ACKNOWLEDGEMENT, sequence, newest, base) + bitmap
        case SignedManifest(order, piece_size, signed):
            return _MANIFEST.pack(MANIFEST, order, piece_size) + signed
        case Peers(seen, others):
            records = b"".join(key_id + encode_address(address) for key_id, address in others)
            return _PEERS.pack(PEERS, seen, len(others)) + records
        case Leave():
            return bytes([LEAVE])


def decode(data: bytes) -> Message | Refusal:
    """Return the message in bytes that were sealed."""
    kind = data[0] if data else 0
    if kind == PIECE and len(data) > _PIECE.size:
        _, sequence, order, index = _PIECE.unpack_from(data)
        return Piece(sequence, order, index, data[_PIECE.size :])
    if kind == ACKNOWLEDGEMENT and _ACKNOWLEDGEMENT.size <= len(data) <= _ACKNOWLEDGEMENT.size + LARGEST_BITMAP:
        _, sequence, newest, base = _ACKNOWLEDGEMENT.unpack_from(data)
        return Acknowledgement(sequence, newest, base, int.from_bytes(data[_ACKNOWLEDGEMENT.size :], "little"))
    if kind == MANIFEST and len(data) > _MANIFEST.size:
        _, order, piece_size = _MANIFEST.unpack_from(data)
        if _SMALLEST_PIECE <= piece_size <= _LARGEST_PIECE:
            return SignedManifest(order, piece_size, data[_MANIFEST.size :])
    if kind == PEERS and len(data) >= _PEERS.size:
        return _decode_peers(data)
    if kind == LEAVE and len(data) == 1:
        return Leave()
    return Refusal.MALFORMED


def _decode_peers(data: bytes) -> Peers | Refusal:
    _, seen, count = _PEERS.unpack_from(data)
    others: list[tuple[bytes, Address]] = []
    at = _PEERS.size
    for _ in range(min(count, MOST_PEERS)):
        key_id = data[at : at + KEY_ID_BYTES]
        found = decode_address(data, at + KEY_ID_BYTES)
        if found is None:
            return Refusal.MALFORMED
        others.append((key_id, found[0]))
        at = found[1]
    return Peers(seen, tuple(others)) if at == len(data) and count <= MOST_PEERS else Refusal.MALFORMED
