"""Live peers whose backbones have one digest, and compute different things."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from bristle import Peer
from bristle.backbones import CallableBackbone
from bristle.commands.status import show
from tests.support.network import eventually

MakePeer = Callable[..., Peer]


def backbone(function: Callable[[Any], Any]) -> CallableBackbone:
    return CallableBackbone(function, name="flat", version="1", features=800, input_shape=(20, 40), input_dtype="uint8")


def test_status_says_who_computes_other_features_and_by_how_much(make_peer: MakePeer) -> None:
    def flat(x: Any) -> Any:
        return x.reshape(len(x), -1).astype(np.float32) / 255

    async def run() -> None:
        async with make_peer("a", backbone=backbone(flat)) as a:
            options: dict[str, Any] = {"known": [a.address]}
            async with (
                make_peer("b", backbone=backbone(lambda x: flat(255 - x)), **options) as b,
                make_peer("c", backbone=backbone(lambda x: flat(x) * np.float32(1.001)), **options) as c,
            ):
                await eventually(
                    lambda: all(
                        [one.difference for one in peer.status().neighbours].count(None) == 0
                        and len(peer.status().neighbours) == 2
                        for peer in (a, b, c)
                    )
                )
                status = a.status()
                by_key = {one.key_id: one.difference for one in status.neighbours}
                assert (by_key[b.key_id] or 0) > 0.2
                assert (by_key[c.key_id] or 0) < 0.01
                assert status.counters["features_differ"] == 1
                assert b.status().counters["features_differ"] == 2
                console = Console(record=True, width=200)
                show(status, console)
                shown = console.export_text()
                assert "compare backbone, runtime and preprocessing" in shown
                assert "the same" in shown

    asyncio.run(run())
