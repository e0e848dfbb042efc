"""Identities by the hundred over real sockets: they get some places, and neither all of them nor anybody else's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bristle.p2p import Limits
from bristle.wire import Group

if TYPE_CHECKING:
    from tests.support.hostile import Attacker, Attackers, Heads, Scenario, Wait
    from tests.support.network import RealNetwork


# The budgets for joins are tried elsewhere; here, all of a crowd are to be heard within a second.
PLACES = Limits(neighbours=8, handshake_rate=1000.0)


async def crowd_in(crowd: list[Attacker], target: Any, *, alone: bool, room: int = 0) -> int:
    """Let a crowd join; return how many were told that there is room. So many should be: for those, wait for long."""
    admitted = 0
    for attacker in crowd:
        try:
            admitted += await attacker.join(target.address, alone=alone, seconds=60.0 if admitted < room else 1.0)
        except TimeoutError:
            continue
    return admitted


def test_a_hundred_names_of_one_host_leave_half_of_the_places_to_others(
    on_network: Scenario, wait: Wait, group: Group, head_of: Heads, attackers: Attackers
) -> None:
    async def scenario(network: RealNetwork) -> None:
        target = await network.peer(group, limits=PLACES)
        crowd = [attackers(group, host="127.66.0.1") for _ in range(100)]
        assert await crowd_in(crowd, target, alone=False, room=8) == 8
        await wait(lambda: len(target.neighbours()) == 8)
        node = target.node

        def turned_away() -> int:
            # A quick machine sees so many refusals in a second that the flood filter drops the last ones unread.
            refused = target.counters.refused
            return refused["no room for another neighbour"] + refused["dropped unread in a flood"]

        await wait(lambda: turned_away() > 80)
        assert len(node.membership.sessions) <= 8 + 64
        # Others come, and find room: but a crowd has half of the places, and keeps them.
        friends = [
            await network.peer(group, known=[target.address], listen=(f"127.{number}.0.1", 0)) for number in (1, 2, 3)
        ]
        keys = {friend.identity.key_id for friend in friends}
        await wait(lambda: keys <= {one.key_id for one in target.neighbours()})
        await wait(lambda: all(friend.neighbours() for friend in friends))
        for number, friend in enumerate(friends):
            friend.share(head_of(group, number), iteration=1)
        heard: set[bytes] = set()

        def all_heard() -> bool:
            heard.update(one.sender for one in target.take())
            return keys <= heard

        await wait(all_heard)
        # The crowd asks again, and for mercy: nobody has to leave for it who is not of it.
        await crowd_in([attackers(group, host="127.66.0.1") for _ in range(40)], target, alone=True)
        assert keys <= {one.key_id for one in target.neighbours()}
        assert len(target.neighbours()) <= 8

    on_network(scenario)


def test_names_from_everywhere_do_not_drive_out_those_who_were_there_before(
    on_network: Scenario, wait: Wait, group: Group, attackers: Attackers
) -> None:
    async def scenario(network: RealNetwork) -> None:
        # Mercy is shown once in a keep-alive period: here, to everybody who asks.
        target = await network.peer(group, limits=replace(PLACES, keepalive=0.01))
        friends = [await network.peer(group, known=[target.address]) for _ in range(3)]
        keys = {friend.identity.key_id for friend in friends}
        await wait(lambda: len(target.neighbours()) == 3)
        crowd = [attackers(group, host=f"127.{1 + number}.3.1") for number in range(120)]
        assert await crowd_in(crowd, target, alone=False, room=5) >= 5
        await wait(lambda: len(target.neighbours()) == 8)
        shown_mercy = 0
        for _ in range(20):
            shown_mercy += await crowd_in(crowd[:1], target, alone=True)
            crowd.append(crowd.pop(0))
        assert shown_mercy > 0
        # All that was sent before this has been read when it is counted.
        crowd[0].send(b"noise")
        await wait(lambda: target.counters.refused.get("malformed", 0) == 1)
        assert keys <= {one.key_id for one in target.neighbours()}

    on_network(scenario)


def test_many_peers_of_one_host_may_have_all_places_among_themselves(
    on_network: Scenario, wait: Wait, group: Group
) -> None:
    async def scenario(network: RealNetwork) -> None:
        first = await network.peer(group, limits=PLACES)
        others = [await network.peer(group, limits=PLACES, known=[first.address]) for _ in range(8)]
        await wait(lambda: all(len(peer.neighbours()) == 8 for peer in (first, *others)))

    on_network(scenario)


def test_a_neighbour_whom_the_user_named_keeps_its_place(
    on_network: Scenario, wait: Wait, group: Group, attackers: Attackers
) -> None:
    async def scenario(network: RealNetwork) -> None:
        friend = await network.peer(group, listen=("127.66.0.2", 0))
        target = await network.peer(group, limits=PLACES, known=[friend.address])
        await wait(lambda: len(target.neighbours()) == 1)
        crowd = [attackers(group, host="127.66.0.1") for _ in range(40)]
        await crowd_in(crowd, target, alone=True)
        newcomers = [attackers(group, host=f"127.{1 + number}.0.1") for number in range(20)]
        await crowd_in(newcomers, target, alone=True)
        assert friend.identity.key_id in {one.key_id for one in target.neighbours()}
        assert len(target.neighbours()) <= 8

    on_network(scenario)
