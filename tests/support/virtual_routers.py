"""Routers in virtual time: they hide peers behind a public address, and let in only what those have called."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from bristle.commands.demo.relay import Impairment
from bristle.p2p import Limits
from bristle.p2p.node import Node
from bristle.p2p.route import reached
from bristle.wire import Group
from bristle.wire.messages import Address
from tests.support.network import VirtualNetwork

REMEMBERS = 30.0
"""Seconds after which a router forgets an unused mapping."""

PORT = 7700


class VirtualRouter:
    """A router as Linux is one.

    Parameters
    ----------
    network : RoutedNetwork
        Has the time.
    host, site : str
        Its public address, and the first three numbers of the addresses behind it.
    random_ports : bool
        Whether it takes a random port for every destination, instead of keeping the port where that is free.
    drops_new : bool
        Whether it drops what nobody has called. Else it takes note of it, as of a call of its own, and does not use the
        same two ends for anybody behind it.
    isolates : bool
        Whether machines behind it cannot reach each other.
    """

    def __init__(
        self,
        network: RoutedNetwork,
        host: str,
        site: str,
        *,
        random_ports: bool = False,
        drops_new: bool = True,
        isolates: bool = False,
    ) -> None:
        self.network, self.host, self.site = network, host, site
        self.random_ports, self.drops_new, self.isolates = random_ports, drops_new, isolates
        self._hosts = itertools.count(2)
        self._rng = random.Random(host)
        self._ports: dict[tuple[Address, Address], int] = {}
        self._inside: dict[tuple[int, Address], Address | None] = {}
        self._used: dict[tuple[int, Address], float] = {}

    def next_address(self) -> Address:
        """Return the address of another machine behind it."""
        return f"{self.site}.{next(self._hosts)}", PORT

    def outward(self, source: Address, to: Address) -> Address:
        """Return as whom a machine behind it appears to a destination."""
        self._forget()
        port = self._ports.get((source, to))
        if port is None:
            port = self._rng.randrange(20_000, 60_000) if self.random_ports else source[1]
            while (port, to) in self._inside:
                port = self._rng.randrange(1024, 60_000)
            self._ports[source, to], self._inside[port, to] = port, source
        self._used[port, to] = self.network.now
        return self.host, port

    def inward(self, source: Address, port: int) -> Address | None:
        """Return who behind it gets what comes from a source; None if nobody."""
        self._forget()
        if (port, source) in self._inside:
            self._used[port, source] = self.network.now
        elif not self.drops_new:
            self._inside[port, source], self._used[port, source] = None, self.network.now
        return self._inside.get((port, source))

    def _forget(self) -> None:
        for port, remote in [key for key, used in self._used.items() if self.network.now - used > REMEMBERS]:
            inside = self._inside.pop((port, remote))
            del self._used[port, remote]
            if inside is not None:
                del self._ports[inside, remote]


class RoutedNetwork(VirtualNetwork):
    """A network of virtual time in which some nodes are behind routers."""

    def __init__(self, seed: int, impairment: Impairment) -> None:
        super().__init__(seed, impairment)
        self.routers: dict[str, VirtualRouter] = {}
        self._hosts = itertools.count(1)
        self.behind: dict[Address, VirtualRouter] = {}

    def public(self, group: Group, **options: Any) -> Node:
        """Add a node with a public address."""
        options.setdefault("limits", Limits())
        return self.add(group, host=f"198.51.100.{next(self._hosts)}", port=PORT, **options)

    def router(self, **options: Any) -> VirtualRouter:
        """Add a router."""
        number = next(self._hosts)
        router = VirtualRouter(self, f"198.51.100.{number}", f"192.168.{number}", **options)
        self.routers[router.host] = router
        return router

    def hidden(self, group: Group, router: VirtualRouter, **options: Any) -> Node:
        """Add a node behind a router."""
        options.setdefault("limits", Limits())
        host, port = router.next_address()
        self.behind[host, port] = router
        node = self.add(group, host=host, port=port, **options)
        node.membership.meetings.local = ((host, port),)
        return node

    def send(self, source: Address, to: Address, datagram: bytes) -> None:
        here, there = self.behind.get(source), self.behind.get(to)
        if there is not None and (there is not here or there.isolates):
            return  # A private address of another site, or of a machine that one is kept from.
        if there is None and here is not None:
            if to[0] == here.host:
                return  # It does not turn back what is meant for somebody behind it.
            source = here.outward(source, to)
        super().send(source, to, datagram)

    def send_near(self, source: Address, to: Address, datagram: bytes) -> None:
        here = self.behind.get(source)
        if self.behind.get(to) is here:
            self.send(source, to, datagram)
        elif here is not None and to not in self.behind and to[0] != here.host:
            here.outward(source, to)

    def deliver(self, source: Address, to: Address, datagram: bytes) -> None:
        router = self.routers.get(to[0])
        inside = to if router is None else router.inward(source, to[1])
        if inside is not None:
            super().deliver(source, inside, datagram)

    def address_of(self, node: Node) -> Address:
        """Return where a node listens."""
        return next(address for address, one in self.nodes.items() if one is node)

    def way(self, one: Node, other: Node) -> str | None:
        """Return in a word how a node reaches another one; None if it does not."""
        link = one.membership.links.get(other.membership.identity.key_id)
        return None if link is None else reached(link.address)

    def exchange(self, nodes: list[Node], seconds: float, head: Callable[[int], Any]) -> list[set[bytes]]:
        """Let nodes share a head every second; return whose heads each of them has received."""
        heard: list[set[bytes]] = [set() for _ in nodes]
        for second in range(int(seconds)):
            for node in nodes:
                node.share(head(second), iteration=second + 1, now=self.now)
            self.run(1)
            for node, senders in zip(nodes, heard, strict=True):
                senders |= {received.sender for received in node.take()}
        return heard


@pytest.fixture
def routed() -> Callable[..., RoutedNetwork]:
    """Return a network of virtual time with routers: routed(seed, delay=..., ...)."""

    def make(seed: int = 0, **impairment: float) -> RoutedNetwork:
        return RoutedNetwork(seed, Impairment(**{"delay": 0.02, **impairment}))

    return make
