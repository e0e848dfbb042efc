from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bristle.peer.caps import CpuShare
from bristle.peer.pace import Pace, Rhythm


async def at_once() -> None:
    """Stand for a share that has left."""


def test_the_share_of_a_processor_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = wall = 0.0  # Virtual time: what a turn uses, and what passes.

    async def pass_time(seconds: float) -> None:
        nonlocal wall
        wall += seconds

    async def work() -> None:
        nonlocal cpu, wall
        rhythm = Rhythm(Pace(interval=0, cpu_share=0.2))
        assert await rhythm.next_turn(at_once, asyncio.Event())
        for turn, used in enumerate((0.03, 0.5, 0.0, 2.0), start=1):
            cpu, wall = cpu + used, wall + used
            before = wall
            assert await rhythm.next_turn(at_once, asyncio.Event())
            assert wall - before == pytest.approx(used / 0.2 - used), turn
        assert cpu / wall == pytest.approx(0.2)

    monkeypatch.setattr("bristle.peer.pace.CpuShare", partial(CpuShare, cpu=lambda: cpu, wall=lambda: wall))
    monkeypatch.setattr("bristle.peer.pace.asyncio.sleep", pass_time)
    asyncio.run(work())


def test_no_turn_before_the_last_share_has_left() -> None:
    async def run() -> None:
        rhythm, left, stopping = Rhythm(Pace(interval=0)), asyncio.Event(), asyncio.Event()

        async def sent() -> None:
            await left.wait()

        turn = asyncio.create_task(rhythm.next_turn(sent, stopping))
        await asyncio.sleep(0.02)
        assert not turn.done()
        left.set()
        assert await turn
        stopping.set()
        assert not await rhythm.next_turn(sent, stopping)

    asyncio.run(run())


def test_what_fails_while_one_waits_is_told() -> None:
    async def broken() -> None:
        raise OSError("the network is gone")

    def confused() -> bool:
        raise RuntimeError("no such sensor")

    with pytest.raises(OSError, match="network is gone"):
        asyncio.run(Rhythm(Pace()).next_turn(broken, asyncio.Event()))
    with pytest.raises(RuntimeError, match="no such sensor"):
        asyncio.run(Rhythm(Pace(train_when=confused)).next_turn(at_once, asyncio.Event()))


@pytest.mark.parametrize("options", [{"interval": float("nan")}, {"check_every": 0}, {"cpu_share": -1}])
def test_bad_paces_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Pace(**options)  # type: ignore[arg-type]
