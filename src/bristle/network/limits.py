"""How much a peer gives to the network at most: neighbours, memory, bytes and time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bristle.peer.wire_size import DATAGRAM, LARGEST_DATAGRAM

SMALLEST_DATAGRAM = 1200
"""What a manifest and its seal may take."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what strangers can make this peer spend, and on what it sends.

    Parameters
    ----------
    neighbours : int
        Peers that heads are exchanged with at the same time. Peers that the user named come first.
    contacts : int
        Addresses kept in mind that other peers handed on.
    memory : int
        Bytes of heads that are being received, over all neighbours.
    send_rate, receive_rate : float
        Bytes a second, over all neighbours.
    sender_rate : float
        Bytes a second that one neighbour may send. Every datagram counts as 1000 bytes at least.
    manifest_rate : float
        Manifests a second, each of which costs a signature check, from one neighbour; from all together, sixteen times
        as many, half of which are shared out evenly, so that every neighbour has some.
    handshake_rate : float
        Handshake datagrams a second that one source address may cost us, and, in the long run, joins of all together.
    nuisance_rate : float
        Messages a second that one neighbour may send for nothing: what nobody asked for, or what is here already.
        Those who send many more are let go, and kept out for a minute.
    datagram, loopback_datagram : int
        Largest UDP payload. The first fits through every path that carries IPv6; loopback has no such limits.
    keepalive, silence : float
        Seconds between signs of life, and without one after which a neighbour is dropped.
    patience : float
        Seconds after which an unacknowledged head is given up.
    retry, longest_retry : float
        Seconds until a silent address is tried again: the first time, doubling up to the longest.
    """

    neighbours: int = 32
    contacts: int = 256
    memory: int = 64 * 2**20
    send_rate: float = 12.5e6
    receive_rate: float = 20e6
    sender_rate: float = 4e6
    manifest_rate: float = 25.0
    handshake_rate: float = 10.0
    nuisance_rate: float = 20.0
    datagram: int = DATAGRAM
    loopback_datagram: int = LARGEST_DATAGRAM
    keepalive: float = 5.0
    silence: float = 20.0
    patience: float = 5.0
    retry: float = 0.5
    longest_retry: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value: float = vars(self)[field.name]
            if not 0 < value < float("inf"):
                raise ValueError(f"{field.name} must be a positive number, not {value!r}")
        for name, size in (("datagram", self.datagram), ("loopback_datagram", self.loopback_datagram)):
            if not SMALLEST_DATAGRAM <= size <= LARGEST_DATAGRAM:
                raise ValueError(f"{name} must be from {SMALLEST_DATAGRAM} to {LARGEST_DATAGRAM} bytes, not {size}")
        if self.silence <= self.keepalive:
            raise ValueError(f"silence ({self.silence} s) must be longer than keepalive ({self.keepalive} s)")
