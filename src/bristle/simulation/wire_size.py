"""How many bytes a head takes on the wire: the one place that says so."""

from __future__ import annotations

PAYLOAD = 1_200
"""Bytes of a head in one datagram."""

OVERHEAD = 60
"""Bytes around them: what tells a datagram's place in the transfer, and its share of manifest and acknowledgement."""


def head_bytes(classes: int, features: int) -> int:
    """Return the UDP payload of one head sent to one peer: 4 C D + 60 ⌈4 C D / 1200⌉ bytes.

    The parameters go as 32-bit floats in datagrams of at most `PAYLOAD` bytes, each with `OVERHEAD` bytes around it.
    """
    size = 4 * classes * features
    return size + OVERHEAD * -(-size // PAYLOAD)
