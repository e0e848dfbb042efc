"""Addresses: where a peer listens, as bytes and as something fit to be contacted."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

Address = tuple[str, int]

_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")
_FAMILIES = {4: 4, 6: 16}


@lru_cache(maxsize=4096)
def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(host)


def is_loopback(address: Address) -> bool:
    """Tell whether an address is on this machine."""
    return _ip(address[0]).is_loopback


@lru_cache(maxsize=4096)
def _network(host: str) -> str:
    ip = _ip(host)
    return str(ipaddress.ip_network((ip, 24 if ip.version == 4 else 64), strict=False))


def network_of(address: Address) -> str:
    """Return the part of the network that an address is in: what whoever has one of its addresses may well have all of.

    That is 256 addresses of IPv4, and as many as one link has of IPv6.
    """
    return _network(address[0])


def may_hand_on(address: Address, to: Address) -> bool:
    """Tell whether an address means the same to a neighbour: addresses of this machine mean nothing to another one.

    Also what a neighbour at `to` may hand on to us: nobody outside gets us to contact a service of this machine.
    """
    ip = _ip(address[0])
    if address[1] == 0 or ip.is_multicast or ip.is_unspecified or ip == _EVERYBODY:
        return False
    return (not ip.is_loopback or is_loopback(to)) and ip.version == _ip(to[0]).version


def encode_address(address: Address) -> bytes:
    """Return family (1 byte: 4 or 6), IP address (4 or 16), port (2)."""
    ip = _ip(address[0])
    return bytes([ip.version]) + ip.packed + address[1].to_bytes(2, "big")


def decode_address(data: bytes, at: int) -> tuple[Address, int] | None:
    """Return the address at a place in bytes, and where it ends; None if there is none."""
    length = _FAMILIES.get(data[at]) if at < len(data) else None
    if length is None or at + 3 + length > len(data):
        return None
    packed = data[at + 1 : at + 1 + length]
    port = int.from_bytes(data[at + 1 + length : at + 3 + length], "big")
    return (str(ipaddress.ip_address(packed)), port), at + 3 + length
