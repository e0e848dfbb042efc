"""Networks to test on: one of virtual time, and a UDP relay that spoils real ones."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bristle.commands.demo.relay import ImpairedLine, Impairment, bound_socket
from bristle.p2p import Limits, Overlay
from bristle.p2p.members.roster import Roster
from bristle.p2p.node import Node
from bristle.wire import Group, Identity
from bristle.wire.messages import Address

Matrix = NDArray[np.float32]


ROUGH = Impairment(loss=0.2, duplication=0.1, delay=0.05, jitter=0.02)


class VirtualNetwork:
    """Nodes that talk through an impaired network in virtual time: the same seed, the same run."""

    def __init__(self, seed: int, impairment: Impairment) -> None:
        self.rng = random.Random(seed)
        self.impairment = impairment
        self.now = 1000.0
        self.nodes: dict[Address, Node] = {}
        self.silenced: set[Address] = set()
        self.traffic: list[tuple[Address, Address, bytes]] = []
        self.sent_bytes = 0
        self._ticks: dict[Address, float] = {}
        self._events: list[tuple[float, int, Address, Address, bytes]] = []
        self._order = itertools.count()

    def add(
        self,
        group: Group,
        *,
        identity: Identity | None = None,
        limits: Limits | None = None,
        host: str = "127.0.0.1",
        port: int,
        roster: Roster | None = None,
        probe: Matrix | None = None,
        slow: float = 0.0,
    ) -> Node:
        """Add a node; its clock is `slow` seconds behind."""
        address = (host, port)
        node = Node(
            identity=identity or Identity.generate(),
            group=group,
            limits=limits or Limits(loopback_datagram=1232),
            send=lambda to, datagram: self.send(address, to, datagram),
            send_near=lambda to, datagram: self.send_near(address, to, datagram),
            sequence=int((self.now - slow) * 1000),
            roster=roster,
            probe=probe,
            rng=random.Random(self.rng.random()),
        )
        self.nodes[address] = node
        self._ticks[address] = self.now
        return node

    def remove(self, address: Address) -> None:
        """Let a node vanish without a word."""
        del self.nodes[address], self._ticks[address]

    def send(self, source: Address, to: Address, datagram: bytes) -> None:
        self.traffic.append((source, to, datagram))
        self.sent_bytes += len(datagram)
        copies = 2 if self.rng.random() < self.impairment.duplication else 1
        for _ in range(copies):
            if self.rng.random() < self.impairment.loss or source in self.silenced or to in self.silenced:
                continue
            at = self.now + self.impairment.delay + self.rng.uniform(0, self.impairment.jitter)
            heapq.heappush(self._events, (at, next(self._order), source, to, datagram))

    def send_near(self, source: Address, to: Address, datagram: bytes) -> None:
        """Lose a datagram that is not to come far."""

    def deliver(self, source: Address, to: Address, datagram: bytes) -> None:
        """Let a datagram arrive."""
        if to in self.nodes:
            self.nodes[to].receive(source, datagram, self.now)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; return whether what was waited for happened."""
        end = self.now + seconds
        while not until():
            tick = min(self._ticks, key=self._ticks.__getitem__)
            at = min(self._ticks[tick], self._events[0][0] if self._events else end)
            if at >= end:
                self.now = end
                return until()
            self.now = max(self.now, at)
            if self._events and self._events[0][0] <= at:
                _, _, source, to, datagram = heapq.heappop(self._events)
                self.deliver(source, to, datagram)
            else:
                self._ticks[tick] = self.nodes[tick].tick(self.now)
                assert self._ticks[tick] > self.now
        return True

    def mesh(self, count: int, group: Group, **options: Any) -> list[Node]:
        """Add nodes that know the first, and wait until all know all."""
        nodes = [self.add(group, port=1 + index, **options) for index in range(count)]
        for node in nodes[1:]:
            node.name(("127.0.0.1", 1), self.now)
        assert self.run(60, lambda: all(len(node.membership.links) == count - 1 for node in nodes))
        self.run(1)
        return nodes


class Relay(ImpairedLine):
    """A bad line between one peer and whoever calls it there.

    To the peer, every caller has an address of its own at the relay, as behind a router.
    """

    def __init__(self, target: Address, impairment: Impairment, seed: int) -> None:
        super().__init__(impairment, seed=seed)
        self.target = target
        self.cut = False
        self._front = bound_socket()
        self._backs: dict[Address, socket.socket] = {}
        self._loop.add_reader(self._front, self._from_callers)

    @property
    def address(self) -> Address:
        host, port = self._front.getsockname()
        return host, port

    def _from_callers(self) -> None:
        datagram, caller = self._front.recvfrom(65_536)
        back = self._backs.get(caller)
        if back is None:
            back = self._backs[caller] = bound_socket()
            self._loop.add_reader(back, self._from_target, back, caller)
        self.forward(datagram, back, None if self.cut else self.target)

    def _from_target(self, back: socket.socket, caller: Address) -> None:
        datagram, _ = back.recvfrom(65_536)
        self.forward(datagram, self._front, None if self.cut else caller)

    def close(self) -> None:
        for each in (self._front, *self._backs.values()):
            self._loop.remove_reader(each)
            each.close()


class RealNetwork:
    """Overlays and relays on loopback that are stopped when a test ends."""

    def __init__(self) -> None:
        self.overlays: list[Overlay] = []
        self.relays: list[Relay] = []

    async def peer(self, group: Group, **options: Any) -> Overlay:
        options.setdefault("identity", Identity.generate())
        overlay = Overlay(group=group, **options)
        await overlay.start()
        self.overlays.append(overlay)
        return overlay

    def relay(self, target: Address, impairment: Impairment = ROUGH, seed: int = 0) -> Relay:
        relay = Relay(target, impairment, seed)
        self.relays.append(relay)
        return relay

    async def close(self) -> None:
        for overlay in self.overlays:
            await overlay.stop()
        for relay in self.relays:
            relay.close()


async def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until something holds, however slow the machine is."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def on_network() -> Callable[[Callable[[RealNetwork], Awaitable[None]]], None]:
    """Run a coroutine function on a real network, and clean up behind it."""

    def run(scenario: Callable[[RealNetwork], Awaitable[None]]) -> None:
        async def whole() -> None:
            network = RealNetwork()
            try:
                await scenario(network)
            finally:
                await network.close()

        asyncio.run(whole())

    return run


@pytest.fixture
def wait() -> Callable[..., Coroutine[Any, Any, None]]:
    return eventually


@pytest.fixture
def virtual() -> Callable[..., VirtualNetwork]:
    """Return a network of virtual time: virtual(seed, loss=..., ...)."""

    def make(seed: int = 0, **impairment: float) -> VirtualNetwork:
        return VirtualNetwork(seed, Impairment(**{"delay": 0.001, **impairment}))

    return make


@pytest.fixture
def rough() -> dict[str, float]:
    """A network with 20 % loss, 50 ms of delay, reordering and duplication."""
    return dict(vars(ROUGH))


@pytest.fixture(scope="session")
def group() -> Group:
    return Group(application="test", backbone="backbone", classes=tuple("0123456789"), features=80)


@pytest.fixture(scope="session")
def large() -> Group:
    """A group whose heads have the size of the paper's: 32 KB."""
    return Group(application="test", backbone="backbone", classes=tuple("0123456789"), features=800)


@pytest.fixture
def head_of() -> Callable[..., Matrix]:
    """Return a head for a group."""

    def make(group: Group, seed: int = 0) -> Matrix:
        return np.random.default_rng(seed).normal(0, 0.05, group.shape).astype(np.float32)

    return make
