"""Messages inside sealed datagrams: manifest, piece, acknowledgement, peers, leave; and addresses."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from functools import lru_cache

from bristle.wire.identity import KEY_ID_BYTES
from bristle.wire.kinds import Kind
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import LARGEST_DATAGRAM

Address = tuple[str, int]

_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")
_FAMILIES = {4: 4, 6: 16}


@lru_cache(maxsize=4096)
def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(host)


def is_loopback(address: Address) -> bool:
    """Return whether an address is on this machine."""
    return _ip(address[0]).is_loopback


@lru_cache(maxsize=4096)
def _network(host: str) -> str:
    ip = _ip(host)
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))


def network_of(address: Address) -> str:
    """Return the subnet of an address, /24 of IPv4 or /64 of IPv6: one owner may well have all of it."""
    return _network(address[0])


def may_hand_on(address: Address, to: Address) -> bool:
    """Return whether an address may be passed on to a neighbour at `to`: loopback addresses only within one machine.

    Also what a neighbour at `to` may pass on to us: no outsider gets us to contact a service of this machine.
    """
    ip = _ip(address[0])
    if address[1] == 0 or ip.is_multicast or ip.is_unspecified or ip == _EVERYBODY:
        return False
    return (not ip.is_loopback or is_loopback(to)) and ip.version == _ip(to[0]).version


def encode_address(address: Address) -> bytes:
    """Return family (1 byte: 4 or 6), IP address (4 or 16), port (2)."""
    ip = _ip(address[0])
    return bytes([ip.version]) + ip.packed + address[1].to_bytes(2, "big")


def decode_address(data: bytes, at: int) -> tuple[Address, int] | None:
    """Return the address encoded at an offset, and the offset after it; None if there is none."""
    length = _FAMILIES.get(data[at]) if at < len(data) else None
    if length is None or at + 3 + length > len(data):
        return None
    packed = data[at + 1 : at + 1 + length]
    port = int.from_bytes(data[at + 1 + length : at + 3 + length], "big")
    return (str(ipaddress.ip_address(packed)), port), at + 3 + length


MANIFEST, PIECE, ACKNOWLEDGEMENT, PEERS, LEAVE = range(1, 6)
FULL, KEPT, STOP = 0xFFFD, 0xFFFE, 0xFFFF
"""Values of an acknowledgement's base that end a transfer.

Send this head in full: what it is a difference from is not here, or led to another head; the head has arrived, and is
kept for the next difference; send no more of this body, which has arrived or was refused.
"""

_KIND_SHIFT = 4
"""The first byte of a message is its own number and, above these bits, the kind of body that it is about."""


MOST_UNITS = FULL - 1
LARGEST_BITMAP = 128
"""Bytes: acknowledgements cover 1024 units beyond the first missing one, and a sender has no more in flight."""

MOST_PEERS = 24

_PIECE = struct.Struct(">BQIH")
_ACKNOWLEDGEMENT = struct.Struct(">BQIH")
_MANIFEST = struct.Struct(">BIHQIH")
_PEERS = struct.Struct(">BQB")
_SMALLEST_PIECE, _LARGEST_PIECE = 512, LARGEST_DATAGRAM


@dataclass(frozen=True)
class SignedManifest:
    """A signed manifest, how its body is sent to this neighbour, and the beginning of that.

    Parameters
    ----------
    order : int
        Transmission number within this transfer, retransmissions included.
    piece_size : int
        Bytes in a piece.
    signed : bytes
        The manifest.
    base : int
        Sequence number of the head that this one is sent as a difference from; 0: it is sent in full.
    size : int
        Bytes to be sent, after compression.
    start : bytes
        As many of them as fit beside the manifest.
    kind : Kind
        Kind of the body.
    """

    order: int
    piece_size: int
    signed: bytes
    base: int = 0
    size: int = 0
    start: bytes = b""
    kind: Kind = Kind.HEAD


@dataclass(frozen=True)
class Piece:
    """A part of a body. `order`: transmission number within this transfer, retransmissions included."""

    transfer: int
    order: int
    index: int
    data: bytes
    kind: Kind = Kind.HEAD


@dataclass(frozen=True)
class Acknowledgement:
    """The units of a body that have arrived. Unit 0 is the manifest, unit i > 0 is piece i - 1.

    Parameters
    ----------
    transfer : int
        Number of the transfer.
    newest : int
        Highest transmission number received.
    base : int
        All units below it have arrived; or `FULL`, `KEPT` or `STOP`.
    later : int
        Bitmap: bit i is set if unit base + 1 + i has arrived.
    kind : Kind
        Kind of the body.
    """

    transfer: int
    newest: int
    base: int
    later: int = 0
    kind: Kind = Kind.HEAD


@dataclass(frozen=True)
class Peers:
    """Keep-alive: the newest sequence number seen from its receiver, and addresses of other peers of the group."""

    seen: int
    others: tuple[tuple[bytes, Address], ...] = ()


@dataclass(frozen=True)
class Leave:
    """The sender leaves."""


def transfer_of(sequence: int, base: int) -> int:
    """Return the number of a transfer: twice the body's sequence number, and one more if it is sent in full."""
    return (2 * sequence + (base == 0)) % 2**64


Message = SignedManifest | Piece | Acknowledgement | Peers | Leave


def encode(message: Message) -> bytes:
    """Encode a message, to be sealed."""
    match message:
        case Piece(transfer, order, index, data, kind):
            return _PIECE.pack(PIECE | kind << _KIND_SHIFT, transfer, order, index) + data
        case Acknowledgement(transfer, newest, base, later, kind):
            bitmap = later.to_bytes((later.bit_length() + 7) // 8, "little")[:LARGEST_BITMAP]
            return _ACKNOWLEDGEMENT.pack(ACKNOWLEDGEMENT | kind << _KIND_SHIFT, transfer, newest, base) + bitmap
        case SignedManifest(order, piece_size, signed, base, size, start, kind):
            header = _MANIFEST.pack(MANIFEST | kind << _KIND_SHIFT, order, piece_size, base, size, len(signed))
            return header + signed + start
        case Peers(seen, others):
            records = b"".join(key_id + encode_address(address) for key_id, address in others)
            return _PEERS.pack(PEERS, seen, len(others)) + records
        case Leave():
            return bytes([LEAVE])


def decode(data: bytes) -> Message | Refusal:
    """Decode an unsealed message, or return why it is refused."""
    first = data[0] if data else 0
    try:
        message, kind = first & (1 << _KIND_SHIFT) - 1, Kind(first >> _KIND_SHIFT)
    except ValueError:
        return Refusal.MALFORMED
    if message == PIECE and len(data) > _PIECE.size:
        _, transfer, order, index = _PIECE.unpack_from(data)
        return Piece(transfer, order, index, data[_PIECE.size :], kind)
    if message == ACKNOWLEDGEMENT and _ACKNOWLEDGEMENT.size <= len(data) <= _ACKNOWLEDGEMENT.size + LARGEST_BITMAP:
        _, transfer, newest, base = _ACKNOWLEDGEMENT.unpack_from(data)
        later = int.from_bytes(data[_ACKNOWLEDGEMENT.size :], "little")
        return Acknowledgement(transfer, newest, base, later, kind)
    if message == MANIFEST and len(data) > _MANIFEST.size:
        _, order, piece_size, base, size, length = _MANIFEST.unpack_from(data)
        signed, start = data[_MANIFEST.size : _MANIFEST.size + length], data[_MANIFEST.size + length :]
        if _SMALLEST_PIECE <= piece_size <= _LARGEST_PIECE and len(signed) == length and len(start) <= size:
            return SignedManifest(order, piece_size, signed, base, size, start, kind)
    if first == PEERS and len(data) >= _PEERS.size:
        return _decode_peers(data)
    if first == LEAVE and len(data) == 1:
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
