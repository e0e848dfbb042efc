"""Messages by which neighbours exchange statements: what one has, what one wants, renewals, and proofs."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bristle.wire.identity import KEY_ID_BYTES
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import SEAL

HAVE, WANT, RENEWAL, PROOF = EXCHANGE = range(10, 14)
CONVICTED = 2**64 - 1
"""Number in an offer of a proof that the author signed two statements of one number: larger than any statement's."""

_ORDER = struct.Struct(">BI")
_OFFER = struct.Struct(f">{KEY_ID_BYTES}sQ16sI")
_WISH = struct.Struct(f">{KEY_ID_BYTES}s?")


@dataclass(frozen=True)
class Holding:
    """What a peer has of an author: the newest statement, or a proof of equivocation.

    Parameters
    ----------
    author : bytes
        Key id.
    number : int
        Number of the statement; `CONVICTED` for a proof, with a digest of zeros and `expires` 0.
    digest : bytes
        Digest of the statement.
    expires : int
        When it ceases to count, renewal included, in seconds since 1970.
    """

    author: bytes
    number: int
    digest: bytes
    expires: int


@dataclass(frozen=True)
class Have:
    """List the statements that the sender has and its receiver may lack. `order`: number of this message, from 1."""

    order: int
    offers: tuple[Holding, ...]


@dataclass(frozen=True)
class Want:
    """Acknowledges a `Have` and asks for statements.

    Parameters
    ----------
    order : int
        Number of the `Have` that it acknowledges; 0: none.
    wishes : tuple of (bytes, bool)
        Authors, and whether only the latest renewal is wanted.
    """

    order: int
    wishes: tuple[tuple[bytes, bool], ...] = ()


@dataclass(frozen=True)
class SignedRenewal:
    """A renewal, as its author signed it."""

    data: bytes


@dataclass(frozen=True)
class EquivocationProof:
    """A proof that an author signed two statements of one number."""

    data: bytes


ExchangeMessage = Have | Want | SignedRenewal | EquivocationProof


def encode_exchange(message: ExchangeMessage) -> bytes:
    """Encode a message, to be sealed."""
    match message:
        case Have(order, offers):
            made = (_OFFER.pack(each.author, each.number, each.digest, each.expires) for each in offers)
            return _ORDER.pack(HAVE, order) + b"".join(made)
        case Want(order, wishes):
            return _ORDER.pack(WANT, order) + b"".join(_WISH.pack(*each) for each in wishes)
        case SignedRenewal(data):
            return bytes([RENEWAL]) + data
        case EquivocationProof(data):
            return bytes([PROOF]) + data


def decode_exchange(data: bytes) -> ExchangeMessage | Refusal:
    """Decode an unsealed message whose first byte is one of `EXCHANGE`, or return why it is refused."""
    if data[0] in (RENEWAL, PROOF):
        content = data[1:]
        if not content:
            return Refusal.MALFORMED
        return SignedRenewal(content) if data[0] == RENEWAL else EquivocationProof(content)
    if len(data) < _ORDER.size:
        return Refusal.MALFORMED
    return _decode_offers(data) if data[0] == HAVE else _decode_wishes(data)


def _decode_offers(data: bytes) -> Have | Refusal:
    order = _ORDER.unpack_from(data)[1]
    if not order or len(data) == _ORDER.size or (len(data) - _ORDER.size) % _OFFER.size:
        return Refusal.MALFORMED
    return Have(order, tuple(Holding(*each) for each in _OFFER.iter_unpack(data[_ORDER.size :])))


def _decode_wishes(data: bytes) -> Want | Refusal:
    content = data[_ORDER.size :]
    if len(content) % _WISH.size or any(content[at] > 1 for at in range(KEY_ID_BYTES, len(content), _WISH.size)):
        return Refusal.MALFORMED
    return Want(_ORDER.unpack_from(data)[1], tuple(_WISH.iter_unpack(content)))


def offers_in(datagram: int) -> int:
    """Return how many offers fit into a datagram of this size."""
    return (datagram - SEAL - _ORDER.size) // _OFFER.size
