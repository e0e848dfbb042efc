"""The signed manifest of a head: sender, group, iteration, encoding, and a digest of every chunk of its body."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from bristle.wire.grid import GridHead
from bristle.wire.group import GROUP_ID_BYTES, Group
from bristle.wire.identity import KEY_ID_BYTES, SIGNATURE_BYTES, Identity, key_id_of, verify
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import DIGEST, EXTENSION_HEADER, MOST_CHUNKS, chunk_bytes, chunk_count, content_bytes

VERSION = 1
CLAIMS = 1
LARGEST_MANIFEST = 1_150
"""Bytes: a manifest always fits into the smallest datagram."""

_FIELDS = struct.Struct(f">BBBB{GROUP_ID_BYTES}s{KEY_ID_BYTES}sQIIIIIHH")
_EXTENSION = struct.Struct(">HH")
_DOMAIN = b"bristle manifest\x00"
_LARGEST = 2**32 - 1
_SEQUENCE_AT = 4 + GROUP_ID_BYTES + KEY_ID_BYTES


@dataclass(frozen=True)
class ManifestExtension:
    """A typed value under the manifest's signature. Types that a receiver does not know are skipped."""

    type: int
    value: bytes


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a head by its sender.

    Parameters
    ----------
    group, sender : bytes
        The group's id, the sender's key id.
    sequence : int
        Sequence number, larger for every new head of a sender.
    iteration : int
        The sender's iteration, as it states.
    classes, features : int
        The head's shape.
    body : int
        Size of the body in bytes, after compression.
    digests : tuple of bytes
        Digests of the body's chunks.
    extensions : tuple of ManifestExtension
        Claims, and whatever later versions add.
    """

    group: bytes
    sender: bytes
    sequence: int
    iteration: int
    classes: int
    features: int
    body: int
    digests: tuple[bytes, ...]
    extensions: tuple[ManifestExtension, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """The head's shape."""
        return self.classes, self.features

    def claims(self) -> NDArray[np.bool_] | None:
        """Return the classes that the sender says it trains and tests itself; None if it does not say."""
        for extension in self.extensions:
            if extension.type == CLAIMS:
                bits = np.frombuffer(extension.value, np.uint8)
                return np.unpackbits(bits, count=self.classes, bitorder="little").astype(np.bool_)
        return None

    def matches(self, head: GridHead) -> bool:
        """Return whether a head matches the signed digests."""
        content = head.content()
        return len(content) == self.body and digests_of(content) == self.digests


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
    for name, value in (("iteration", manifest.iteration), ("body", manifest.body)):
        if not 0 <= value <= _LARGEST:
            raise ValueError(f"{name} must be from 0 to {_LARGEST}, not {value}")
    content = (
        _FIELDS.pack(
            VERSION,
            4,
            0,
            0,
            manifest.group,
            manifest.sender,
            manifest.sequence,
            manifest.iteration,
            manifest.classes,
            manifest.features,
            manifest.body,
            chunk_bytes(manifest.body),
            len(manifest.digests),
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
    version, code, compression, reserved, group_id, sender, *numbers = _FIELDS.unpack_from(data)
    sequence, iteration, classes, features, body, chunk, chunks, extended = numbers
    if version != VERSION:
        return Refusal.VERSION
    if group_id != group.id:
        return Refusal.WRONG_GROUP
    if code != 4 or compression or reserved:
        return Refusal.MALFORMED
    if (classes, features) != group.shape:
        return Refusal.WRONG_SHAPE
    if body != content_bytes(*group.shape):
        return Refusal.OVERSIZE
    if not 1 <= chunks <= MOST_CHUNKS or chunk != chunk_bytes(body) or chunks != chunk_count(body):
        return Refusal.MALFORMED
    after_digests = _FIELDS.size + chunks * DIGEST
    if len(data) != after_digests + extended + SIGNATURE_BYTES:
        return Refusal.MALFORMED
    extensions = _decode_extensions(data[after_digests : after_digests + extended], classes)
    if isinstance(extensions, Refusal):
        return extensions
    return Manifest(
        group=group_id,
        sender=sender,
        sequence=sequence,
        iteration=iteration,
        classes=classes,
        features=features,
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


def is_signed(data: bytes, manifest: Manifest, key: bytes) -> bool:
    """Return whether a manifest was signed with a public key that is its sender's."""
    content, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    return key_id_of(key) == manifest.sender and verify(key, signature, _DOMAIN + content)
