"""A peer that shares a head a few times a second, and writes what it sees to stdout as lines of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import Any

import numpy as np

from bristle.p2p import Limits, Overlay
from bristle.wire import Group, Identity

GROUP = Group(application="routers", backbone="backbone", classes=tuple("0123456789"), features=400)
PORT = 7700


async def run(*, known: str | None, limits: dict[str, Any] | None = None, interval: float = 0.5) -> None:
    """Share and listen until the process is killed."""
    overlay = Overlay(
        identity=Identity.generate(),
        group=GROUP,
        listen=("0.0.0.0", PORT),
        known=[] if known is None else [(known, PORT)],
        limits=Limits(**(limits or {})),
    )
    rng, loop = np.random.default_rng(0), asyncio.get_running_loop()
    heard: Counter[str] = Counter()
    first: dict[str, float] = {}
    await overlay.start()
    began = shared = loop.time()
    iteration = 0
    while True:
        now = loop.time()
        if now >= shared:
            iteration, shared = iteration + 1, now + interval
            overlay.share(rng.normal(0, 0.05, GROUP.shape), iteration=iteration)
        for head in overlay.take():
            heard[head.sender.hex()] += 1
            first.setdefault(head.sender.hex(), now - began)
        seen = {
            "key_id": overlay.identity.key_id.hex(),
            "time": now - began,
            "iteration": iteration,
            "heard": heard,
            "first": first,
            "neighbours": {one.key_id.hex(): _way(one) for one in overlay.neighbours()},
            "counters": {name: value for name, value in vars(overlay.counters).items() if name != "refused"},
            "refused": overlay.counters.refused,
        }
        print(json.dumps(seen), flush=True)
        await asyncio.sleep(0.1)


def _way(neighbour: Any) -> dict[str, Any]:
    forwarder = None if neighbour.forwarder is None else neighbour.forwarder.hex()
    return {
        "reached": neighbour.reached,
        "forwarder": forwarder,
        "address": neighbour.address,
        "silent": neighbour.last_heard,
    }


if __name__ == "__main__":
    asyncio.run(run(**json.loads(sys.argv[1])))
