"""Peers behind routers, in virtual time. With real routers: `test_router_namespaces.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bristle.p2p import Limits
from bristle.p2p.introducer import CALM_AFTER, FLOODED, Introducer
from bristle.p2p.meetings import FIRST_RETRY
from bristle.p2p.node import Node
from bristle.wire import Group, Refusal
from bristle.wire.messages import Forward
from bristle.wire.session import SEALED

if TYPE_CHECKING:
    from tests.support.network import Matrix
    from tests.support.virtual_routers import RoutedNetwork

Networks = Callable[..., "RoutedNetwork"]
Heads = Callable[..., "Matrix"]

KEPT: dict[str, Any] = {}
ANSWERS: dict[str, Any] = {"drops_new": False}
RANDOM: dict[str, Any] = {"random_ports": True}
RATE = 40e3


def meet(
    network: RoutedNetwork, group: Group, *routers: dict[str, Any], same: bool = False, **options: Any
) -> tuple[Node, Node, Node]:
    """Return a public peer, and two hidden ones that know it."""
    public = network.public(group, **options)
    first = network.router(**routers[0])
    second = first if same else network.router(**routers[1])
    hidden = [network.hidden(group, router) for router in (first, second)]
    for node in hidden:
        node.name(network.address_of(public), network.now)
    return public, hidden[0], hidden[1]


def hears(one: Node, other: Node, senders: list[set[bytes]], nodes: tuple[Node, ...]) -> bool:
    return other.membership.identity.key_id in senders[nodes.index(one)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("routers", "same", "way"),
    [
        ((KEPT, KEPT), False, "directly"),
        ((ANSWERS, ANSWERS), False, "directly"),
        ((KEPT, RANDOM), False, "forwarded"),
        ((RANDOM, RANDOM), False, "forwarded"),
        ((KEPT,), True, "locally"),
        ((RANDOM,), True, "locally"),
        (({"isolates": True},), True, "forwarded"),
    ],
)
def test_hidden_peers_hear_each_other_within_ten_seconds(
    routed: Networks, group: Group, head_of: Heads, seed: int, routers: Any, same: bool, way: str
) -> None:
    network = routed(seed)
    nodes = public, one, other = meet(network, group, *routers, same=same)
    heard = network.exchange([*nodes], 10, lambda second: head_of(group, second))
    everybody = {node.membership.identity.key_id for node in nodes}
    assert heard == [everybody - {node.membership.identity.key_id} for node in nodes]
    assert network.way(one, other) == network.way(other, one) == way
    assert (public.counters.bytes_forwarded > 0) is (way == "forwarded")
    (neighbour,) = [each for each in one.neighbours(network.now) if each.key_id == other.membership.identity.key_id]
    assert neighbour.reached == way
    assert neighbour.forwarder == (public.membership.identity.key_id if way == "forwarded" else None)


def test_calls_cross_without_any_delay(routed: Networks, group: Group, head_of: Heads) -> None:
    # Each side's first hello opens its own router and comes no further.
    network = routed(delay=0.0)
    nodes = _, one, other = meet(network, group, ANSWERS, ANSWERS)
    heard = network.exchange([*nodes], 10, lambda second: head_of(group, second))
    assert hears(one, other, heard, nodes)
    assert hears(other, one, heard, nodes)
    assert network.way(one, other) == network.way(other, one) == "directly"


def test_they_hear_each_other_though_datagrams_get_lost(routed: Networks, group: Group, head_of: Heads) -> None:
    for routers in ((KEPT, KEPT), (RANDOM, RANDOM)):
        network = routed(3, loss=0.2, jitter=0.02, duplication=0.1)
        nodes = _, one, other = meet(network, group, *routers)
        heard = network.exchange([*nodes], 15, lambda second: head_of(group, second))
        assert hears(one, other, heard, nodes)
        assert hears(other, one, heard, nodes)


def test_who_has_a_direct_way_goes_on_when_the_public_peer_dies(routed: Networks, group: Group, head_of: Heads) -> None:
    network = routed()
    nodes = public, one, other = meet(network, group, KEPT, KEPT)
    network.exchange([*nodes], 5, lambda second: head_of(group, second))
    network.remove(network.address_of(public))
    network.exchange([one, other], 60, lambda second: head_of(group, second))
    heard = network.exchange([one, other], 5, lambda second: head_of(group, second))
    assert hears(one, other, heard, (one, other))
    assert hears(other, one, heard, (one, other))
    assert len(one.membership.links) == len(other.membership.links) == 1


@pytest.mark.parametrize("says_so", [False, True])
def test_another_neighbour_forwards_when_the_forwarder_goes(
    routed: Networks, group: Group, head_of: Heads, says_so: bool
) -> None:
    network = routed()
    nodes = public, one, other = meet(network, group, RANDOM, RANDOM)
    second = network.public(group)
    second.name(network.address_of(public), network.now)
    network.exchange([*nodes, second], 10, lambda second: head_of(group, second))
    forwarder, rest = (public, second) if public.counters.bytes_forwarded else (second, public)
    assert not rest.counters.bytes_forwarded
    if says_so:
        forwarder.leave()
    network.remove(network.address_of(forwarder))
    network.exchange([one, other, rest], 40 if not says_so else 5, lambda second: head_of(group, second))
    heard = network.exchange([one, other, rest], 5, lambda second: head_of(group, second))
    assert hears(one, other, heard, (one, other, rest))
    assert hears(other, one, heard, (one, other, rest))
    assert rest.counters.bytes_forwarded


def test_nothing_is_forwarded_any_more_once_a_direct_way_opens(routed: Networks, group: Group, head_of: Heads) -> None:
    network = routed()
    nodes = public, one, other = meet(network, group, {"isolates": True}, same=True)
    network.exchange([*nodes], 10, lambda second: head_of(group, second))
    assert network.way(one, other) == "forwarded"
    for router in network.routers.values():
        router.isolates = False
    network.exchange([*nodes], FIRST_RETRY + 2, lambda second: head_of(group, second))
    assert network.way(one, other) == network.way(other, one) == "locally"
    forwarded = public.counters.bytes_forwarded
    heard = network.exchange([*nodes], 10, lambda second: head_of(group, second))
    assert hears(one, other, heard, nodes)
    assert public.counters.bytes_forwarded == forwarded
    network.run(30)
    assert not public.introducer.circuits


def test_who_forwards_for_nobody_still_introduces(routed: Networks, group: Group, head_of: Heads) -> None:
    for routers, way in (((RANDOM, RANDOM), None), ((KEPT, KEPT), "directly")):
        network = routed()
        nodes = public, one, other = meet(network, group, *routers, limits=Limits(forward_rate=0))
        network.exchange([*nodes], 10, lambda second: head_of(group, second))
        assert network.way(one, other) == way
        assert not public.counters.bytes_forwarded


def test_forwarded_bytes_stay_within_the_budget(routed: Networks, large: Group, head_of: Heads) -> None:
    network = routed()
    limits = Limits(forward_rate=RATE)
    nodes = public, *_ = meet(network, large, RANDOM, RANDOM, limits=limits)
    network.exchange([*nodes], 10, lambda second: head_of(large, second))
    before, refused = public.counters.bytes_forwarded, public.counters.refused[Refusal.NOT_FORWARDED]
    # 33 KB a second in each direction are too much: one pair may have half, and its share of the rest.
    heard = network.exchange([*nodes], 30, lambda second: head_of(large, second))
    forwarded = public.counters.bytes_forwarded - before
    assert 0.25 * 30 * RATE < forwarded <= (0.5 + 0.5 / 8) * 31 * RATE
    assert public.counters.refused[Refusal.NOT_FORWARDED] > refused
    # Its own heads have all arrived.
    assert all(public.membership.identity.key_id in senders for senders in heard[1:])
    assert not public.counters.refused[Refusal.USELESS]


def test_a_forwarder_serves_so_many_pairs_and_no_more(routed: Networks, group: Group, head_of: Heads) -> None:
    network = routed()
    public = network.public(group, limits=Limits(forward_pairs=3))
    hidden = [network.hidden(group, network.router(**RANDOM)) for _ in range(4)]
    for node in hidden:
        node.name(network.address_of(public), network.now)
    network.exchange([public, *hidden], 20, lambda second: head_of(group, second))
    assert public.introducer.pairs == 3
    ways = [network.way(one, other) for one in hidden for other in hidden if one is not other]
    assert ways.count("forwarded") == 6
    assert ways.count(None) == 6


def flood(network: RoutedNetwork, node: Node, rate: int) -> None:
    """Send a node a tenth of a second of datagrams that it refuses."""
    for number in range(rate // 10):
        node.receive(("198.51.100.200", 1 + number), b"\xb5" + bytes(60), network.now)


def test_a_forwarder_under_flood_drops_the_forwarded_first_and_goes_on_itself(
    routed: Networks, group: Group, head_of: Heads
) -> None:
    network = routed()
    nodes = public, one, other = meet(network, group, RANDOM, RANDOM)
    network.exchange([*nodes], 10, lambda second: head_of(group, second))
    own = [public.counters.heads_in, one.counters.heads_in, other.counters.heads_in]
    forwarded = None
    for tenth in range(100):
        if tenth % 10 == 0:
            for node in nodes:
                node.share(head_of(group, tenth), iteration=100 + tenth, now=network.now)
        if tenth == 10:
            forwarded = public.counters.bytes_forwarded
        flood(network, public, 10_000)
        network.run(0.1)
    # From the first second on nothing is forwarded, and all that is the public peer's own arrives.
    assert public.counters.bytes_forwarded == forwarded
    assert public.counters.heads_in - own[0] == 20
    assert min(one.counters.heads_in - own[1], other.counters.heads_in - own[2]) >= 10
    network.run(CALM_AFTER)
    heard = network.exchange([*nodes], 10, lambda second: head_of(group, second))
    assert hears(one, other, heard, nodes), "afterwards it forwards again"


def test_a_few_refused_datagrams_do_not_stop_it(routed: Networks, group: Group, head_of: Heads) -> None:
    network = routed()
    nodes = public, *_ = meet(network, group, RANDOM, RANDOM)
    network.exchange([*nodes], 10, lambda second: head_of(group, second))
    forwarded = public.counters.bytes_forwarded
    for _ in range(50):
        flood(network, public, int(FLOODED / 2))
        network.run(0.1)
    network.exchange([*nodes], 2, lambda second: head_of(group, second))
    assert public.counters.bytes_forwarded > forwarded + 1000


def test_a_forwarder_reads_nothing(
    routed: Networks, group: Group, head_of: Heads, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = routed()
    public, one, other = meet(network, group, RANDOM, RANDOM)
    passed: list[bytes] = []
    forward = Introducer.forward

    def watch(self: Introducer, link: Any, message: Forward, now: float) -> float:
        passed.append(message.datagram)
        return forward(self, link, message, now)

    monkeypatch.setattr(Introducer, "forward", watch)
    head = head_of(group)
    for second in range(10):
        one.share(head, iteration=second + 1, now=network.now)
        network.run(1)
    assert any(received.sender == one.membership.identity.key_id for received in other.take())
    sealed = [datagram for datagram in passed if datagram[0] == SEALED]
    assert len(sealed) > 15
    planes = head.reshape(-1, 1).view("u1").T.tobytes()
    assert not any(planes[at : at + 64] in datagram for datagram in passed for at in range(0, 3200, 64))
    for datagram in sealed:
        # It has no session that could open any of it.
        assert datagram[1:5] not in public.membership.sessions
        for link in public.membership.links.values():
            assert link.session.open(datagram) in (Refusal.NOT_SEALED, Refusal.REPLAY)


def test_a_peer_that_restarts_is_reached_again(routed: Networks, group: Group, head_of: Heads) -> None:
    for routers in ((KEPT, KEPT), (RANDOM, RANDOM)):
        network = routed()
        nodes = public, one, other = meet(network, group, *routers)
        network.exchange([*nodes], 10, lambda second: head_of(group, second))
        address, identity = network.address_of(other), other.membership.identity
        network.remove(address)
        network.run(2)
        again = network.add(group, host=address[0], port=address[1], identity=identity, limits=Limits())
        again.name(network.address_of(public), network.now)
        heard = network.exchange([public, one, again], 10, lambda second: head_of(group, 100 + second))
        assert hears(one, again, heard, (public, one, again))
        assert hears(again, one, heard, (public, one, again))
