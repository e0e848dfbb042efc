"""The relay between real peers."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from typing import Any

from bristle.commands.demo.relay import Impairment, Relay, bound_socket
from bristle.wire.messages import Address

Wait = Callable[..., Any]
Test = Callable[..., Awaitable[None]]


def received(by: socket.socket) -> list[tuple[bytes, Address]]:
    found = []
    while True:
        try:
            found.append(by.recvfrom(100))
        except BlockingIOError:
            return found


def on_relay(members: int, test: Test, wait: Wait) -> None:
    """Run a test with a relay that has heard from every socket, and close all of them whatever happens."""

    async def run() -> None:
        with ExitStack() as exits:
            relay = exits.enter_context(closing(Relay(members, Impairment())))
            sockets = [exits.enter_context(bound_socket()) for _ in range(members)]
            for place, each in enumerate(sockets):
                for address in relay.known(place):
                    each.sendto(b"hello", address)
            await wait(lambda: relay.relayed == members * (members - 1))
            for each in sockets:
                received(each)
            await test(relay, *sockets)

    asyncio.run(run())


async def next_of(wait: Wait, by: socket.socket) -> tuple[bytes, Address]:
    """Return the next datagram, which must be the only one."""
    found: list[tuple[bytes, Address]] = []

    def came() -> bool:
        found.extend(received(by))
        return bool(found)

    await wait(came)
    (only,) = found
    return only


def test_both_ways_go_through_one_address_each(wait: Wait) -> None:
    async def test(relay: Relay, a: socket.socket, b: socket.socket, c: socket.socket) -> None:
        to_b, to_c = relay.known(0)
        a.sendto(b"from a", to_b)
        assert await next_of(wait, b) == (b"from a", relay.known(1)[0])
        b.sendto(b"back", relay.known(1)[0])
        assert await next_of(wait, a) == (b"back", to_b)
        before = relay.relayed
        c.sendto(b"this address is meant for a", to_c)
        c.sendto(b"and so is this", to_b)
        a.sendto(b"marker", to_b)  # What was sent to the same socket before it has been read when this arrives.
        a.sendto(b"marker", to_c)
        assert (await next_of(wait, b))[0] == b"marker"
        assert (await next_of(wait, c))[0] == b"marker"
        assert relay.relayed == before + 2
        assert not received(a)

    on_relay(3, test, wait)


def test_loss_duplication_and_order(wait: Wait) -> None:
    count = 2000

    async def test(relay: Relay, a: socket.socket, b: socket.socket) -> None:
        relay.impairment = Impairment(loss=0.2, duplication=0.1, delay=0.001, jitter=0.02)
        begun, heard = relay.relayed, list[int]()
        before = relay.delivered

        def relayed(wanted: int) -> bool:
            heard.extend(int(datagram) for datagram, _ in received(b))
            return relay.relayed - begun == wanted

        for number in range(count):
            a.sendto(str(number).encode(), relay.known(0)[0])
            if number % 20 == 19:  # No more on their way than every buffer holds, however slow the machine is.
                await wait(lambda wanted=number + 1: relayed(wanted))
        await wait(lambda: relayed(count) and not relay.delayed and len(heard) == relay.delivered - before)
        counts = Counter(heard)
        # 1 - 0.2 of those sent once, and 1 - 0.2 squared of those sent twice: drawn with a fixed seed.
        assert 0.76 < len(counts) / count < 0.86
        assert 80 < sum(times > 1 for times in counts.values()) < 180
        assert heard != sorted(heard)

    on_relay(2, test, wait)


def test_a_partition_heals(wait: Wait) -> None:
    async def test(relay: Relay, a: socket.socket, b: socket.socket, c: socket.socket) -> None:
        to_b, to_c = relay.known(0)
        for sides, passes in (([[0, 1], [2]], (1, 0)), ([], (1, 1)), ([[0], [1, 2]], (0, 0))):
            relay.cut(*sides)
            before = relay.relayed, relay.delivered
            a.sendto(b"x", to_b)
            a.sendto(b"x", to_c)
            await wait(lambda before=before: relay.relayed == before[0] + 2)
            assert relay.delivered - before[1] == sum(passes)
            # What was delivered on loopback can be read at once.
            assert (len(received(b)), len(received(c))) == passes

    on_relay(3, test, wait)
