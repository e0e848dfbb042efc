"""A socket filter (Linux) that drops most of a flood in the kernel, before this process is woken.

A classic BPF program on the socket accepts datagrams sealed for an open session, handshakes from known hosts, and
handshakes from one sixteenth of all other addresses; another sixteenth each time it is enabled, so that newcomers get
their turn. It needs no privilege. On other systems, everything is refused in this process, at a higher cost.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
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
"""Offset of the payload, after the UDP header."""

_NETWORK = 0xFFF00000
"""Offset at which the filter sees the IP header."""

_SOURCE = 12
"""Offset of four source bytes in the IP header: all of an IPv4 address, the end of the IPv6 network prefix."""

_ALL, _SPREAD, _SLICES_SHIFT = 0xFFFFFFFF, 0x9E3779B1, 28


@dataclass(frozen=True)
class AllowedTraffic:
    """What the filter accepts.

    Parameters
    ----------
    prefix : bytes
        First bytes of the group's handshakes.
    sessions : tuple of bytes
        Ids of open sessions.
    hosts : tuple of str
        Known IP addresses.
    """

    prefix: bytes
    sessions: tuple[bytes, ...]
    hosts: tuple[str, ...]


class FloodFilter:
    """The filter of one socket.

    Parameters
    ----------
    guarded : socket
        A UDP socket.
    """

    def __init__(self, guarded: socket.socket) -> None:
        self._socket = guarded
        self._dropped = 0

    def enable(self, allowed: AllowedTraffic, *, salt: int) -> bool:
        """Drop all but the allowed traffic from now on; return False where the system has no such filter."""
        if sys.platform != "linux":  # The numbers of the options are Linux' own.
            return False
        instructions = _program(allowed, self._socket.family, salt)
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

    def disable(self) -> None:
        """Accept everything again."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    def dropped(self) -> int:
        """Return the number of datagrams that the kernel dropped since the last call, if known."""
        try:
            fields = _MEMINFO_FIELDS.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _MEMINFO, _MEMINFO_FIELDS.size))
        except (OSError, struct.error):
            return 0
        before, self._dropped = self._dropped, fields[-1]
        return (self._dropped - before) & _ALL


def _program(allowed: AllowedTraffic, family: int, salt: int) -> list[tuple[int, int, int, int]]:
    """Return the BPF program: opcode, jump if true, jump if false, constant. Reading past its end drops a datagram."""
    drop, accept = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, _ALL)
    handshake = []
    for at, load, size in [(at, _LOAD_WORD, 4) for at in range(0, 20, 4)] + [(20, _LOAD_HALF, 2)]:
        wanted = int.from_bytes(allowed.prefix[at : at + size], "big")
        handshake += [(load, 0, 0, _PAYLOAD + at), (_IF_EQUAL, 1, 0, wanted), drop]
    handshake += [(_LOAD_WORD, 0, 0, _NETWORK + _SOURCE)]
    for host in sorted(set(_words(allowed.hosts, family))):
        handshake += [(_IF_EQUAL, 0, 1, host), accept]
    handshake += [(_XOR, 0, 0, salt & _ALL), (_MULTIPLY, 0, 0, _SPREAD), (_SHIFT_RIGHT, 0, 0, _SLICES_SHIFT)]
    handshake += [(_IF_EQUAL, 0, 1, 0), accept, drop]
    sealed = [(_LOAD_WORD, 0, 0, _PAYLOAD + 1)]
    for session in allowed.sessions:
        sealed += [(_IF_EQUAL, 0, 1, int.from_bytes(session, "big")), accept]
    start = [(_LOAD_BYTE, 0, 0, _PAYLOAD), (_IF_EQUAL, 0, 1, SEALED), (_JUMP, 0, 0, len(handshake))]
    return [*start, *handshake, *sealed, drop]


def _words(hosts: Iterable[str], family: int) -> Iterable[int]:
    for host in hosts:
        packed = ipaddress.ip_address(host).packed
        if (len(packed) == 4) == (family == socket.AF_INET):
            yield int.from_bytes(packed if len(packed) == 4 else packed[4:8], "big")
