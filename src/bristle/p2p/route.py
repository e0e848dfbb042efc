"""How a peer is reached: at an address, or through a neighbour that forwards. No sockets, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bristle.wire.messages import Address, Scope, is_contact, may_hand_on, scope_of

Reached = Literal["directly", "locally", "forwarded"]


@dataclass(frozen=True)
class Via:
    """A path through a common neighbour that forwards sealed datagrams, which it cannot read.

    Two paths are the same if forwarder and peer are: the forwarder may move, or number its circuits anew.

    Parameters
    ----------
    forwarder, peer : bytes
        Key ids of the neighbour that forwards, and of the peer at the other end.
    circuit : bytes
        The forwarder's number for the pair.
    address : (str, int)
        The forwarder's address. Budgets of its network bound what comes this way.
    """

    forwarder: bytes
    peer: bytes
    circuit: bytes = field(compare=False)
    address: Address = field(compare=False)


Route = Address | Via


def next_hop(route: Route) -> Address:
    """Return the address that datagrams of a route go to and come from."""
    return route.address if isinstance(route, Via) else route


def place_of(route: Route) -> tuple[str, int] | tuple[bytes, bytes]:
    """Return the place that a cookie proves reachability at: an address, or a peer behind a forwarder."""
    return (route.forwarder, route.peer) if isinstance(route, Via) else route


def may_tell(address: Address, route: Route) -> bool:
    """Return whether an address may be passed on to, or taken from, a neighbour that is reached by a route.

    Where a forwarded neighbour is, is not known: to it only public addresses mean something.
    """
    if isinstance(route, Via):
        return (
            is_contact(address)
            and scope_of(address) is Scope.WORLD
            and (":" in address[0]) == (":" in route.address[0])
        )
    return may_hand_on(address, route)


def reached(route: Route) -> Reached:
    """Return in a word how a peer is reached: `locally` is on this machine or behind the same router."""
    if isinstance(route, Via):
        return "forwarded"
    return "directly" if scope_of(route) is Scope.WORLD else "locally"
