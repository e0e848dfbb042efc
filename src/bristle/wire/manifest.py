"""The signed manifest of a body of any kind: author, group, number, expiry, encoding, and a digest of every chunk.

Functions here decode and verify; they decide nothing. A forged manifest ends in `p2p/inbox.py` (`on_manifest`, or
`_on_statement` for statements), which refuses and counts it; `p2p/node.py` bans a neighbour that sends too many.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from bristle.wire.encoding import ENCODING_CODES, ENCODINGS, PLAIN, ZLIB, largest_statement
from bristle.wire.group import GROUP_ID_BYTES, Group
from bristle.wire.identity import KEY_BYTES, SIGNATURE_BYTES, Identity, key_id_of, verify
from bristle.wire.kinds import Kind
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import DIGEST, EXTENSION_HEADER, Encoding, chunk_bytes, chunk_count, grid_bytes

VERSION = 2
CLAIMS = 1
LARGEST_MANIFEST = 1_150
"""Bytes: a manifest always fits into the smallest datagram."""

LARGEST_SEQUENCE = 2**63 - 1
"""So that twice as much, the number of a transfer, has room in 8 bytes."""

_FIELDS = struct.Struct(f">BBBB{GROUP_ID_BYTES}s{KEY_BYTES}sQIIIIHIH")
_EXTENSION = struct.Struct(">HH")
_DOMAIN = b"bristle 2 manifest\x00"
_KINDS = frozenset(Kind)
_LARGEST = 2**32 - 1
_SEQUENCE_AT = 4 + GROUP_ID_BYTES + KEY_BYTES


@dataclass(frozen=True)
class ManifestExtension:
    """A typed value under the manifest's signature. Types that a receiver does not know are skipped."""

    type: int
    value: bytes


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a body by its author.

    Parameters
    ----------
    group, author : bytes
        The group's id, the author's public key.
    kind : Kind
        What the body is.
    sequence : int
        Sequence number, larger for every new body of an author, of whatever kind.
    expires : int
        When the body ceases to count, in seconds since 1970; 0: never.
    iteration : int
        The author's iteration, as it states.
    encoding, compression
        Encoding of the body.
    classes, features : int
        The group's shape.
    rank : int
        Number of factors of a statement; 0 for a head.
    body : int
        Size of the body in bytes, after compression.
    digests : tuple of bytes
        Digests of the body's chunks.
    extensions : tuple of ManifestExtension
        Claims, and whatever later versions add.
    """

    group: bytes
    author: bytes
    kind: Kind = Kind.HEAD
    sequence: int
    expires: int = 0
    iteration: int = 0
    encoding: Encoding
    compression: int
    classes: int
    features: int
    rank: int = 0
    body: int
    digests: tuple[bytes, ...]
    extensions: tuple[ManifestExtension, ...] = ()

    @property
    def sender(self) -> bytes:
        """The author's key id."""
        return key_id_of(self.author)

    @property
    def shape(self) -> tuple[int, int]:
        """The group's shape."""
        return self.classes, self.features

    def claims(self) -> NDArray[np.bool_] | None:
        """Return the classes that the sender says it trains and tests itself; None if it does not say."""
        for extension in self.extensions:
            if extension.type == CLAIMS:
                bits = np.frombuffer(extension.value, np.uint8)
                return np.unpackbits(bits, count=self.classes, bitorder="little").astype(np.bool_)
        return None

    def matches(self, body: bytes) -> bool:
        """Return whether a body matches the signed digests."""
        return len(body) == self.body and digests_of(body) == self.digests


def claims_extension(claims: NDArray[np.bool_]) -> ManifestExtension:
    """Encode claims as an extension: a bit per class, the lowest first."""
    return ManifestExtension(CLAIMS, np.packbits(claims, bitorder="little").tobytes())


def digests_of(body: bytes) -> tuple[bytes, ...]:
    """Return the 16-byte BLAKE2b digests of a body's chunks."""
    size = chunk_bytes(len(body))
    view = memoryview(body)
    return tuple(blake2b(view[at : at + size], digest_size=DIGEST).digest() for at in range(0, len(body), size))


def encode_manifest(manifest: Manifest, identity: Identity) -> bytes:
    """Encode and sign a manifest.

    Raises
    ------
    ValueError
        If a number does not fit its field, or the manifest does not fit one datagram.
    """
    extensions = b"".join(_EXTENSION.pack(each.type, len(each.value)) + each.value for each in manifest.extensions)
    for name in ("expires", "iteration", "body"):
        value: int = getattr(manifest, name)
        if not 0 <= value <= _LARGEST:
            raise ValueError(f"{name} must be from 0 to {_LARGEST}, not {value}")
    content = (
        _FIELDS.pack(
            VERSION,
            manifest.kind,
            ENCODING_CODES[manifest.encoding],
            manifest.compression,
            manifest.group,
            manifest.author,
            manifest.sequence,
            manifest.expires,
            manifest.iteration,
            manifest.classes,
            manifest.features,
            manifest.rank,
            manifest.body,
            len(extensions),
        )
        + b"".join(manifest.digests)
        + extensions
    )
    if len(content) + SIGNATURE_BYTES > LARGEST_MANIFEST:
        raise ValueError(
            f"a manifest has at most {LARGEST_MANIFEST} bytes, not {len(content) + SIGNATURE_BYTES}: "
            f"{manifest.classes} classes are too many for claims"
        )
    return content + identity.sign(_DOMAIN + content)


def decode_manifest(data: bytes, group: Group) -> Manifest | Refusal:
    """Decode a manifest, or return why it does not fit the group; `is_signed` checks the signature."""
    if not _FIELDS.size + SIGNATURE_BYTES <= len(data) <= LARGEST_MANIFEST:
        return Refusal.MALFORMED
    version, code, encoded, compression, group_id, author, *numbers = _FIELDS.unpack_from(data)
    sequence, expires, iteration, classes, features, rank, body, extended = numbers
    if version != VERSION:
        return Refusal.VERSION
    if group_id != group.id:
        return Refusal.WRONG_GROUP
    if (
        code not in _KINDS
        or encoded not in ENCODINGS
        or compression not in (PLAIN, ZLIB)
        or sequence > LARGEST_SEQUENCE
    ):
        return Refusal.MALFORMED
    kind, encoding = Kind(code), ENCODINGS[encoded]
    if (classes, features) != group.shape or rank > (features if kind == Kind.STATEMENT else 0):
        return Refusal.WRONG_SHAPE
    if (kind == Kind.HEAD) != (encoding == "grid") or (encoding == "grid" and compression != PLAIN):
        return Refusal.MALFORMED
    if kind == Kind.HEAD:
        largest = grid_bytes(*group.shape)
    else:
        largest = largest_statement(group.shape, rank, encoding, compression)
    if body > largest:
        return Refusal.OVERSIZE
    after_digests = _FIELDS.size + chunk_count(body) * DIGEST
    if not body or len(data) != after_digests + extended + SIGNATURE_BYTES:
        return Refusal.MALFORMED
    extensions = _decode_extensions(data[after_digests : after_digests + extended], classes)
    if isinstance(extensions, Refusal):
        return extensions
    return Manifest(
        group=group_id,
        author=author,
        kind=kind,
        sequence=sequence,
        expires=expires,
        iteration=iteration,
        encoding=encoding,
        compression=compression,
        classes=classes,
        features=features,
        rank=rank,
        body=body,
        digests=tuple(data[at : at + DIGEST] for at in range(_FIELDS.size, after_digests, DIGEST)),
        extensions=extensions,
    )


def _decode_extensions(data: bytes, classes: int) -> tuple[ManifestExtension, ...] | Refusal:
    extensions: list[ManifestExtension] = []
    at = 0
    while at < len(data):
        if len(data) - at < EXTENSION_HEADER:
            return Refusal.MALFORMED
        kind, length = _EXTENSION.unpack_from(data, at)
        at += EXTENSION_HEADER
        if length > len(data) - at:
            return Refusal.MALFORMED
        extensions.append(ManifestExtension(kind, data[at : at + length]))
        at += length
    claims = [extension.value for extension in extensions if extension.type == CLAIMS]
    if len(claims) > 1:
        return Refusal.MALFORMED
    if claims and (len(claims[0]) != -(-classes // 8) or int.from_bytes(claims[0], "little") >> classes):
        return Refusal.MALFORMED
    return tuple(extensions)


def sequence_of(data: bytes) -> int:
    """Return the sequence number in the bytes of a manifest, without any check."""
    return int.from_bytes(data[_SEQUENCE_AT : _SEQUENCE_AT + 8], "big")


def is_signed(data: bytes, manifest: Manifest) -> bool:
    """Return whether a manifest was signed by its author."""
    content, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    return verify(manifest.author, signature, _DOMAIN + content)
