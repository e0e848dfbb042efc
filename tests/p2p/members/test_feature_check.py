from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bristle.p2p.members.feature_check import TRIES
from bristle.p2p.node import Node
from bristle.wire import Group
from bristle.wire.messages import PROBE_NUMBERS, Probe, encode

if TYPE_CHECKING:
    from tests.support.network import VirtualNetwork

Networks = Callable[..., "VirtualNetwork"]
OWN = np.random.default_rng(0).normal(size=PROBE_NUMBERS).astype(np.float32)


def meeting(network: VirtualNetwork, group: Group, *probes: np.ndarray | None) -> list[Node]:
    nodes = [network.add(group, probe=probe, port=1 + place) for place, probe in enumerate(probes)]
    for node in nodes[1:]:
        node.name(("127.0.0.1", 1), network.now)
    assert network.run(30, lambda: all(len(node.membership.links) == len(nodes) - 1 for node in nodes))
    network.run(10)
    return nodes


def found(node: Node, now: float) -> list[float | None]:
    return [one.difference for one in node.neighbours(now)]


@pytest.mark.parametrize("impairment", [{}, {"loss": 0.3, "duplication": 0.2, "jitter": 0.05}])
def test_both_say_so_where_features_differ(
    virtual: Networks, group: Group, caplog: pytest.LogCaptureFixture, impairment: dict[str, float]
) -> None:
    network = virtual(1, **impairment)
    with caplog.at_level(logging.WARNING, "bristle.p2p"):
        nodes = meeting(network, group, OWN, 1.4 * OWN)
    for node, other in (nodes, nodes[::-1]):
        assert found(node, network.now) == [pytest.approx(0.329, abs=1e-3)]
        assert node.counters.features_differ == 1
        said = [details for details in map(details_of, caplog.records) if details["neighbour"] == other_id(other)]
        assert [details["difference"] for details in said] == ["33%"]


def details_of(record: logging.LogRecord) -> dict[str, str]:
    details: dict[str, str] = record.__dict__["details"]
    return details


def other_id(node: Node) -> str:
    return node.membership.identity.key_id.hex()


def test_nothing_is_said_where_they_do_not(virtual: Networks, group: Group, caplog: pytest.LogCaptureFixture) -> None:
    network = virtual()
    with caplog.at_level(logging.WARNING, "bristle.p2p"):
        nodes = meeting(network, group, OWN, 1.0001 * OWN)
    assert not caplog.records
    for node in nodes:
        assert found(node, network.now) == [pytest.approx(1e-4, rel=0.1)]
        assert node.counters.features_differ == 0


def test_who_has_nothing_to_compare_is_asked_a_few_times(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second = meeting(network, group, OWN, None)
    network.run(100)
    assert found(first, network.now) == found(second, network.now) == [None]
    assert not first.features._asked


def test_a_neighbour_that_keeps_asking_is_answered_a_few_times(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second = meeting(network, group, OWN, OWN)
    (link,) = second.membership.links.values()
    network.traffic.clear()
    for number in range(100):
        second.send_message(link, encode(Probe(OWN.astype(">f4").tobytes(), asks=number % 2 == 0)))
    network.run(0.5)
    assert sum(len(datagram) == 29 + 2 + 256 for source, _, datagram in network.traffic if source[1] == 1) <= TRIES
    assert found(first, network.now) == [0.0]


def test_numbers_that_are_none_say_nothing(virtual: Networks, group: Group) -> None:
    network = virtual()
    first, second = meeting(network, group, OWN, None)
    (link,) = second.membership.links.values()
    second.send_message(link, encode(Probe(b"\xff" * 256, asks=False)))
    network.run(0.5)
    assert found(first, network.now) == [None]
    second.send_message(link, encode(Probe((np.float32(3e38) * np.sign(OWN)).astype(">f4").tobytes(), asks=False)))
    network.run(0.5)
    assert found(first, network.now) == [pytest.approx(np.sqrt(2), abs=0.01)]
