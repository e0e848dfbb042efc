"""The whole service, as users run it, among members that lie to each neighbour and flood it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bristle import Peer, rules
from bristle.backbones.backbone import bundled
from bristle.peer.pace import Pace
from bristle.wire import Group, messages

if TYPE_CHECKING:
    from tests.support.hostile import Attackers, Bodies, Wait
    from tests.support.network import Matrix


CLASSES = ("a", "b", "c")
ITERATIONS = 12


def centres(features: int) -> Any:
    """Return the middle of each class, which makes a good head, too."""
    return np.random.default_rng(0).normal(0, 1, (3, features))


def samples(features: int, seed: int) -> tuple[Matrix, Any]:
    """Return samples of three classes that are far apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), 20)
    return (centres(features)[labels] + rng.normal(0, 0.3, (60, features))).astype(np.float32), labels


def test_equivocators_that_flood_teach_nobody_anything(
    tmp_path: Path, wait: Wait, attackers: Attackers, bodies_of: Bodies
) -> None:
    backbone = bundled(threads=1)

    async def scenario() -> None:
        async with AsyncExitStack() as exits:
            peers: list[Peer] = []
            for number in range(3):
                peer = Peer(
                    application="hostile",
                    classes=CLASSES,
                    folder=tmp_path / str(number),
                    backbone=backbone,
                    known=[peers[0].address] if peers else [],
                    rule=rules.create("bristle"),
                    pace=Pace(interval=0.02),
                )
                peers.append(await exits.enter_async_context(peer))
                peer.add(*samples(backbone.features, number), features=True)
            group = Group(application="hostile", backbone=backbone.digest, classes=CLASSES, features=backbone.features)
            crowd = []
            for number in range(4):
                identity = None
                for peer in peers[:2]:  # The same name, with another face for each of two neighbours.
                    one = attackers(group, host=f"127.{50 + number}.0.1", identity=identity)
                    identity = one.identity
                    assert await one.join(peer.address)
                    crowd.append(one)
            running = [asyncio.ensure_future(peer.run()) for peer in peers]
            truth = centres(backbone.features)
            lies = [bodies_of(np.roll(truth, turn, axis=0).astype(np.float32)) for turn in (1, 2)]

            def attack() -> bool:
                for place, one in enumerate(crowd):
                    one.share(lies[place % 2])
                    for turn in range(10):
                        one.say(messages.Acknowledgement(turn, 1, 1, 1))
                return all(peer.iteration >= ITERATIONS for peer in peers)

            await wait(attack, 60)
            for peer in peers:
                peer.stop()
            await asyncio.gather(*running)
            names, liars = {peer.key_id for peer in peers}, {one.identity.key_id.hex() for one in crowd}
            for peer in peers:
                # Before it has learnt anything, noise may look as good to a peer as what it has.
                heard = [one for record in peer.decisions(1000)[ITERATIONS // 2 :] for one in record.heard]
                trusted = sum(one.share for one in heard if one.sender in names)
                assert trusted > 0
                assert sum(one.share for one in heard if one.sender in liars) < trusted / 100
            assert any(one.sender in liars for record in peers[0].decisions(1000) for one in record.heard)
            x, y = samples(backbone.features, 99)
            assert all((peer.predict(x, features=True) == y).mean() > 0.95 for peer in peers)

    asyncio.run(scenario())
