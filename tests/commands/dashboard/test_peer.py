"""What a running peer shows of itself: two real peers on loopback, and the page of one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bristle import Bristle
from bristle.backbones.backbone import CallableBackbone
from bristle.commands.dashboard import Feed
from bristle.commands.dashboard.peer import SHOWN, PeerBoard
from bristle.peer.pace import Pace
from bristle.peer.peer import Peer
from bristle.report.snapshot import MemberKind, RunState

CLASSES, FEATURES = tuple("abcd"), 12


def itself(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return x


def samples(classes: list[int]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(len(CLASSES), FEATURES))
    labels = np.repeat(classes, 30)
    return (centres[labels] + rng.normal(size=(len(labels), FEATURES))).astype(np.float32), labels


def test_two_peers_and_the_page_of_one(tmp_path: Path) -> None:
    async def both() -> None:
        feed = Feed()
        backbone = CallableBackbone(itself, name="itself", version="1", features=FEATURES, input_shape=(FEATURES,))
        common = {"application": "letters", "classes": CLASSES, "backbone": backbone, "rule": Bristle()}
        common["pace"] = Pace(interval=0.02)
        test = samples([0, 1, 2, 3])
        async with Peer(folder=tmp_path / "one", test=test, test_every=2, **common) as one:  # type: ignore[arg-type]
            board = PeerBoard(one, feed, total=None)
            one.on_iteration = board.took
            async with Peer(folder=tmp_path / "two", known=[one.address], **common) as two:  # type: ignore[arg-type]
                one.add(*samples([0, 1]), features=True)
                two.add(*samples([1, 2]), features=True)
                async with board, asyncio.timeout(120):
                    assert json.loads(feed.newer_than(-1) or b"")["state"] == "starting"
                    others = asyncio.create_task(two.run())
                    running = asyncio.create_task(one.run())
                    while not (
                        board.snapshot(RunState.RUNNING).judgements
                        and len(board.snapshot(RunState.RUNNING).history) > 1
                    ):
                        await asyncio.sleep(0.05)
                    found = board.snapshot(RunState.RUNNING)
                    one.stop()
                    two.stop()
                    await asyncio.gather(running, others)
                ended = json.loads(feed.newer_than(-1) or b"")
        assert found.title == "letters"
        assert [member.kind for member in found.members] == [MemberKind.OWN, MemberKind.UNKNOWN]
        own, other = found.members
        assert own.holds == (0, 1)
        assert own.hears == (1,)
        assert own.bytes_in
        assert own.accuracy is not None, "of its latest test, which may be newer than the history's"
        assert other.name == two.key_id[:SHOWN]
        assert other.holds is None, "what others hold is their business"
        (judgement,) = found.judgements
        assert judgement.senders == [1]
        assert judgement.weights.shape == (1, 4)
        assert ended["state"] == "interrupted"

    asyncio.run(both())
