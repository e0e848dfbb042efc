"""Peers behind routers made by nftables, in network namespaces. In virtual time: `test_behind_routers.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.routers import Internet, RoutedPeer

Internets = Callable[..., "Internet"]

KEPT: dict[str, Any] = {}
DROPS: dict[str, Any] = {"drops_new": True}
RANDOM: dict[str, Any] = {"ports": "random"}
ISOLATES: dict[str, Any] = {"isolates": True}
SLOW: dict[str, Any] = {"delay": 0.05}
ROUTED: dict[str, Any] = {"routed": True}


def start(network: Internet, *routers: dict[str, Any]) -> tuple[RoutedPeer, RoutedPeer, RoutedPeer]:
    """Start a public peer and two hidden ones, both behind the only router or each behind its own."""
    known = network.public("public")
    for number, options in enumerate(routers):
        network.router(f"router{number}", **options)
    for number, name in enumerate(("one", "other")):
        network.behind(f"router{number % len(routers)}", name)
    public = network.peer("public")
    assert public.key_id
    one, other = network.peer("one", known=known), network.peer("other", known=known)
    for each, neighbour in ((one, other), (other, one)):
        each.first_heard(neighbour)
        each.first_heard(public)
    return public, one, other


@pytest.mark.slow
@pytest.mark.parametrize(
    ("routers", "line", "way"),
    [
        ((KEPT, KEPT), SLOW, "directly"),
        ((KEPT, KEPT), ROUTED, "directly"),
        ((DROPS, DROPS), {}, "directly"),
        ((RANDOM, RANDOM), {}, "forwarded"),
        ((RANDOM, DROPS), SLOW, "forwarded"),
        ((KEPT,), {}, "locally"),
        ((ISOLATES,), {}, "forwarded"),
    ],
)
def test_hidden_peers_hear_each_other(internet: Internets, routers: Any, line: dict[str, Any], way: str) -> None:
    public, one, other = start(internet(**line), *routers)
    for each, neighbour in ((one, other), (other, one)):
        found = each.way(neighbour)
        assert found is not None
        assert found["reached"] == way
        assert found["forwarder"] == (public.key_id if way == "forwarded" else None)
        each.goes_on_hearing(neighbour)
    assert (public.seen["counters"]["bytes_forwarded"] > 0) is (way == "forwarded")


@pytest.mark.slow
def test_on_one_bridge_without_any_delay_they_hear_each_other_all_the_same(internet: Internets) -> None:
    # Of two calls that cannot cross, a router that does not drop the first takes note of it, and gives its own side
    # another port. Where no third router is between the two, a call of few hops does not help.
    _, one, other = start(internet(), KEPT, KEPT)
    one.goes_on_hearing(other)
    other.goes_on_hearing(one)


@pytest.mark.slow
def test_who_has_a_direct_way_goes_on_when_the_public_peer_dies(internet: Internets) -> None:
    public, one, other = start(internet(), DROPS, DROPS)
    public.kill()
    for each in (one, other):
        each.when(lambda seen: len(seen["neighbours"]) == 1, "has let the dead peer go")
    one.goes_on_hearing(other)
    other.goes_on_hearing(one)


@pytest.mark.slow
def test_a_second_public_peer_forwards_when_the_first_dies(internet: Internets) -> None:
    network = internet()
    network.public("second")
    first, one, other = start(network, RANDOM, RANDOM)
    second = network.peer("second", known=network.addresses["public"])
    for each in (one, other):
        second.first_heard(each)
    first.kill()
    forwarder = second.key_id
    for each, neighbour in ((one, other), (other, one)):
        key_id = neighbour.key_id
        each.when(
            lambda seen, key_id=key_id: seen["neighbours"].get(key_id, {}).get("forwarder") == forwarder,  # type: ignore[misc]
            "is forwarded by the second",
        )
        each.goes_on_hearing(neighbour)


@pytest.mark.slow
def test_a_status_says_how_each_neighbour_is_reached(internet: Internets, tmp_path: Path) -> None:
    network = internet()
    known = network.public("public")
    for number, name in enumerate(("one", "other")):
        network.router(f"router{number}", **RANDOM)
        network.behind(f"router{number}", name)
    peers = {
        name: network.service(name, tmp_path / name, known=None if name == "public" else known)
        for name in ("public", "one", "other")
    }
    public, one, other = peers.values()
    one.status_when(lambda status: any(each["reached"] == "forwarded" for each in status["neighbours"]), "is forwarded")
    status = one.status()
    ways = {each["key_id"]: each for each in status["neighbours"]}
    assert ways[other.key_id]["reached"] == "forwarded"
    assert ways[other.key_id]["forwarder"] == public.key_id
    assert ways[other.key_id]["address"] is None
    # Both compute the same features; the comparison may not be done yet.
    assert ways[public.key_id] | {"silent": 0.0, "difference": 0.0} == {
        "key_id": public.key_id,
        "address": f"{known}:7700",
        "silent": 0.0,
        "reached": "directly",
        "forwarder": None,
        "difference": 0.0,
    }
    said = one.status_text()
    assert f"forwarded by {public.key_id[:16]}" in said
    assert f"directly at {known}:7700" in said
    public.status_when(lambda status: status["counters"]["bytes_forwarded"] > 0, "has forwarded")
