"""The relay between real peers."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

from bristle.commands.demo.relay import Address, Impairment, Relay


def bound() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.bind(("127.0.0.1", 0))
    return made


def received(by: socket.socket) -> list[tuple[bytes, Address]]:
    found = []
    while True:
        try:
            found.append(by.recvfrom(100))
        except BlockingIOError:
            return found


async def introduced(relay: Relay, *sockets: socket.socket) -> None:
    """Let the relay hear from everybody."""
    for place, each in enumerate(sockets):
        for address in relay.known(place):
            each.sendto(b"hello", address)
    await asyncio.sleep(0.05)
    for each in sockets:
        received(each)


def test_both_ways_go_through_one_address_each() -> None:
    async def run() -> None:
        relay = Relay(3, Impairment())
        a, b, c = bound(), bound(), bound()
        await introduced(relay, a, b, c)
        to_b, to_c = relay.known(0)
        a.sendto(b"from a", to_b)
        await asyncio.sleep(0.05)
        (datagram, source), *more = received(b)
        assert (datagram, source, more) == (b"from a", relay.known(1)[0], [])
        b.sendto(b"back", source)
        await asyncio.sleep(0.05)
        assert received(a) == [(b"back", to_b)]
        c.sendto(b"this address is meant for a", to_c)
        c.sendto(b"and so is this", to_b)
        await asyncio.sleep(0.05)
        assert not received(a) + received(b) + received(c)
        relay.close()
        for each in (a, b, c):
            each.close()

    asyncio.run(run())


def test_loss_duplication_and_order() -> None:
    async def run() -> None:
        relay = Relay(2, Impairment())
        a, b = bound(), bound()
        await introduced(relay, a, b)
        relay.impairment = Impairment(loss=0.2, duplication=0.1, delay=0.01, jitter=0.05)
        heard: list[int] = []
        for number in range(2000):
            a.sendto(str(number).encode(), relay.known(0)[0])
            if number % 20 == 0:
                await asyncio.sleep(0.001)
                heard += [int(datagram) for datagram, _ in received(b)]
        await asyncio.sleep(0.3)
        heard += [int(datagram) for datagram, _ in received(b)]
        relay.close()
        counts = Counter(heard)
        # 1 - 0.2 of those sent once, and 1 - 0.2 squared of those sent twice.
        assert 0.76 < len(counts) / 2000 < 0.86
        assert 80 < sum(count > 1 for count in counts.values()) < 180
        assert heard != sorted(heard)
        a.close()
        b.close()

    asyncio.run(run())


def test_a_partition_heals() -> None:
    async def run() -> None:
        relay = Relay(3, Impairment())
        a, b, c = bound(), bound(), bound()
        await introduced(relay, a, b, c)
        to_b, to_c = relay.known(0)
        for sides, expected in (([[0, 1], [2]], (1, 0)), ([], (1, 1)), ([[0], [1, 2]], (0, 0))):
            relay.cut(*sides)
            a.sendto(b"x", to_b)
            a.sendto(b"x", to_c)
            await asyncio.sleep(0.05)
            assert (len(received(b)), len(received(c))) == expected
        relay.close()
        for each in (a, b, c):
            each.close()

    asyncio.run(run())
