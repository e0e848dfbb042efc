"""Signed records of who invited whom into a founded group: offers, memberships, revocations, and invitations as text.

An inviter signs an *offer*, and hands it over in an `Invitation`. The invitee signs it, too: that is a *membership*,
which peers exchange. A *revocation* takes it back. All signatures cover the group's id.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from bristle.wire.group import GROUP_ID_BYTES, MOST_FOUNDERS
from bristle.wire.identity import KEY_BYTES, KEY_ID_BYTES, SECRET_BYTES, SIGNATURE_BYTES, Identity, key_id_of, verify
from bristle.wire.refusal import Refusal

MEMBERSHIP, MEMBERSHIP_BY_CODE, REVOCATION = 1, 2, 3
"""First byte of a record."""

RECORD_ID_BYTES = 8
MOST_GENERATIONS = 8
"""Length of a chain of invitations below a founder."""

MOST_SEATS = 4096
"""Members of a group besides its founders. Each founder may invite an equal part of them."""

LARGEST_NUMBER = 2**63 - 1
_OFFER = struct.Struct(f">{KEY_BYTES}sHQ{KEY_ID_BYTES}sBHI")
_ACCEPTANCE = struct.Struct(f">{KEY_BYTES}sQ")
_REVOCATION = struct.Struct(f">{KEY_BYTES}s{KEY_ID_BYTES}sHQ")
_BY_CODE = 1
_OFFER_BYTES = _OFFER.size + SIGNATURE_BYTES
_ACCEPTED_BYTES = _OFFER_BYTES + _ACCEPTANCE.size
_MEMBERSHIP_BYTES = 1 + _ACCEPTED_BYTES + SIGNATURE_BYTES
_WITH_CODE_BYTES = _MEMBERSHIP_BYTES + KEY_BYTES + SIGNATURE_BYTES
_REVOCATION_BYTES = 1 + _REVOCATION.size + SIGNATURE_BYTES
_SIZES = {MEMBERSHIP: _MEMBERSHIP_BYTES, MEMBERSHIP_BY_CODE: _WITH_CODE_BYTES, REVOCATION: _REVOCATION_BYTES}
_OFFER_DOMAIN = b"bristle 2 offer\x00"
_ACCEPTANCE_DOMAIN = b"bristle 2 acceptance\x00"
_CODE_DOMAIN = b"bristle 2 one-time code\x00"
_REVOCATION_DOMAIN = b"bristle 2 revocation\x00"
_TEXT = "bristle-invitation-1:"


@dataclass(frozen=True)
class Offer:
    """What an inviter signs.

    Parameters
    ----------
    inviter : bytes
        Public key.
    slot : int
        From 1 to the seats of the inviter. A newer offer for the same slot replaces an older one.
    number : int
        Larger for a newer offer.
    invitee : bytes
        Key id of the invitee, or of a one-time key whose secret is the code.
    by_code : bool
        Which of the two it is.
    seats : int
        How many others the invitee may invite, directly or through those it invited.
    expires : int
        When the membership ends, in seconds since 1970; 0: never.
    data : bytes
        All of it with the signature.
    """

    inviter: bytes
    slot: int
    number: int
    invitee: bytes
    by_code: bool
    seats: int
    expires: int
    data: bytes

    @classmethod
    def sign(
        cls,
        identity: Identity,
        group: bytes,
        *,
        slot: int,
        number: int,
        invitee: bytes,
        by_code: bool = False,
        seats: int = 0,
        expires: int = 0,
    ) -> Offer:
        """Return a signed offer for the group with an id."""
        content = _OFFER.pack(identity.key, slot, number, invitee, _BY_CODE if by_code else 0, seats, expires)
        return cls.decode(content + identity.sign(_OFFER_DOMAIN + group + content))

    @classmethod
    def decode(cls, data: bytes) -> Offer:
        """Return the offer in so many bytes as it has, without any check."""
        inviter, slot, number, invitee, flags, seats, expires = _OFFER.unpack_from(data)
        return cls(inviter, slot, number, invitee, bool(flags & _BY_CODE), seats, expires, data)

    @cached_property
    def inviter_id(self) -> bytes:
        """The inviter's key id."""
        return key_id_of(self.inviter)

    def is_signed(self, group: bytes) -> bool:
        """Return whether the inviter signed it for a group."""
        content, signature = self.data[: _OFFER.size], self.data[_OFFER.size :]
        return verify(self.inviter, signature, _OFFER_DOMAIN + group + content)

    def accept(self, identity: Identity, group: bytes, *, number: int, code: bytes | None = None) -> Admission:
        """Return the membership that the invitee signs.

        Parameters
        ----------
        identity, group
            The invitee, and the id of the group.
        number : int
            Larger for a newer one.
        code : bytes, optional
            The secret of the one-time key.

        Raises
        ------
        ValueError
            If the offer is for another peer.
        """
        accepted = self.data + _ACCEPTANCE.pack(identity.key, number)
        data = accepted + identity.sign(_ACCEPTANCE_DOMAIN + group + accepted)
        if not self.by_code:
            if self.invitee != identity.key_id:
                raise ValueError(
                    f"the invitation is for the peer {self.invitee.hex()}, not for this one, {identity.key_id.hex()}"
                )
            return Admission.decode(bytes([MEMBERSHIP]) + data)
        once = Identity(code or bytes(SECRET_BYTES))
        if once.key_id != self.invitee:
            raise ValueError("the one-time code does not fit the invitation")
        data += once.key + once.sign(_CODE_DOMAIN + group + accepted)
        return Admission.decode(bytes([MEMBERSHIP_BY_CODE]) + data)


def record_id(data: bytes) -> bytes:
    """Return the 8-byte id of a record."""
    return blake2b(data, digest_size=RECORD_ID_BYTES).digest()


@dataclass(frozen=True)
class Admission:
    """An offer that its invitee accepted.

    Parameters
    ----------
    offer : Offer
        What was accepted.
    key : bytes
        The member's public key.
    number : int
        Of several memberships of one key in a generation, the one with the largest number counts.
    data : bytes
        All of it, with the signatures of inviter, invitee and one-time key.
    """

    offer: Offer
    key: bytes
    number: int
    data: bytes

    @classmethod
    def decode(cls, data: bytes) -> Admission:
        """Return the membership in so many bytes as it has, without any check."""
        key, number = _ACCEPTANCE.unpack_from(data, 1 + _OFFER_BYTES)
        return cls(Offer.decode(data[1 : 1 + _OFFER_BYTES]), key, number, data)

    @cached_property
    def id(self) -> bytes:
        """Id of the record."""
        return record_id(self.data)

    @cached_property
    def key_id(self) -> bytes:
        """The member's key id."""
        return key_id_of(self.key)

    def is_signed(self, group: bytes) -> bool:
        """Return whether inviter, invitee and one-time key signed it for a group."""
        accepted, rest = self.data[1 : 1 + _ACCEPTED_BYTES], self.data[1 + _ACCEPTED_BYTES :]
        if self.offer.by_code:
            once, by_code = rest[SIGNATURE_BYTES : SIGNATURE_BYTES + KEY_BYTES], rest[SIGNATURE_BYTES + KEY_BYTES :]
            fits = key_id_of(once) == self.offer.invitee and verify(once, by_code, _CODE_DOMAIN + group + accepted)
        else:
            fits = self.key_id == self.offer.invitee
        return (
            fits
            and self.offer.is_signed(group)
            and verify(self.key, rest[:SIGNATURE_BYTES], _ACCEPTANCE_DOMAIN + group + accepted)
        )


@dataclass(frozen=True)
class Revocation:
    """Takes back the offers of one slot up to a number.

    Parameters
    ----------
    revoker : bytes
        Public key: of the inviter, of a member between it and its founder, or of any founder.
    inviter : bytes
        Key id of the inviter.
    slot, number : int
        The slot, and the largest number that is taken back.
    data : bytes
        All of it with the signature.
    """

    revoker: bytes
    inviter: bytes
    slot: int
    number: int
    data: bytes

    @classmethod
    def sign(cls, identity: Identity, group: bytes, *, inviter: bytes, slot: int, number: int) -> Revocation:
        """Return a signed revocation for the group with an id."""
        content = _REVOCATION.pack(identity.key, inviter, slot, number)
        return cls.decode(bytes([REVOCATION]) + content + identity.sign(_REVOCATION_DOMAIN + group + content))

    @classmethod
    def decode(cls, data: bytes) -> Revocation:
        """Return the revocation in so many bytes as it has, without any check."""
        revoker, inviter, slot, number = _REVOCATION.unpack_from(data, 1)
        return cls(revoker, inviter, slot, number, data)

    @cached_property
    def id(self) -> bytes:
        """Id of the record."""
        return record_id(self.data)

    @cached_property
    def revoker_id(self) -> bytes:
        """The revoker's key id."""
        return key_id_of(self.revoker)

    def is_signed(self, group: bytes) -> bool:
        """Return whether the revoker signed it for a group."""
        content, signature = self.data[1 : 1 + _REVOCATION.size], self.data[1 + _REVOCATION.size :]
        return verify(self.revoker, signature, _REVOCATION_DOMAIN + group + content)


Record = Admission | Revocation


def decode_record(data: bytes) -> Record | Refusal:
    """Decode a record; `is_signed` checks its signatures."""
    kind = data[0] if data else 0
    if len(data) != _SIZES.get(kind):
        return Refusal.MALFORMED
    if kind == REVOCATION:
        revocation = Revocation.decode(data)
        return revocation if revocation.number <= LARGEST_NUMBER and revocation.slot else Refusal.MALFORMED
    membership = Admission.decode(data)
    offer = membership.offer
    if (
        data[_FLAGS_AT] != (_BY_CODE if kind == MEMBERSHIP_BY_CODE else 0)
        or not offer.slot
        or max(offer.number, membership.number) > LARGEST_NUMBER
        or offer.seats >= MOST_SEATS
    ):
        return Refusal.MALFORMED
    return membership


_FLAGS_AT = 1 + KEY_BYTES + 2 + 8 + KEY_ID_BYTES


def split_records(data: bytes) -> list[Record] | Refusal:
    """Decode records that follow one another; their first bytes give their lengths."""
    records: list[Record] = []
    at = 0
    while at < len(data):
        size = _SIZES.get(data[at], 0)
        record = decode_record(data[at : at + size])
        if isinstance(record, Refusal):
            return record
        records.append(record)
        at += size
    return records


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What an inviter hands over, as one line of text.

    Parameters
    ----------
    group : bytes
        Id of the group.
    founders : frozenset of bytes
        Key ids of its founders.
    offer : Offer
        What the inviter signed.
    code : bytes, optional
        Secret of a one-time key: the first peer to use the text becomes a member.
    chain : tuple of bytes
        Memberships that lead from a founder to the inviter.
    """

    group: bytes
    founders: frozenset[bytes]
    offer: Offer
    code: bytes | None
    chain: tuple[bytes, ...]

    def to_text(self) -> str:
        """Return the text."""
        data = b"".join(
            [
                self.group,
                bytes([len(self.founders)]),
                *sorted(self.founders),
                self.offer.data,
                b"" if self.code is None else self.code,
                *self.chain,
            ]
        )
        return _TEXT + base64.urlsafe_b64encode(data).decode()

    @classmethod
    def from_text(cls, text: str) -> Invitation:
        """Return the invitation in a text.

        Raises
        ------
        ValueError
            If the text is no invitation, or damaged.
        """
        text = text.strip()
        if not text.startswith(_TEXT):
            raise ValueError(f"an invitation begins with {_TEXT!r}, not with {text[:20]!r}")
        try:
            data = base64.b64decode(text.removeprefix(_TEXT), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        invitation = cls._decode(data)
        if invitation is None:
            raise ValueError("the invitation is damaged: copy all of its text")
        return invitation

    @classmethod
    def _decode(cls, data: bytes) -> Invitation | None:
        count = data[GROUP_ID_BYTES] if len(data) > GROUP_ID_BYTES else 0
        at = GROUP_ID_BYTES + 1 + count * KEY_ID_BYTES
        if not 1 <= count <= MOST_FOUNDERS or len(data) < at + _OFFER_BYTES:
            return None
        group, listed = data[:GROUP_ID_BYTES], data[GROUP_ID_BYTES + 1 : at]
        founders = frozenset(listed[start : start + KEY_ID_BYTES] for start in range(0, len(listed), KEY_ID_BYTES))
        offer = Offer.decode(data[at : at + _OFFER_BYTES])
        at += _OFFER_BYTES
        code = data[at : at + SECRET_BYTES] if offer.by_code else None
        at += len(code or b"")
        chain = split_records(data[at:])
        if isinstance(chain, Refusal) or not offer.is_signed(group):
            return None
        if code is not None and len(code) < SECRET_BYTES:
            return None
        return cls(group=group, founders=founders, offer=offer, code=code, chain=tuple(record.data for record in chain))
