from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bristle.p2p import Limits
from bristle.p2p.membership import MOST_GUESTS
from bristle.wire import Group, Identity, Refusal, handshake
from bristle.wire.handshake import Caller, Cookie

if TYPE_CHECKING:
    from tests.support.network import VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
NODE = ("127.0.0.1", 1)


class Stranger:
    """Somebody who speaks the handshake by hand, from an address of its own."""

    def __init__(self, network: VirtualNetwork, group: Group, port: int) -> None:
        self.network, self.group, self.address = network, group, ("127.0.0.1", port)
        self.caller = Caller(Identity.generate(), group, nonce=port.to_bytes(16, "big"), session_id=bytes(4))

    def say(self, datagram: bytes) -> list[bytes]:
        """Send something and return what comes back."""
        self.network.traffic.clear()
        self.network.nodes[NODE].receive(self.address, datagram, self.network.now)
        return [said for _, to, said in self.network.traffic if to == self.address]

    def join(self) -> bytes:
        """Ask for a cookie, and return the join that it allows."""
        cookie = handshake.decode(self.say(self.caller.hello())[0], self.group)
        assert isinstance(cookie, Cookie)
        return self.caller.join(cookie.cookie, alone=False)


def test_hellos_beyond_the_budget_are_not_answered(virtual: Networks, group: Group) -> None:
    network = virtual()
    node = network.add(group, port=1, limits=Limits(handshake_rate=1.0))
    stranger = Stranger(network, group, 7)
    answers = sum(bool(stranger.say(stranger.caller.hello())) for _ in range(100))
    assert 0 < answers < 50
    assert node.counters.refused[Refusal.OVER_BUDGET] == 100 - answers
    network.now += 5.0
    assert 0 < sum(bool(stranger.say(stranger.caller.hello())) for _ in range(100)) < 50


def test_joins_beyond_the_budget_are_not_answered(virtual: Networks, group: Group) -> None:
    network = virtual()
    node = network.add(group, port=1, limits=Limits(handshake_rate=2.0))
    stranger = Stranger(network, group, 7)
    join = stranger.join()
    assert [bool(stranger.say(join)) for _ in range(4)] == [True, True, False, False]
    assert node.counters.refused[Refusal.OVER_BUDGET] == 2


def test_strangers_who_never_prove_themselves_give_way_to_newer_ones(virtual: Networks, group: Group) -> None:
    network = virtual()
    node = network.add(group, port=1, limits=Limits(handshake_rate=100.0))
    for port in range(2, 2 + MOST_GUESTS + 5):
        stranger = Stranger(network, group, port)
        assert stranger.say(stranger.join())
    assert len(node.membership.sessions) == MOST_GUESTS
    assert not node.membership.links


@pytest.mark.parametrize("kind", ["cookie", "welcome"])
def test_answers_that_nobody_asked_for_are_refused(virtual: Networks, group: Group, kind: str) -> None:
    network = virtual()
    node = network.add(group, port=1)
    other = network.add(group, port=2)
    stranger = Stranger(network, group, 7)
    if kind == "cookie":
        answer = handshake.encode_cookie(group, bytes(16), bytes(16))
    else:
        network.traffic.clear()
        cookie_said: list[Any] = []
        other.receive(stranger.address, stranger.caller.hello(), network.now)
        cookie_said += [said for _, to, said in network.traffic if to == stranger.address]
        cookie = handshake.decode(cookie_said[0], group)
        assert isinstance(cookie, Cookie)
        network.traffic.clear()
        other.receive(stranger.address, stranger.caller.join(cookie.cookie, alone=False), network.now)
        answer = next(said for _, to, said in network.traffic if to == stranger.address)
    node.receive(("127.0.0.1", 2), answer, network.now)
    assert node.counters.refused[Refusal.UNKNOWN_SESSION] == 1
    assert not node.membership.links


def test_a_peer_that_calls_itself_forgets_the_address(virtual: Networks, group: Group) -> None:
    network = virtual()
    node = network.add(group, port=1)
    node.name(NODE, network.now)
    network.run(5)
    assert not node.membership.links
    assert NODE not in node.membership.contacts


def test_a_neighbour_that_begins_anew_and_again_keeps_two_sessions(virtual: Networks, group: Group) -> None:
    network = virtual()
    identity = Identity.generate()
    one = network.add(group, port=1)
    for _ in range(4):
        other = network.add(group, port=2, identity=identity)
        other.name(NODE, network.now)
        network.run(3, lambda other=other: bool(other.membership.links))  # type: ignore[misc]
        network.run(1)
    (link,) = one.membership.links.values()
    assert link.previous is not None
    assert sum(found is link for found in one.membership.sessions.values()) == 2
    network.remove(("127.0.0.1", 2))
    third = network.add(group, port=3, identity=identity)
    third.name(NODE, network.now)
    network.run(3)
    assert link.address == ("127.0.0.1", 3), "it has moved"
