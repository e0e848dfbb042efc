"""Sizes on the wire, by arithmetic: used by the network itself, and by the simulator to count bytes.

`docs/wire-format.md` describes the bytes.
"""

from __future__ import annotations

from typing import Literal

Encoding = Literal["float32", "float16", "grid", "int8"]

DATAGRAM = 1232
"""Largest UDP payload that fits through every path that carries IPv6 (1280 bytes less IPv6 and UDP headers)."""

LARGEST_DATAGRAM = 8192
"""Largest UDP payload that is sent on loopback, and accepted from anywhere."""

SEAL = 29
"""Around every sealed message: kind 1, session 4, nonce 8, tag 16."""

PIECE_HEADER = 15
"""Before a piece's bytes: kind 1, sequence 8, order 4, index 2."""

ENVELOPE = 21
"""Before a manifest: kind 1, order 4, size of a piece 2, base 8, size of what is sent 4, size of the manifest 2."""

MANIFEST = 152
"""A manifest without digests and extensions: fields 88, signature 64."""

DIGEST = 16
"""Of a chunk."""

SMALLEST_CHUNK = 4096
MOST_CHUNKS = 16

EXTENSION_HEADER = 4
"""Before an extension's value: type 2, length 2."""

ACKNOWLEDGEMENT = 15
"""One without a bitmap, as all are when nothing is lost or reordered: kind 1, sequence 8, newest 4, base 2."""

FORWARDING = SEAL + 5
"""Around every datagram that a common neighbour forwards: its seal, kind 1, circuit 4."""

ACKNOWLEDGE_EVERY = 16
"""Units (manifest and pieces) per acknowledgement; the last unit always gets one."""

VALUE_BYTES: dict[Encoding, int] = {"float32": 4, "float16": 2, "int8": 1}
COUNT_BYTES = 4
EXPONENT_BYTES = 1


def grid_bytes(classes: int, features: int) -> int:
    """Return the size of a head as it is signed: C exponents of a byte and C D numbers of two, C + 2 C D."""
    return classes + 2 * classes * features


def raw_statement_bytes(classes: int, features: int, *, present: int, rank: int, encoding: Encoding = "float16") -> int:
    """Return the size of a statement before compression: 4 C + (P + R + 1) (1 + bytes per value times D).

    P classes have a count; the factors have rank R.
    """
    return COUNT_BYTES * classes + (present + rank + 1) * (EXPONENT_BYTES + VALUE_BYTES[encoding] * features)


def chunk_bytes(body: int) -> int:
    """Return the chunk size of a body for its digests: 4096 bytes, or a 16th of the body if that is larger."""
    return max(SMALLEST_CHUNK, -(-body // MOST_CHUNKS))


def chunk_count(body: int) -> int:
    """Return the number of chunks of a body."""
    return -(-body // chunk_bytes(body))


def piece_bytes(datagram: int = DATAGRAM) -> int:
    """Return the bytes of a body per datagram."""
    return datagram - SEAL - PIECE_HEADER


def manifest_bytes(body: int, extensions: int = 0) -> int:
    """Return the size of the manifest of a body, given the size of its extensions with their headers."""
    return MANIFEST + DIGEST * chunk_count(body) + extensions


def claims_bytes(classes: int) -> int:
    """Return the size of the extension that carries claims: its header and a bit for each class."""
    return EXTENSION_HEADER + -(-classes // 8)


def head_bytes(
    classes: int,
    features: int,
    *,
    body: int | None = None,
    claims: bool = False,
    datagram: int = DATAGRAM,
) -> int:
    """Return the UDP payload, in both directions, of one head sent to one peer over a path that loses nothing.

    body + 44 p + manifest + 50 + 44 a, for p pieces of what has no room beside the manifest, and a = ⌈(p + 1) / 16⌉
    acknowledgements.

    Parameters
    ----------
    classes, features : int
        The head's shape.
    body : int, optional
        Size of what is sent of it; 4 C D by default, numbers of 32 bits.
    claims : bool
        Whether the sender adds its claims.
    datagram : int
        Largest UDP payload on the path.
    """
    size = 4 * classes * features if body is None else body
    manifest = manifest_bytes(grid_bytes(classes, features), claims_bytes(classes) if claims else 0)
    beside = datagram - SEAL - ENVELOPE - manifest
    pieces = -(-max(0, size - beside) // piece_bytes(datagram))
    acknowledgements = -(-(pieces + 1) // ACKNOWLEDGE_EVERY)
    return (
        size + pieces * (SEAL + PIECE_HEADER) + manifest + SEAL + ENVELOPE + acknowledgements * (SEAL + ACKNOWLEDGEMENT)
    )
