"""Messages inside sealed datagrams: heads, statements, peers, introductions, what is forwarded, records; addresses."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from bristle.wire.admission import RECORD_ID_BYTES, split_records
from bristle.wire.identity import KEY_ID_BYTES
from bristle.wire.kinds import Kind
from bristle.wire.offers import (
    EXCHANGE,
    EquivocationProof,
    Have,
    SignedRenewal,
    Want,
    decode_exchange,
    encode_exchange,
)
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import DATAGRAM, FORWARDING, LARGEST_DATAGRAM, SEAL

Address = tuple[str, int]

_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")
_FAMILIES = {4: 4, 6: 16}
_SITES = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),  # RFC 1918
        *(
            "100.64.0.0/10",
            "169.254.0.0/16",
            "fc00::/7",
            "fe80::/10",
        ),  # Shared by a provider, link-local, unique local.
    )
)


class Scope(IntEnum):
    """From where an address means the same machine: from this machine, within a site, or from everywhere."""

    MACHINE = 0
    SITE = 1
    WORLD = 2


@lru_cache(maxsize=4096)
def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(host)


def is_loopback(address: Address) -> bool:
    """Return whether an address is on this machine."""
    return _ip(address[0]).is_loopback


@lru_cache(maxsize=4096)
def _scope(host: str) -> Scope:
    ip = _ip(host)
    if ip.is_loopback:
        return Scope.MACHINE
    return Scope.SITE if any(ip.version == site.version and ip in site for site in _SITES) else Scope.WORLD


def scope_of(address: Address) -> Scope:
    """Return the scope of an address: loopback, private or public."""
    return _scope(address[0])


@lru_cache(maxsize=4096)
def _network(host: str) -> str:
    ip = _ip(host)
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))


def network_of(address: Address) -> str:
    """Return the subnet of an address, /24 of IPv4 or /64 of IPv6: one owner may well have all of it."""
    return _network(address[0])


def is_contact(address: Address) -> bool:
    """Return whether an address can be a peer's: with a port, not multicast, broadcast or unspecified."""
    ip = _ip(address[0])
    return bool(address[1]) and not ip.is_multicast and not ip.is_unspecified and ip != _EVERYBODY


def may_hand_on(address: Address, to: Address) -> bool:
    """Return whether an address may be passed on to a neighbour at `to`: it must mean the same machine there.

    Loopback addresses go to loopback only, private ones to private ones. Also what a neighbour at `to` may pass on to
    us: no outsider gets us to contact a service of this machine, or of the network behind our router.
    """
    return is_contact(address) and _ip(address[0]).version == _ip(to[0]).version and scope_of(address) >= scope_of(to)


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


MANIFEST, PIECE, ACKNOWLEDGEMENT, PEERS, LEAVE, MEET, CALL, FORWARD, FORWARDED = range(1, 10)
PROBE, ROSTER, RECORDS = 0, 14, 15
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
MOST_LOCAL = 2
"""Local addresses that a peer reports of itself."""

MOST_CALLED = 1 + MOST_LOCAL
"""Addresses in a call."""

CIRCUIT_BYTES = 4
NO_CIRCUIT = bytes(CIRCUIT_BYTES)
"""In a call: the introducer forwards nothing."""

ROSTER_DIGEST_BYTES = 8
FIRST_ID, LAST_ID = bytes(RECORD_ID_BYTES), b"\xff" * RECORD_ID_BYTES
_PIECE = struct.Struct(">BQIH")
_ACKNOWLEDGEMENT = struct.Struct(">BQIH")
_MANIFEST = struct.Struct(">BIHQIH")
_PEERS = struct.Struct(">BQBB")
_LONGEST_ADDRESS = 19
_CALL_HEADER = 1 + KEY_ID_BYTES + CIRCUIT_BYTES
_FORWARD_HEADER = 1 + CIRCUIT_BYTES
_LONGEST_CALL = _CALL_HEADER + 1 + MOST_CALLED * _LONGEST_ADDRESS
_MEET_PADDING = 2 * _LONGEST_CALL + SEAL - 1 - KEY_ID_BYTES
"""A request to meet is as long as the two calls that answer it, seals included: an introducer amplifies nothing."""
_ROSTER = struct.Struct(f">BB{ROSTER_DIGEST_BYTES}s{RECORD_ID_BYTES}s{RECORD_ID_BYTES}s")
_ANSWERS = _ASKS = 1
PROBE_NUMBERS = 64
MOST_IDS = 128
"""Ids of records in a message."""

MOST_RECORD_BYTES = DATAGRAM - FORWARDING - SEAL - 1
"""Bytes of records in a message."""

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

    Of a statement, `signed` is the manifest and, behind it, the author's latest renewal if there is one, and `base` is
    the number of the transfer.
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
    """Keep-alive.

    Parameters
    ----------
    seen : int
        The newest sequence number seen from its receiver.
    others : tuple of (bytes, Address)
        Key ids of other peers of the group, and addresses from which the sender receives their datagrams.
    local : tuple of Address
        Addresses that the sender has behind its router, at most `MOST_LOCAL`.
    """

    seen: int
    others: tuple[tuple[bytes, Address], ...] = ()
    local: tuple[Address, ...] = ()


@dataclass(frozen=True)
class Leave:
    """The sender leaves."""


def transfer_of(sequence: int, base: int) -> int:
    """Return the number of a transfer: twice the body's sequence number, and one more if it is sent in full."""
    return (2 * sequence + (base == 0)) % 2**64


@dataclass(frozen=True)
class Meet:
    """Asks a common neighbour to introduce the sender to the peer with a key id."""

    key_id: bytes


@dataclass(frozen=True)
class CallRequest:
    """Asks the receiver to call a peer now; that peer is asked to call the receiver at the same time.

    Parameters
    ----------
    key_id : bytes
        The peer to call.
    circuit : bytes
        Number under which the sender forwards datagrams between the two, or `NO_CIRCUIT`.
    addresses : tuple of Address
        Where to call it: as the sender sees it, and behind the router that the two have in common.
    """

    key_id: bytes
    circuit: bytes = NO_CIRCUIT
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True)
class Forward:
    """Asks the receiver to pass a datagram on to the other end of a circuit."""

    circuit: bytes
    datagram: bytes


@dataclass(frozen=True)
class Forwarded:
    """A datagram from the other end of a circuit; an empty one says that there is no such circuit any more."""

    circuit: bytes
    datagram: bytes = b""


@dataclass(frozen=True)
class RosterIds:
    """Which records of a founded group the sender has, in a part of all possible ids.

    Parameters
    ----------
    digest : bytes
        Digest of all ids that it has: peers with the same one have the same records.
    first, last : bytes
        The part, both included; nothing if the first is above the last.
    ids : tuple of bytes
        The ids in that part, ascending, at most `MOST_IDS`.
    answers : bool
        Whether this answers such a message: then only records are sent in return.
    """

    digest: bytes
    first: bytes = LAST_ID
    last: bytes = FIRST_ID
    ids: tuple[bytes, ...] = ()
    answers: bool = False


@dataclass(frozen=True)
class Records:
    """Records of a founded group."""

    records: tuple[bytes, ...]


@dataclass(frozen=True)
class Probe:
    """What the sender's backbone makes of the group's test sample: numbers of 32 bits. `asks`: for the receiver's."""

    numbers: bytes
    asks: bool


Message = (
    SignedManifest
    | Piece
    | Acknowledgement
    | Peers
    | Leave
    | Meet
    | CallRequest
    | Forward
    | Forwarded
    | RosterIds
    | Records
    | Have
    | Want
    | SignedRenewal
    | EquivocationProof
    | Probe
)


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
        case Peers(seen, others, local):
            records = b"".join(key_id + encode_address(address) for key_id, address in others)
            return _PEERS.pack(PEERS, seen, len(local), len(others)) + _encode_addresses(local) + records
        case Leave():
            return bytes([LEAVE])
        case Meet(key_id):
            return bytes([MEET]) + key_id + bytes(_MEET_PADDING)
        case CallRequest(key_id, circuit, addresses):
            return bytes([CALL]) + key_id + circuit + bytes([len(addresses)]) + _encode_addresses(addresses)
        case Forward(circuit, datagram):
            return bytes([FORWARD]) + circuit + datagram
        case Forwarded(circuit, datagram):
            return bytes([FORWARDED]) + circuit + datagram
        case Probe() | RosterIds() | Records():
            return _encode_of_group(message)
        case Have() | Want() | SignedRenewal() | EquivocationProof():
            return encode_exchange(message)


def _encode_of_group(message: Probe | RosterIds | Records) -> bytes:
    match message:
        case RosterIds(digest, first, last, ids, answers):
            return _ROSTER.pack(ROSTER, _ANSWERS if answers else 0, digest, first, last) + b"".join(ids)
        case Probe(numbers, asks):
            return bytes([PROBE, _ASKS if asks else 0]) + numbers
        case Records(records):
            return bytes([RECORDS]) + b"".join(records)


def _encode_addresses(addresses: tuple[Address, ...]) -> bytes:
    return b"".join(map(encode_address, addresses))


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
    if first == FORWARD and len(data) > _FORWARD_HEADER:
        return Forward(data[1:_FORWARD_HEADER], data[_FORWARD_HEADER:])
    if first == FORWARDED and len(data) >= _FORWARD_HEADER:
        return Forwarded(data[1:_FORWARD_HEADER], data[_FORWARD_HEADER:])
    if first == MEET and len(data) == 1 + KEY_ID_BYTES + _MEET_PADDING:
        return Meet(data[1 : 1 + KEY_ID_BYTES])
    if first == CALL and len(data) > _CALL_HEADER:
        return _decode_call(data)
    if first in EXCHANGE:
        return decode_exchange(data)
    return _decode_of_group(data) if data and first in (PROBE, ROSTER, RECORDS) else Refusal.MALFORMED


def _decode_of_group(data: bytes) -> Probe | RosterIds | Records | Refusal:
    if data[0] == PROBE:
        fits = len(data) == 2 + 4 * PROBE_NUMBERS and data[1] <= _ASKS
        return Probe(data[2:], bool(data[1])) if fits else Refusal.MALFORMED
    if data[0] == RECORDS:
        records = split_records(data[1 : 1 + MOST_RECORD_BYTES])
        if isinstance(records, Refusal) or not 1 < len(data) <= 1 + MOST_RECORD_BYTES:
            return Refusal.MALFORMED
        return Records(tuple(one.data for one in records))
    if len(data) < _ROSTER.size:
        return Refusal.MALFORMED
    _, flags, digest, first, last = _ROSTER.unpack_from(data)
    listed = data[_ROSTER.size :]
    ids = tuple(listed[at : at + RECORD_ID_BYTES] for at in range(0, len(listed), RECORD_ID_BYTES))
    inside = all(first <= one <= last for one in ids) and ids == tuple(sorted(set(ids)))
    if flags & ~_ANSWERS or len(ids) > MOST_IDS or len(listed) % RECORD_ID_BYTES or not inside:
        return Refusal.MALFORMED
    return RosterIds(digest, first, last, ids, bool(flags))


def _decode_addresses(data: bytes, at: int, count: int) -> tuple[tuple[Address, ...], int] | None:
    """Return so many addresses from an offset on, and the offset after them; None if there are fewer."""
    addresses: list[Address] = []
    for _ in range(count):
        found = decode_address(data, at)
        if found is None:
            return None
        addresses.append(found[0])
        at = found[1]
    return tuple(addresses), at


def _decode_peers(data: bytes) -> Peers | Refusal:
    _, seen, locals_, count = _PEERS.unpack_from(data)
    if count > MOST_PEERS or locals_ > MOST_LOCAL or (found := _decode_addresses(data, _PEERS.size, locals_)) is None:
        return Refusal.MALFORMED
    local, at = found
    others: list[tuple[bytes, Address]] = []
    for _ in range(count):
        other = decode_address(data, at + KEY_ID_BYTES)
        if other is None:
            return Refusal.MALFORMED
        others.append((data[at : at + KEY_ID_BYTES], other[0]))
        at = other[1]
    return Peers(seen, tuple(others), local) if at == len(data) else Refusal.MALFORMED


def _decode_call(data: bytes) -> CallRequest | Refusal:
    key_id, circuit = data[1 : 1 + KEY_ID_BYTES], data[1 + KEY_ID_BYTES : _CALL_HEADER]
    count = data[_CALL_HEADER]
    found = _decode_addresses(data, _CALL_HEADER + 1, count) if count <= MOST_CALLED else None
    return CallRequest(key_id, circuit, found[0]) if found is not None and found[1] == len(data) else Refusal.MALFORMED
