"""A peer whose store takes nothing for a while: SQLite's own refusal, as on a full disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bristle import Peer
from bristle.peer.pace import Pace
from bristle.peer.record import Turn
from bristle.peer.store_files import TryAgainError

MakePeer = Callable[..., Peer]


def refuse(peer: Peer, refused: bool) -> None:
    """Let the store take nothing, or everything again."""
    peer._open_state.store._connection.execute(f"PRAGMA query_only = {'ON' if refused else 'OFF'}")


def test_it_waits_says_so_and_goes_on(make_peer: MakePeer, digits: Any, caplog: pytest.LogCaptureFixture) -> None:
    turns: list[Turn] = []

    async def run() -> None:
        pace = Pace(interval=0.01, check_every=0.02)
        async with make_peer("a", pace=pace, on_iteration=turns.append) as peer:
            peer.add(*digits.of([0, 1]), features=True)
            await peer.run(3)
            head, accuracy = peer.head.copy(), peer.status().accuracy
            refuse(peer, True)
            running = asyncio.create_task(peer.run(2))
            while peer.status().waiting is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            said = peer.status().waiting
            assert said is not None
            assert said.startswith("cannot keep what it learns: ")
            assert "free some space" in said
            assert peer.iteration == peer.status().iteration == 3
            assert peer.status().accuracy == accuracy
            np.testing.assert_array_equal(peer.head, head, "what could not be kept has not happened")
            refuse(peer, False)
            await running
            assert peer.iteration == 5
            assert peer.status().waiting is None
        assert [turn.record.iteration for turn in turns] == [1, 2, 3, 4, 5]

    with caplog.at_level(logging.WARNING, logger="bristle.peer"):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["held back"], "the log is told once"


def test_samples_that_cannot_be_kept_are_not_added(make_peer: MakePeer, digits: Any) -> None:
    features, labels = digits.of([0, 1, 2])

    async def run() -> None:
        async with make_peer("a") as peer:
            assert peer.add(features[:40], labels[:40], features=True) == 40
            before = peer.status().samples
            refuse(peer, True)
            with pytest.raises(TryAgainError, match="cannot be written"):
                peer.add(features, labels, features=True)
            assert peer.status().samples == before
            refuse(peer, False)
            assert peer.add(features, labels, features=True) == len(labels) - 40, "who tries again adds them"
            after = peer.status().samples
            assert sum(one.training + one.held_out for one in after) == len(labels)
        async with make_peer("a") as peer:
            assert peer.status().samples == after

    asyncio.run(run())


def test_one_that_stops_without_room_keeps_what_it_has(
    make_peer: MakePeer, digits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with make_peer("a") as peer:
            peer.add(*digits.of([0]), features=True)
            await peer.run(2)
            refuse(peer, True)
        async with make_peer("a") as peer:
            assert peer.iteration == 2

    with caplog.at_level(logging.WARNING, logger="bristle.peer"):
        asyncio.run(run())
    assert [record.message for record in caplog.records] == ["counters not kept"]
