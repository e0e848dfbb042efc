"""Peers that are killed with SIGKILL while they state something new: whether one ever signs a number twice.

`python benchmarks/kills_statements.py --kills 1000` starts peers again and again, ten times each, with more and more
samples, so that they state them anew, and kills them at random moments of their lives, most often while they start,
sign, store or send. A listener, which lives through all of it, makes a note of every statement that comes: two with one
number and different contents would be an equivocation, and none may be of fewer samples than an earlier one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bristle import Peer
from bristle.backbones import NoBackbone
from bristle.p2p import Limits, Overlay
from bristle.peer.pace import Pace
from bristle.wire import Group, Identity

CLASSES, FEATURES = ("0", "1", "2"), 16
LONGEST = 0.6
"""Seconds that a peer lives, at most."""

MORE = 60
"""Samples added every 0.05 s: at first, enough for a new statement."""

LIVES = 10
"""Lives of a peer, until a new one takes its place: the more samples it has, the rarer it states something new."""


async def live(folder: Path, port: int, life: int) -> None:
    """Be the peer until killed."""
    rng = np.random.default_rng(life)
    peer = Peer(
        application="kills",
        classes=CLASSES,
        folder=folder,
        backbone=NoBackbone(FEATURES),
        known=[("127.0.0.1", port)],
        limits=Limits(neighbours=1),
        pace=Pace(interval=0.0),
    )
    async with peer:
        running = asyncio.create_task(peer.run())
        for _ in range(100):
            peer.add(rng.normal(size=(MORE, FEATURES)).astype(np.float32), rng.integers(0, 3, MORE), features=True)
            await asyncio.sleep(0.05)
        await running


def start(folder: Path, port: int, life: int) -> int:
    """Fork a process that is the peer; return its number."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        asyncio.run(live(folder, port, life))
    finally:
        os._exit(1)  # It ends by being killed.


async def listen(kills: int, seed: int) -> dict[str, Any]:
    """Listen while a peer is killed again and again; return what was heard."""
    chance = random.Random(seed)
    backbone = NoBackbone(FEATURES)
    group = Group(application="kills", backbone=backbone.digest, classes=CLASSES, features=FEATURES)
    listener = Overlay(identity=Identity.generate(), group=group, limits=Limits(handshake_rate=1000.0))
    await listener.start()
    heard: dict[tuple[bytes, int], set[bytes]] = {}
    most: dict[bytes, int] = {}
    lost = ended = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for life in range(kills):
            child = start(Path(folder) / f"peer-{life // LIVES}", listener.address[1], life)
            end = time.monotonic() + chance.uniform(0.0, LONGEST)
            while time.monotonic() < end:
                await asyncio.sleep(0.01)
                for each in listener.take_statements():
                    heard.setdefault((each.author, each.number), set()).add(each.signed.digest)
                    samples = int(np.asarray(each.statement.counts).sum())
                    lost += samples < most.get(each.author, 0)
                    most[each.author] = max(samples, most.get(each.author, 0))
            done, _ = os.waitpid(child, os.WNOHANG)
            ended += done != 0
            if not done:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    equivocators = len(listener.equivocators())
    counters = listener.counters
    await listener.stop()
    return {
        "kills": kills - ended,
        "ended_by_themselves": ended,
        "peers": len(most),
        "statements_heard": len(heard),
        "numbers_signed_twice": sum(len(digests) > 1 for digests in heard.values()),
        "equivocators": equivocators,
        "statements_with_fewer_samples_than_before": lost,
        "refused": dict(counters.refused),
        "seconds": round(time.monotonic() - began),
        "seed": seed,
    }


def main() -> None:
    """Kill, and print what was heard."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(listen(options.kills, options.seed)), indent=1))


if __name__ == "__main__":
    main()
