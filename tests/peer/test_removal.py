"""Samples that are removed from a live peer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle import Peer, rules
from bristle.peer.exchange import LIFETIME
from bristle.peer.state import PeerState
from bristle.peer.store_files import TryAgainError

MakePeer = Callable[..., Peer]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def state_of(peer: Peer) -> PeerState:
    assert peer._state is not None
    return peer._state


def held(peer: Peer) -> list[int]:
    return [one.training + one.held_out for one in peer.status().samples]


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("peer.sqlite*")))


def test_removed_samples_are_gone_from_memory_and_disk_and_do_not_come_back(
    make_peer: MakePeer, digits: Any, tmp_path: Path
) -> None:
    features, labels = digits.of([0, 1, 2])

    async def run() -> None:
        async with make_peer("a", rule=rules.create("evidence")) as a:
            a.add(features, labels, features=True)
            await a.run(1)
            rows = [features[place].astype("<f4").tobytes() for place in (0, 1, 5)]
            assert all(row in on_disk(tmp_path / "a") for row in rows)
            assert a.remove(features[:2], labels[:2], features=True) == 2
            assert a.remove(features[:2], labels[:2], features=True) == 0
            # Another batch may be rounded otherwise; another class is another sample.
            assert a.remove(features[5:6] * (1 + 1e-6), ["1"], features=True) == 0
            assert a.remove(features[5:6] * (1 + 1e-6), [str(labels[5])], features=True) == 1
            assert held(a)[:3] == [27, 30, 30]
            assert not any(row in on_disk(tmp_path / "a") for row in rows)
            assert a.add(features, labels, features=True) == 0, "they are known by their digests"
        async with make_peer("a", rule=rules.create("evidence")) as a:
            assert held(a)[:3] == [27, 30, 30]
            assert a.add(features, labels, features=True) == 0
            assert a.remove_classes(["1", "7"]) == 30
            assert a.remove_classes([2]) == 30
            await a.run(1)
            assert held(a)[:3] == [27, 0, 0]
            with pytest.raises(ValueError, match="there is no class 'x'"):
                a.remove_classes(["x"])
            with pytest.raises(ValueError, match="give one each"):
                a.remove(features[:3], labels[:2], features=True)
            with pytest.raises(ValueError, match=r"labels are <U1 \[2, 1\]: give a class number or a name for each"):
                a.add(features[:2], [["1"], ["7"]], features=True)

    asyncio.run(run())


def test_what_the_disk_keeps_is_not_gone(make_peer: MakePeer, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise TryAgainError("the disk is full")

    async def run() -> None:
        async with make_peer("a", rule=rules.create("evidence")) as a:
            a.add(*digits.of([0, 1]), features=True)
            with monkeypatch.context() as patch:
                patch.setattr(state_of(a).store, "remove_samples", full)
                with pytest.raises(TryAgainError):
                    a.remove_classes([0])
            assert held(a)[:2] == [30, 30]
            assert a.remove_classes([0]) == 30

    asyncio.run(run())


def test_others_use_removed_samples_no_more(make_peer: MakePeer, digits: Any) -> None:
    features, labels = digits.of(range(5))

    def counts(peer: Peer) -> dict[int, int]:
        decided = peer.status().decided
        return {} if decided is None else {one.label: one.count for heard in decided.heard for one in heard.classes}

    async def run() -> None:
        evidence = rules.create("evidence")
        async with make_peer("a", rule=evidence) as a, make_peer("b", rule=evidence, known=[a.address]) as b:
            a.add(features, labels, features=True)
            b.add(*digits.of(range(4, 10)), features=True)
            running = [asyncio.create_task(peer.run()) for peer in (a, b)]
            await until(lambda: counts(b) == dict.fromkeys(range(5), 30))
            zero = np.flatnonzero(labels == 0)
            before, head = state_of(a).own, a.head.copy()
            assert before is not None
            a.remove(features[zero[:1]], labels[zero[:1]], features=True)
            # One sample is the difference of two means: nothing is said of its class.
            await until(lambda: counts(b) == dict.fromkeys(range(1, 5), 30))
            await until(lambda: not np.array_equal(a.head, head))
            withdrawn = state_of(a).own
            assert withdrawn is not None
            assert withdrawn.signed.number > before.signed.number
            a.remove(features[zero[1:15]], labels[zero[1:15]], features=True)
            await until(lambda: counts(b) == {0: 15} | dict.fromkeys(range(1, 5), 30))
            a.remove_classes([1])
            await until(lambda: counts(b) == {0: 15} | dict.fromkeys(range(2, 5), 30))
            for peer in (a, b):
                peer.stop()
            await asyncio.gather(*running)
        async with make_peer("a", rule=evidence) as a:
            own = state_of(a).own
            assert own is not None
            await a.run(1)
            again = state_of(a).own
            assert again is not None
            assert again.signed == own.signed, "a restart knows what was withdrawn"

    asyncio.run(run())


def test_what_holds_removed_samples_alone_is_not_renewed(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("a", rule=rules.create("evidence")) as a:
            a.add(*digits.of([0, 1]), features=True)
            await a.run(1)
            stated = state_of(a).own
            assert stated is not None
            a.remove_classes([0, 1])
            await a.run(1)
            assert not a.head.any()
            a._exchanging._clock = lambda: stated.signed.expires - LIFETIME / 4  # type: ignore[attr-defined]
            await a._exchanging.share()
            kept = state_of(a).own
            assert kept is not None
            assert kept.signed == stated.signed
            assert kept.stated.removed[:2].all()
            a.add(*digits.of([2]), features=True)
            await a._exchanging.share()
            after = state_of(a).own
            assert after is not None
            assert after.signed.number > stated.signed.number
            assert not after.stated.removed.any()

    asyncio.run(run())


def test_a_statement_that_is_under_way_meanwhile_is_not_kept(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("a", rule=rules.create("evidence")) as a:
            a.add(*digits.of([0, 1]), features=True)
            state = state_of(a)
            assert state.evidence is not None
            wanted = state.evidence.to_state(None)
            assert state.own_statement(wanted, removals=state.removals) is not None
            before = state.removals
            a.remove_classes([0])
            assert state.own_statement(wanted, removals=before) is None
            await a.run(1)
            own = state.own
            assert own is not None
            assert not state.keep_own(own, removals=before)
            assert state.keep_own(own, removals=state.removals)

    asyncio.run(run())


def test_peers_that_share_heads_train_on_what_is_left(make_peer: MakePeer, digits: Any) -> None:
    async def run() -> None:
        async with make_peer("a") as a:
            a.add(*digits.of([0, 1]), features=True)
            await a.run(2)
            assert a.remove_classes([0]) == 30
            await a.run(2)
            assert held(a)[:2] == [0, 30]
            assert a.iteration == 4

    asyncio.run(run())
