"""Kinds of bodies: what a peer signs, and sends in pieces."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a body is; the value is its code in messages and manifests.

    Each kind is a transfer of its own: a new body replaces an older one of the same kind, and of no other.
    """

    HEAD = 0
    STATEMENT = 1
