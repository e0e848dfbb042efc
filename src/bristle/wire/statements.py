"""Signed statements as anybody may pass them on: manifest and body, the latest renewal, and proofs of equivocation."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from bristle.rules.evidence.statement import Statement
from bristle.wire.encoding import PLAIN, ZLIB, decode_statement, encode_statement
from bristle.wire.group import GROUP_ID_BYTES, Group
from bristle.wire.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, key_id_of, verify
from bristle.wire.kinds import Kind
from bristle.wire.manifest import LARGEST_SEQUENCE, Manifest, decode_manifest, digests_of, encode_manifest, is_signed
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import DIGEST, MANIFEST, Encoding, chunk_count

LARGEST_STATEMENT_MANIFEST = 560
"""Bytes: two of them, a proof of equivocation, fit into the smallest datagram."""

STATEMENT_DIGEST_BYTES = 16
LONGEST_LIFE = 30 * 86_400
"""Seconds from now to the expiry of a statement, at most: what is gone fades everywhere."""

SKEW = 300
"""Seconds by which the clocks of author and receiver may differ."""

_RENEWAL = struct.Struct(f">{GROUP_ID_BYTES}s{KEY_BYTES}sQ{STATEMENT_DIGEST_BYTES}sI")
RENEWAL_BYTES = _RENEWAL.size + SIGNATURE_BYTES
_RENEWAL_DOMAIN = b"bristle 2 renewal\x00"
_LENGTHS = struct.Struct(">HH")
_LATEST = 2**32 - 1
_FIELDS = struct.Struct(f">4x{GROUP_ID_BYTES}s{KEY_BYTES}sQI")
_SIZES = struct.Struct(">IH")
_SIZES_AT = MANIFEST - SIGNATURE_BYTES - _SIZES.size
LEAST_RENEWAL = 600
"""Minimum number of seconds by which a renewal postpones the expiry: less is not worth a message to all peers."""


def life_of(expires: int, clock: float) -> Refusal | None:
    """Return why an expiry is refused by a clock, in seconds since 1970, or None."""
    if expires + SKEW <= clock:
        return Refusal.EXPIRED
    return Refusal.LIVES_TOO_LONG if expires > clock + LONGEST_LIFE + SKEW else None


@dataclass(frozen=True)
class Renewal:
    """A signed word of the author: its statement of a number and digest holds until `expires`.

    Parameters
    ----------
    group, key : bytes
        The group's id, the author's public key.
    number : int
        Number of the statement.
    digest : bytes
        Digest of the statement.
    expires : int
        Until when it holds now, in seconds since 1970.
    signature : bytes
        Of the author.
    """

    group: bytes
    key: bytes
    number: int
    digest: bytes
    expires: int
    signature: bytes = b""

    @property
    def author(self) -> bytes:
        """Key id of the author."""
        return key_id_of(self.key)

    def content(self) -> bytes:
        """Return what is signed."""
        return _RENEWAL.pack(self.group, self.key, self.number, self.digest, self.expires)

    def signed_by(self, identity: Identity) -> Renewal:
        """Return the renewal with a signature."""
        return replace(self, signature=identity.sign(_RENEWAL_DOMAIN + self.content()))

    def is_signed(self) -> bool:
        """Return whether the author signed it."""
        return verify(self.key, self.signature, _RENEWAL_DOMAIN + self.content())

    def to_bytes(self) -> bytes:
        """Return the renewal as it travels."""
        return self.content() + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> Renewal | Refusal:
        """Read a renewal, without checking its signature."""
        if len(data) != RENEWAL_BYTES:
            return Refusal.MALFORMED
        group, key, number, digest, expires = _RENEWAL.unpack_from(data)
        return cls(group, key, number, digest, expires, data[_RENEWAL.size :])


@dataclass(frozen=True)
class SignedStatement:
    """A statement with its author's signature, so that any peer can verify it.

    Parameters
    ----------
    manifest, body : bytes
        The signed manifest, and the encoded statement.
    renewal : bytes
        The author's latest renewal; empty if there is none.
    """

    manifest: bytes
    body: bytes
    renewal: bytes = b""

    def __post_init__(self) -> None:
        if len(self.manifest) <= _FIELDS.size + SIGNATURE_BYTES or len(self.renewal) not in (0, RENEWAL_BYTES):
            raise ValueError("these bytes hold no signed statement")

    @cached_property
    def author(self) -> bytes:
        """Key id of the author."""
        return key_id_of(self.key)

    @property
    def key(self) -> bytes:
        """The author's public key."""
        key: bytes = _FIELDS.unpack_from(self.manifest)[1]
        return key

    @property
    def number(self) -> int:
        """Number of the statement: an author signs one of each number, and the largest counts."""
        number: int = _FIELDS.unpack_from(self.manifest)[2]
        return number

    @property
    def expires(self) -> int:
        """When it ceases to count, renewal included, in seconds since 1970."""
        first: int = _FIELDS.unpack_from(self.manifest)[3]
        renewal = Renewal.from_bytes(self.renewal)
        return first if isinstance(renewal, Refusal) else max(first, renewal.expires)

    @cached_property
    def digest(self) -> bytes:
        """Digest of all that is signed: two of one author and number prove equivocation."""
        return digest_of(self.manifest)

    def to_bytes(self) -> bytes:
        """Return all of it, to be stored or passed on."""
        return _LENGTHS.pack(len(self.manifest), len(self.renewal)) + self.manifest + self.renewal + self.body

    @classmethod
    def from_bytes(cls, data: bytes) -> SignedStatement:
        """Decode what `to_bytes` wrote; the caller has to verify it.

        Raises
        ------
        ValueError
            If the bytes hold no signed statement.
        """
        if len(data) < _LENGTHS.size:
            raise ValueError("these bytes hold no signed statement")
        manifest, renewal = _LENGTHS.unpack_from(data)
        ends = _LENGTHS.size + manifest, _LENGTHS.size + manifest + renewal
        return cls(data[_LENGTHS.size : ends[0]], data[ends[1] :], data[ends[0] : ends[1]])

    def renew(self, identity: Identity, expires: int) -> SignedStatement:
        """Return the statement with a renewal by its author.

        Raises
        ------
        ValueError
            If the identity is not the author's, or `expires` is not a time in seconds since 1970.
        """
        if identity.key != self.key:
            raise ValueError("only its author renews a statement")
        if not 0 <= expires <= _LATEST:
            raise ValueError(f"expires must be from 0 to {_LATEST}, not {expires}")
        group = _FIELDS.unpack_from(self.manifest)[0]
        renewal = Renewal(group, self.key, self.number, self.digest, expires).signed_by(identity)
        return replace(self, renewal=renewal.to_bytes())


def split_renewal(data: bytes) -> tuple[bytes, bytes] | Refusal:
    """Return the manifest of a statement and the renewal behind it, empty if there is none; nothing else is checked."""
    if not MANIFEST <= len(data) <= LARGEST_STATEMENT_MANIFEST + RENEWAL_BYTES:
        return Refusal.MALFORMED
    body, extensions = _SIZES.unpack_from(data, _SIZES_AT)
    length = MANIFEST + DIGEST * chunk_count(body) + extensions
    if len(data) not in (length, length + RENEWAL_BYTES):
        return Refusal.MALFORMED
    return data[:length], data[length:]


def digest_of(manifest: bytes) -> bytes:
    """Return the digest of a signed manifest, BLAKE2b of all but the signature, in 16 bytes."""
    return blake2b(manifest[:-SIGNATURE_BYTES], digest_size=STATEMENT_DIGEST_BYTES).digest()


def sign_statement(
    statement: Statement,
    *,
    number: int,
    expires: int,
    identity: Identity,
    group: Group,
    encoding: Encoding = "float16",
    compress: bool = True,
) -> SignedStatement:
    """Sign a statement; nothing is sent.

    Raises
    ------
    ValueError
        If the statement does not fit the group, or all peers would refuse it.
    """
    if statement.rows.shape != group.shape:
        raise ValueError(f"statements of this group have shape {group.shape}, not {statement.rows.shape}")
    if not 0 < number <= LARGEST_SEQUENCE:
        raise ValueError(f"the number of a statement is from 1 to {LARGEST_SEQUENCE}, not {number}")
    body = encode_statement(statement, encoding=encoding, compress=compress)
    assert statement.factors is not None
    classes, features = group.shape
    manifest = Manifest(
        group=group.id,
        author=identity.key,
        kind=Kind.STATEMENT,
        sequence=number,
        expires=expires,
        encoding=encoding,
        compression=ZLIB if compress else PLAIN,
        classes=classes,
        features=features,
        rank=len(statement.factors),
        body=len(body),
        digests=digests_of(body),
    )
    return SignedStatement(encode_manifest(manifest, identity), body)


def decode_statement_manifest(data: bytes, group: Group) -> Manifest | Refusal:
    """Decode the manifest of a statement, or return why it is refused; its signature is not checked."""
    if len(data) > LARGEST_STATEMENT_MANIFEST:
        return Refusal.MALFORMED
    manifest = decode_manifest(data, group)
    if isinstance(manifest, Refusal):
        return manifest
    if manifest.kind != Kind.STATEMENT:
        return Refusal.MALFORMED
    return manifest if group.admits(manifest.sender) else Refusal.NOT_A_MEMBER


def open_statement(manifest: Manifest, body: bytes) -> Statement | Refusal:
    """Decode the body of a statement whose manifest is verified, or return why it is refused."""
    if not manifest.matches(body):
        return Refusal.BAD_DIGEST
    return decode_statement(
        body,
        shape=manifest.shape,
        rank=manifest.rank,
        encoding=manifest.encoding,
        compression=manifest.compression,
    )


def verify_statement(signed: SignedStatement, group: Group) -> Statement | Refusal:
    """Return what a signed statement says, or why it is refused: all is checked but its expiry."""
    manifest = decode_statement_manifest(signed.manifest, group)
    if isinstance(manifest, Refusal):
        return manifest
    if not is_signed(signed.manifest, manifest):
        return Refusal.BAD_SIGNATURE
    if signed.renewal and (refusal := refusal_of_renewal(signed.renewal, signed.manifest)) is not None:
        return refusal
    return open_statement(manifest, signed.body)


def refusal_of_renewal(data: bytes, manifest: bytes) -> Refusal | None:
    """Return why a renewal of the statement with a signed manifest is refused, or None; expiry is not checked."""
    renewal = Renewal.from_bytes(data)
    if isinstance(renewal, Refusal):
        return renewal
    group, key, number, _ = _FIELDS.unpack_from(manifest)
    if (renewal.group, renewal.key, renewal.number, renewal.digest) != (group, key, number, digest_of(manifest)):
        return Refusal.MALFORMED
    return None if renewal.is_signed() else Refusal.BAD_SIGNATURE


@dataclass(frozen=True)
class Proof:
    """Two signed manifests of different statements of one author and number: a proof of equivocation."""

    first: bytes
    second: bytes

    def to_bytes(self) -> bytes:
        """Return the proof as it travels."""
        return len(self.first).to_bytes(2, "big") + self.first + self.second

    @classmethod
    def from_bytes(cls, data: bytes) -> Proof:
        """Read a proof, without checking it."""
        length = int.from_bytes(data[:2], "big")
        return cls(data[2 : 2 + length], data[2 + length :])


def verify_proof(proof: Proof, group: Group) -> bytes | Refusal:
    """Return the key id of the author that a proof convicts, or why it is refused."""
    found = [decode_statement_manifest(each, group) for each in (proof.first, proof.second)]
    for each in found:
        if isinstance(each, Refusal):
            return each
    manifests = [each for each in found if isinstance(each, Manifest)]
    first, second = manifests
    if (first.author, first.sequence) != (second.author, second.sequence) or digest_of(proof.first) == digest_of(
        proof.second
    ):
        return Refusal.MALFORMED
    signed = is_signed(proof.first, first) and is_signed(proof.second, second)
    return first.sender if signed else Refusal.BAD_SIGNATURE
