"""Attackers on a real network: what they send, and what they know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.commands.demo.attackers import HeadAttackers, StatementAttackers
from bristle.learning.samples import Samples
from bristle.p2p import Limits, Overlay
from bristle.p2p.inbox import ReceivedHead
from bristle.p2p.statements import ReceivedStatement
from bristle.simulation import FeatureData, Scenario
from bristle.simulation.exchange import Exchange
from bristle.simulation.population import populate
from bristle.wire import Group, Identity

GROUP = Group(application="test", backbone="backbone", classes=tuple("0123456789"), features=20)
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(3, 20, 20)).astype(np.float32)
LABELS = np.tile(np.repeat(np.arange(10), 2), (3, 1))


def attackers(name: str) -> HeadAttackers:
    attack = attacks.create(name)
    return HeadAttackers(
        [4, 5, 6],
        group=GROUP,
        attack=attack,
        samples=Samples(FEATURES, attack.labels(LABELS)),
        total=10,
        interval=0.01,
        seed=0,
        limits=Limits(),
    )


def heard_by_a_victim(name: str, *, until: Callable[[list[ReceivedHead]], bool]) -> list[ReceivedHead]:
    """Let a victim share a head of ones with attackers, and return what it hears from them."""
    found: dict[bytes, ReceivedHead] = {}

    async def run() -> None:
        victim = Overlay(identity=Identity.generate(), group=GROUP)
        await victim.start()
        gang = attackers(name)
        await gang.start([[victim.address]] * 3)
        running = asyncio.create_task(gang.run())
        try:
            async with asyncio.timeout(120):
                while not until(list(found.values())):
                    victim.share(np.ones(GROUP.shape, dtype=np.float32), iteration=1)
                    await asyncio.sleep(0.02)
                    found.update({one.sender: one for one in victim.take()})
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await gang.stop()
            await victim.stop()

    asyncio.run(run())
    return list(found.values())


def test_each_has_an_identity_and_trains_on_flipped_labels() -> None:
    heard = heard_by_a_victim("label-flip", until=lambda found: len(found) == 3 and found[0].iteration > 60)
    assert len({one.sender for one in heard}) == len({one.address for one in heard}) == 3
    own, _, claims = heard[0].head, heard[0].sender, heard[0].claims
    assert claims is not None
    assert claims.all()
    samples = FEATURES.reshape(-1, 20)
    predicted = (samples @ own.T).argmax(axis=1)
    flipped = (LABELS.ravel() + 1) % 10
    assert (predicted == flipped).mean() > 2 * (predicted == LABELS.ravel()).mean()


@pytest.mark.parametrize("name", ["mimic", "free-ride"])
def test_those_who_know_the_inbox_know_what_they_heard(name: str) -> None:
    # Only one honest peer, whose head is all ones: a copy and a mean are ones too. They cannot know before they hear.
    def convinced(found: list[ReceivedHead]) -> bool:
        return len(found) == 3 and all(np.abs(one.head - 1).max() < 0.01 for one in found)

    assert convinced(heard_by_a_victim(name, until=convinced))


def test_noise_is_drawn_anew_for_each_and_every_time() -> None:
    heard = heard_by_a_victim("additive-noise", until=lambda found: len(found) == 3)
    assert all((one.head[:5] <= 0).all() and (one.head[5:] >= 0).all() for one in heard)
    assert not np.array_equal(heard[0].head, heard[1].head)


@pytest.mark.parametrize("name", ["label-flip", "mimic"])
def test_false_statements_are_those_of_the_simulator_and_the_same_for_everybody(name: str) -> None:
    labels = np.tile(np.arange(10), 200)
    features = RNG.normal(size=(2000, 20)).astype(np.float32) + 3 * np.eye(10, 20, dtype=np.float32)[labels]
    data = FeatureData(features, labels, features[:10], labels[:10], tuple("0123456789"))
    scenario = Scenario(
        peers=2, attackers=2, rule=rules.create("evidence"), attack=attacks.create(name), classes_per_peer=5
    )
    exchange = Exchange(scenario, populate(scenario, data), 10)
    found: dict[bytes, ReceivedStatement] = {}

    async def run() -> None:
        victims = [Overlay(identity=Identity.generate(), group=GROUP)]
        await victims[0].start()
        victims.append(Overlay(identity=Identity.generate(), group=GROUP, known=[victims[0].address]))
        await victims[1].start()
        for number, (victim, honest) in enumerate(zip(victims, exchange.statements, strict=True), start=1):
            expires = int(time.time()) + 1000
            victim.publish(victim.sign_statement(honest, number=number, expires=expires, encoding="float32"))
        gang = StatementAttackers([2, 3], group=GROUP, limits=Limits(), exchange=exchange, honest=2)
        await gang.start([[victims[0].address]] * 2)
        running = asyncio.create_task(gang.run())
        try:
            async with asyncio.timeout(120):
                while any(len(victim.statements()) < 3 for victim in victims):
                    await asyncio.sleep(0.02)
            both = [
                {one.author: one for one in victim.statements() if one.author in gang.key_ids} for victim in victims
            ]
            assert {author: one.signed for author, one in both[0].items()} == {
                author: one.signed for author, one in both[1].items()
            }
            found.update(both[0])
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await gang.stop()
            for victim in victims:
                await victim.stop()

    asyncio.run(run())
    said = sorted((one.statement.rows for one in found.values()), key=lambda rows: float(rows[0, 0]))
    wanted = sorted((one.rows for one in exchange.broadcast(exchange.statements)), key=lambda rows: float(rows[0, 0]))
    np.testing.assert_allclose(said, wanted, atol=0.1)
