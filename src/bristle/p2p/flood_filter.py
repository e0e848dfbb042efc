"""A filter in the kernel (Linux): under a flood, most of it is dropped before this process is ever woken.

A classic BPF program on the socket lets through what is sealed for a session of ours, handshakes from hosts that we
know, and handshakes from a sixteenth of all other addresses, another one each time the shield is raised: newcomers
wait for their turn, and a flood gets through for as little. Nothing here needs a privilege. Where there is no such
filter, everything is refused in this process instead, at a higher price.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from bristle.wire.session import SEALED

_ATTACH_FILTER, _DETACH_FILTER, _MEMINFO = 26, 27, 55
_MEMINFO_FIELDS = struct.Struct("=9I")
_MOST_INSTRUCTIONS = 4096
_INSTRUCTION = struct.Struct("=HBBI")
_LOAD_BYTE, _LOAD_HALF, _LOAD_WORD = 0x30, 0x28, 0x20
_IF_EQUAL, _JUMP, _RETURN = 0x15, 0x05, 0x06
_XOR, _MULTIPLY, _SHIFT_RIGHT = 0xA4, 0x24, 0x74
_PAYLOAD = 8
"""Where it begins: before it is the UDP header."""

_NETWORK = 0xFFF00000
"""The IP header, to the filter."""

_SOURCE = 12
"""Where four bytes of the source are in the IP header: all of IPv4's, and of IPv6's the end of its network's part."""

_ALL, _SPREAD, _SLICES_SHIFT = 0xFFFFFFFF, 0x9E3779B1, 28


@dataclass(frozen=True)
class Welcomed:
    """What passes the shield.

    Parameters
    ----------
    prefix : bytes
        That handshakes of the group begin with.
    sessions : tuple of bytes
        Ids of those that are open.
    hosts : tuple of str
        IP addresses that we know.
    """

    prefix: bytes
    sessions: tuple[bytes, ...]
    hosts: tuple[str, ...]


class Shield:
    """The filter of one socket.

    Parameters
    ----------
    guarded : socket
        A UDP socket.
    """

    def __init__(self, guarded: socket.socket) -> None:
        self._socket = guarded
        self._dropped = 0

    def raise_for(self, welcomed: Welcomed, *, salt: int) -> bool:
        """Let only some things through from now on; False: there is no way to do that here."""
        instructions = _program(welcomed, self._socket.family, salt)
        if len(instructions) > _MOST_INSTRUCTIONS:
            return False
        code = array("B", b"".join(_INSTRUCTION.pack(*one) for one in instructions))
        try:
            self._socket.setsockopt(
                socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(instructions), code.buffer_info()[0])
            )
        except (OSError, OverflowError):
            return False
        return True

    def lower(self) -> None:
        """Let everything through again, if something was held back."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def dropped(self) -> int:
        """Return how many datagrams the kernel has dropped since the last time, as far as it tells."""
        try:
            fields = _MEMINFO_FIELDS.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _MEMINFO, _MEMINFO_FIELDS.size))
        except (OSError, struct.error):
            return 0
        before, self._dropped = self._dropped, fields[-1]
        return (self._dropped - before) & _ALL


def _program(welcomed: Welcomed, family: int, salt: int) -> list[tuple[int, int, int, int]]:
    """Return the filter: code, jump if true, jump if false, constant. A read beyond the datagram's end drops it."""
    drop, accept = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, _ALL)
    handshake = []
    for at, load, size in [(at, _LOAD_WORD, 4) for at in range(0, 20, 4)] + [(20, _LOAD_HALF, 2)]:
        wanted = int.from_bytes(welcomed.prefix[at : at + size], "big")
        handshake += [(load, 0, 0, _PAYLOAD + at), (_IF_EQUAL, 1, 0, wanted), drop]
    handshake += [(_LOAD_WORD, 0, 0, _NETWORK + _SOURCE)]
    for host in sorted(set(_words(welcomed.hosts, family))):
        handshake += [(_IF_EQUAL, 0, 1, host), accept]
    handshake += [(_XOR, 0, 0, salt & _ALL), (_MULTIPLY, 0, 0, _SPREAD), (_SHIFT_RIGHT, 0, 0, _SLICES_SHIFT)]
    handshake += [(_IF_EQUAL, 0, 1, 0), accept, drop]
    sealed = [(_LOAD_WORD, 0, 0, _PAYLOAD + 1)]
    for session in welcomed.sessions:
        sealed += [(_IF_EQUAL, 0, 1, int.from_bytes(session, "big")), accept]
    start = [(_LOAD_BYTE, 0, 0, _PAYLOAD), (_IF_EQUAL, 0, 1, SEALED), (_JUMP, 0, 0, len(handshake))]
    return [*start, *handshake, *sealed, drop]


def _words(hosts: Iterable[str], family: int) -> Iterable[int]:
    for host in hosts:
        packed = ipaddress.ip_address(host).packed
        if (len(packed) == 4) == (family == socket.AF_INET):
            yield int.from_bytes(packed if len(packed) == 4 else packed[4:8], "big")
