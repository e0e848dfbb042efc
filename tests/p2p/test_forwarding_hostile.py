"""Members that abuse introductions and forwarding, in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bristle.p2p import Limits
from bristle.p2p.introducer import MOST_OFFERS
from bristle.p2p.meetings import MOST_CIRCUITS
from bristle.p2p.neighbour import Link
from bristle.p2p.node import Node
from bristle.p2p.route import Via
from bristle.wire import Group, Identity, Refusal
from bristle.wire import messages as wire
from bristle.wire.handshake import Caller, CookieJar
from bristle.wire.messages import Address, CallRequest, Forward, Forwarded, Meet, Peers

if TYPE_CHECKING:
    from tests.support.network import Matrix
    from tests.support.virtual_routers import RoutedNetwork

Networks = Callable[..., "RoutedNetwork"]
Heads = Callable[..., "Matrix"]
RANDOM: dict[str, Any] = {"random_ports": True}
HELLOS = 6
"""Of a call that nobody answers, without the one that comes no further than the next router."""

VICTIM = ("203.0.113.5", 53)


def key_id(node: Node) -> bytes:
    return node.membership.identity.key_id


def link_of(one: Node, other: Node) -> Link:
    return one.membership.links[key_id(other)]


def say(one: Node, other: Node, message: wire.Message) -> None:
    """Send something as a neighbour can that does not keep to the protocol."""
    one.send_message(link_of(one, other), wire.encode(message))


def sent(network: RoutedNetwork, source: Address) -> Counter[Address]:
    """Return the bytes that an address has sent to others."""
    count: Counter[Address] = Counter()
    for begin, to, datagram in network.traffic:
        if begin == source:
            count[to] += len(datagram)
    return count


@pytest.fixture
def three(routed: Networks, group: Group) -> tuple[RoutedNetwork, Node, Node, Node]:
    """Return a forwarder, a liar and an honest peer, all public and neighbours."""
    network = routed()
    forwarder, liar, honest = (network.public(group) for _ in range(3))
    for node in (liar, honest):
        node.name(network.address_of(forwarder), network.now)
    assert network.run(10, lambda: all(len(node.membership.links) == 2 for node in (forwarder, liar, honest)))
    network.run(20)  # Until the circuits that they did not need are forgotten.
    network.traffic.clear()
    return network, forwarder, liar, honest


def test_nothing_is_forwarded_to_anybody_but_neighbours(
    three: tuple[RoutedNetwork, Node, Node, Node], group: Group
) -> None:
    network, forwarder, liar, honest = three
    outsider = network.public(group)
    own = {network.address_of(node) for node in (liar, honest)}
    say(liar, forwarder, Meet(key_id(outsider)))
    say(liar, forwarder, Meet(Identity.generate().key_id))
    say(liar, forwarder, Meet(key_id(liar)))
    say(liar, forwarder, Meet(key_id(forwarder)))
    for number in range(100):
        say(liar, forwarder, Forward(number.to_bytes(4, "big"), bytes(100)))
    network.run(3)
    assert not forwarder.introducer.circuits
    assert not forwarder.counters.bytes_forwarded
    assert set(sent(network, network.address_of(forwarder))) <= own
    # One's own circuit leads to its other end and nowhere else; somebody else's is none.
    say(honest, forwarder, Meet(key_id(liar)))
    network.run(0.1)
    (circuit,) = forwarder.introducer.circuits
    third = network.public(group)
    third.name(network.address_of(forwarder), network.now)
    assert network.run(5, lambda: key_id(third) in forwarder.membership.links)
    say(third, forwarder, Forward(circuit, bytes(100)))
    network.run(0.1)
    assert not forwarder.counters.bytes_forwarded
    assert set(sent(network, network.address_of(forwarder))) <= own | {network.address_of(third)}


def test_a_forwarder_sends_no_more_than_it_gets(three: tuple[RoutedNetwork, Node, Node, Node], head_of: Heads) -> None:
    network, forwarder, liar, honest = three
    network.run(1)
    quiet = sent(network, network.address_of(forwarder)).total()
    network.traffic.clear()
    network.run(1)
    quiet = max(quiet, sent(network, network.address_of(forwarder)).total())
    network.traffic.clear()
    for _ in range(50):
        say(liar, forwarder, Meet(key_id(honest)))
        say(liar, forwarder, Forward(b"none", b"x"))
    network.run(0.1)
    for circuit in forwarder.introducer.circuits:
        for _ in range(200):
            say(liar, forwarder, Forward(circuit, bytes(1000)))
    network.run(0.9)
    got = sent(network, network.address_of(liar))[network.address_of(forwarder)]
    assert forwarder.counters.bytes_forwarded > 50_000
    assert sent(network, network.address_of(forwarder)).total() <= got + quiet


def test_floods_of_requests_are_few_introductions(three: tuple[RoutedNetwork, Node, Node, Node]) -> None:
    network, forwarder, liar, honest = three
    calls = 0
    receive = honest.membership.meetings.on_call

    def count(link: Link, call: CallRequest, now: float) -> float:
        nonlocal calls
        calls += 1
        return receive(link, call, now)

    honest.membership.meetings.on_call = count  # type: ignore[method-assign]
    for _ in range(300):
        for _ in range(10):
            if key_id(forwarder) in liar.membership.links:
                say(liar, forwarder, Meet(key_id(honest)))
        network.run(0.1)
    assert 0 < calls <= 64 + 0.5 * 31
    assert forwarder.counters.refused[Refusal.OVER_BUDGET] > 1000
    assert len(forwarder.introducer.circuits) <= 3


def test_who_lies_about_addresses_has_a_few_small_datagrams_sent_there(
    three: tuple[RoutedNetwork, Node, Node, Node],
) -> None:
    network, _, liar, honest = three
    seconds = 60
    for _ in range(10 * seconds):
        for _ in range(10):
            if key_id(honest) in liar.membership.links:
                say(liar, honest, CallRequest(Identity.generate().key_id, b"abcd", (VICTIM,)))
        network.run(0.1)
    got = [datagram for _, to, datagram in network.traffic if to == VICTIM]
    # A call every five seconds, and two at once; each is a hello of 64 bytes, some times.
    assert 0 < len(got) <= HELLOS * (2 + seconds / 5 + 1)
    assert {len(datagram) for datagram in got} == {64}
    assert len(honest.membership.meetings.circuits) <= MOST_CIRCUITS
    assert honest.counters.refused[Refusal.OVER_BUDGET] > 1000


def test_many_victims_in_one_network_or_many_get_no_more(three: tuple[RoutedNetwork, Node, Node, Node]) -> None:
    network, _, liar, honest = three
    seconds = 60
    for second in range(seconds):
        for number in range(50):
            if key_id(honest) in liar.membership.links:
                victims = tuple((f"203.0.113.{1 + number}", 1000 + 3 * second + more) for more in range(3))
                say(liar, honest, CallRequest(Identity.generate().key_id, b"abcd", victims))
        network.run(1)
    own = {network.address_of(node) for node in network.nodes.values()}
    got = [to for _, to, _ in network.traffic if to not in own]
    # To a network of 256 addresses two calls a second, and 64 at once.
    assert 0 < len(got) <= HELLOS * (64 + 2 * (seconds + 1))


def test_services_of_the_own_machine_and_network_are_not_called(
    three: tuple[RoutedNetwork, Node, Node, Node],
) -> None:
    network, _, liar, honest = three
    honest.membership.meetings.local = (("192.168.7.2", 7700),)
    elsewhere = [("127.0.0.1", 22), ("10.0.0.1", 7700), ("192.168.7.1", 80), ("169.254.169.254", 8080)]
    for address in elsewhere:
        say(liar, honest, CallRequest(Identity.generate().key_id, addresses=(address,)))
    network.run(1)
    assert honest.counters.refused[Refusal.BAD_ADDRESS] == len(elsewhere)
    # Somebody behind the same router can be anywhere in that network.
    say(liar, honest, CallRequest(Identity.generate().key_id, addresses=(("192.168.7.9", 7700),)))
    network.run(1)
    assert [call.address for call in honest.membership.pending.values()] == [("192.168.7.9", 7700)]


def test_a_member_cannot_speak_for_another_through_a_circuit(
    three: tuple[RoutedNetwork, Node, Node, Node], group: Group
) -> None:
    network, _, liar, honest = three
    pretended, real = Identity.generate(), Identity.generate()
    say(liar, honest, CallRequest(pretended.key_id, b"abcd"))
    network.run(0.1)
    jar: CookieJar = honest.membership.cookies
    caller = Caller(real, group, nonce=bytes(16), session_id=b"call")
    cookie = jar.make((key_id(liar), pretended.key_id), network.now)
    say(liar, honest, Forwarded(b"abcd", caller.join(cookie, alone=False)))
    network.run(0.1)
    assert honest.counters.refused[Refusal.FORGED_SENDER] == 1
    assert real.key_id not in honest.membership.links
    # A cookie of an address, or of another path, is none of this one.
    for place in ((network.address_of(liar)), (pretended.key_id, key_id(liar))):
        caller = Caller(pretended, group, nonce=bytes(16), session_id=b"call")
        join = caller.join(jar.make(place, network.now), alone=False)
        say(liar, honest, Forwarded(b"abcd", join))
    network.run(0.1)
    assert honest.counters.refused[Refusal.STALE_COOKIE] == 2


def forwarded_pair(network: RoutedNetwork, group: Group, head_of: Heads) -> tuple[Node, Node, Node]:
    """Return a forwarder, and two peers that it forwards between."""
    forwarder = network.public(group)
    one, other = (network.hidden(group, network.router(**RANDOM)) for _ in range(2))
    for node in (one, other):
        node.name(network.address_of(forwarder), network.now)
    network.exchange([forwarder, one, other], 6, lambda second: head_of(group, second))
    assert network.way(one, other) == network.way(other, one) == "forwarded"
    return forwarder, one, other


def test_a_forwarder_can_neither_change_nor_repeat_nor_make_up_anything(
    routed: Networks, group: Group, head_of: Heads
) -> None:
    network = routed()
    forwarder, one, other = forwarded_pair(network, group, head_of)
    (circuit,) = forwarder.introducer.circuits
    passed: list[bytes] = []
    forward = forwarder.introducer.forward

    def spoil(link: Link, message: Forward, now: float) -> float:
        passed.append(message.datagram)
        changed = message.datagram[:-1] + bytes([message.datagram[-1] ^ 1])
        return forward(link, Forward(message.circuit, changed), now)

    forwarder.introducer.forward = spoil  # type: ignore[method-assign]
    before = one.counters.heads_in + other.counters.heads_in
    public = [node.counters.heads_in for node in (one, other)]
    one.share(head_of(group, 50), iteration=50, now=network.now)
    network.run(2)
    assert passed
    assert one.counters.heads_in + other.counters.heads_in == before
    assert other.counters.refused[Refusal.NOT_SEALED] > 0
    assert public == [node.counters.heads_in for node in (one, other)]
    forwarder.introducer.forward = forward  # type: ignore[method-assign]
    network.exchange([one, other], 3, lambda second: head_of(group, 60 + second))
    replays = other.counters.refused[Refusal.REPLAY]
    said = [datagram for datagram in passed if datagram[1:5] == link_of(other, one).session.local]
    assert said
    for datagram in (*said, *said):
        say(forwarder, other, Forwarded(circuit, datagram))
    network.run(0.1)
    assert other.counters.refused[Refusal.REPLAY] >= replays + len(said)


def test_what_was_sealed_for_a_circuit_is_refused_from_anywhere_else(
    routed: Networks, group: Group, head_of: Heads
) -> None:
    network = routed()
    forwarder, one, other = forwarded_pair(network, group, head_of)
    second = network.public(group)
    second.name(network.address_of(forwarder), network.now)
    assert network.run(10, lambda: key_id(other) in second.membership.links)
    network.run(1)
    sealed = link_of(one, other).session.seal(wire.encode(wire.Leave()))
    for address in (network.address_of(forwarder), network.address_of(second), VICTIM):
        before = other.counters.refused[Refusal.UNKNOWN_SESSION]
        other.receive(address, sealed, network.now)
        assert other.counters.refused[Refusal.UNKNOWN_SESSION] == before + 1
    say(second, other, CallRequest(key_id(one), b"abcd"))
    network.run(0.1)
    before = other.counters.refused[Refusal.UNKNOWN_SESSION]
    say(second, other, Forwarded(b"abcd", sealed))
    network.run(0.1)
    assert other.counters.refused[Refusal.UNKNOWN_SESSION] == before + 1
    assert key_id(one) in other.membership.links


def test_nothing_is_forwarded_twice(routed: Networks, group: Group, head_of: Heads) -> None:
    network = routed()
    forwarder, one, other = forwarded_pair(network, group, head_of)
    via = link_of(one, other).address
    assert isinstance(via, Via)
    before = forwarder.counters.bytes_forwarded, one.counters.datagrams_out
    # Wrapped once more, it goes no further than to the one that gets it.
    say(other, one, Forwarded(via.circuit, bytes(100)))
    say(other, one, Forward(via.circuit, bytes(100)))
    say(other, one, Meet(key_id(forwarder)))
    network.run(0.1)
    assert not one.introducer.circuits
    assert one.counters.bytes_forwarded == 0
    assert forwarder.counters.bytes_forwarded - before[0] < 1000


def test_circuits_are_few_however_many_ask(routed: Networks, group: Group) -> None:
    network = routed()
    forwarder = network.public(group, limits=Limits(neighbours=64))
    liars = [network.public(group, limits=Limits(neighbours=1)) for _ in range(40)]
    for liar in liars:
        liar.name(network.address_of(forwarder), network.now)
    network.run(20)
    neighbours = [liar for liar in liars if key_id(forwarder) in liar.membership.links]
    assert len(neighbours) > 30
    for one in neighbours:
        for other in neighbours:
            say(one, forwarder, Meet(key_id(other)))
    network.run(0.2)
    assert 400 < len(forwarder.introducer.circuits) <= MOST_OFFERS
    network.run(20)
    assert not forwarder.introducer.circuits


def test_a_neighbour_reports_few_local_addresses_and_no_public_ones(
    three: tuple[RoutedNetwork, Node, Node, Node],
) -> None:
    network, forwarder, liar, _ = three
    say(liar, forwarder, Peers(0, (), (VICTIM, ("192.168.0.9", 22))))
    network.run(0.1)
    assert link_of(forwarder, liar).local == ()
    say(liar, forwarder, Peers(0, (), (("192.168.0.9", 7700),)))
    network.run(0.1)
    assert link_of(forwarder, liar).local == (("192.168.0.9", 7700),)


def test_local_addresses_are_told_only_behind_the_same_router(routed: Networks, group: Group, head_of: Heads) -> None:
    network = routed()
    public = network.public(group)
    router = network.router()
    neighbours = [network.hidden(group, router), network.hidden(group, router), network.hidden(group, network.router())]
    told: dict[tuple[bytes, bytes], tuple[Address, ...]] = {}
    send = public.introducer._send

    def watch(link: Link, message: bytes) -> None:
        decoded = wire.decode(message)
        if isinstance(decoded, CallRequest):
            told[link.key_id, decoded.key_id] = decoded.addresses
        send(link, message)

    public.introducer._send = watch
    for node in neighbours:
        node.name(network.address_of(public), network.now)
    network.exchange([public, *neighbours], 5, lambda second: head_of(group, second))
    near, far = told[key_id(neighbours[0]), key_id(neighbours[1])], told[key_id(neighbours[0]), key_id(neighbours[2])]
    assert near == ((router.host, 7700), network.address_of(neighbours[1])) or near[1:] == (
        network.address_of(neighbours[1]),
    )
    assert [host for host, _ in far] == [network.behind[network.address_of(neighbours[2])].host]
