"""The wire format as pure functions: bytes in, values out. No sockets, no clock, no state."""

from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.refusal import Refusal

__all__ = ["Group", "Identity", "Refusal"]
