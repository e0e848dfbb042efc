"""What 10,000 invented authors do to a peer: by one neighbour, by five, and with lies among what they bring.

`python benchmarks/flood_authors.py` lets hostile members of an open group offer well-signed statements of 10,000
authors to a peer that has five honest neighbours as well. Each honest one states something new every two seconds, and
brings something new of somebody else in between. The victim is an `Overlay` with sockets, signatures and the usual
limits in a process of its own; the others share a second one. `--json FILE` adds a row for every flood to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from bristle.p2p import Limits, Overlay, SignedStatement
from bristle.p2p.neighbour import Link
from bristle.rules.evidence import Statement
from bristle.wire import Group, Identity
from bristle.wire.encoding import ZLIB, encode_statement
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, digests_of, encode_manifest
from bristle.wire.messages import Address
from bristle.wire.offers import Holding
from bristle.wire.statements import sign_statement

SPAWN = multiprocessing.get_context("spawn")
GROUP = Group(application="authors", backbone="none", classes=tuple("0123456789"), features=800)
HONEST = 5
EVERY = 2.0
HOUR = 3600
LIES = ("forged", "expired", "forked", "replayed")
"""With lies, a tenth of the authors each."""


async def suffer(pipe: Connection) -> None:
    """Be the victim: make a note of when each statement came."""
    victim = Overlay(identity=Identity.generate(), group=GROUP)
    await victim.start()
    pipe.send(victim.address)
    came: dict[tuple[bytes, int], float] = {}
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def commanded() -> None:
        command = pipe.recv()
        if command is None:
            stopped.set()
            return
        counters = victim.counters
        pipe.send(
            {
                "authors": len(victim.statements()),
                "equivocators": len(victim.equivocators()),
                "memory": victim.node.statement_store.memory,
                "refused": dict(counters.refused),
                "taken": counters.statements_in,
                "bytes_in": counters.bytes_in,
                "came": dict(came),
                "neighbours": [one.key_id for one in victim.neighbours()],
            }
        )

    loop.add_reader(pipe.fileno(), commanded)
    while not stopped.is_set():
        arrival = asyncio.ensure_future(victim.statement_arrival())
        await asyncio.wait([arrival, asyncio.ensure_future(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
        for each in victim.take_statements():
            came.setdefault((each.author, each.number), time.monotonic())
    await victim.stop()


class Liar:
    """A member that brings statements of many authors, of which some are not what they should be."""

    def __init__(self, victim: Address, authors: list[Identity], *, lies: bool) -> None:
        limits = Limits(neighbours=1, statement_rate=1e6, send_rate=1e9)
        self.overlay = Overlay(identity=Identity.generate(), group=GROUP, known=[victim], limits=limits)
        self._versions: dict[bytes, list[tuple[Holding, SignedStatement]]] = {}
        kinds = [*LIES, *["right"] * 6] if lies else ["right"]
        for place, author in enumerate(authors):
            self._versions[author.key_id] = versions(author, kinds[place % len(kinds)])
        gossip, send = self.overlay.node.gossip, self.overlay.node.outbox.send_statement

        def sent(link: Link, signed: SignedStatement, now: float) -> None:
            send(link, signed, now)
            waiting = self._versions[signed.author]
            if len(waiting) > 1:
                del waiting[0]
                gossip.changed(signed.author)

        gossip.newest = lambda author: self._versions[author][0][0] if author in self._versions else None  # type: ignore[method-assign]
        gossip._signed = lambda author: self._versions[author][0][1] if author in self._versions else None  # type: ignore[method-assign]
        self.overlay.node.outbox.send_statement = sent  # type: ignore[method-assign]

    async def start(self) -> None:
        """Join, and wait for a place."""
        await self.overlay.start()
        while not self.overlay.neighbours():
            await asyncio.sleep(0.05)

    def flood(self) -> None:
        """Offer everything."""
        for exchange in self.overlay.node.gossip.exchanges.values():
            exchange.news.update(dict.fromkeys(self._versions))


def versions(author: Identity, kind: str) -> list[tuple[Holding, SignedStatement]]:
    """Return what is said of an author, one after the other, and what is offered for it."""
    first = signed(author, 5)
    right = _offered(first), first
    if kind == "forged":
        return [(right[0], SignedStatement(first.manifest[:-1] + bytes([first.manifest[-1] ^ 1]), first.body))]
    if kind == "expired":
        return [(right[0], signed(author, 5, expires=int(time.time()) - HOUR))]
    if kind == "forked":
        other = signed(author, 5, expires=int(time.time()) + 2 * HOUR)
        return [right, (_offered(other), other)]
    if kind == "replayed":
        old = signed(author, 4)
        return [right, (replace(right[0], number=6), old)]
    return [right]


def _offered(said: SignedStatement) -> Holding:
    return Holding(said.author, said.number, said.digest, int(time.time()) + HOUR)


_BODY = encode_statement(
    Statement(
        np.ones(GROUP.shape) * (np.arange(10) < 1)[:, None], (np.arange(10) < 1) * 25, np.zeros((0, 800)), np.ones(800)
    )
)


def signed(author: Identity, number: int, *, expires: int = 0) -> SignedStatement:
    """Return a small statement of one class."""
    manifest = Manifest(
        group=GROUP.id,
        author=author.key,
        kind=Kind.STATEMENT,
        sequence=number,
        expires=expires or int(time.time()) + HOUR,
        encoding="float16",
        compression=ZLIB,
        classes=10,
        features=800,
        body=len(_BODY),
        digests=digests_of(_BODY),
    )
    return SignedStatement(encode_manifest(manifest, author), _BODY)


async def surround(victim: Address, liars: int, authors: int, lies: bool, seconds: float, pipe: Connection) -> None:
    """Be all neighbours, the honest ones and the others."""
    rng = np.random.default_rng(0)
    honest = [
        Overlay(identity=Identity.generate(), group=GROUP, known=[victim], limits=Limits(neighbours=1))
        for _ in range(HONEST)
    ]
    for each in honest:
        await each.start()
    while not all(each.neighbours() for each in honest):
        await asyncio.sleep(0.05)
    crowd = [Identity.generate() for _ in range(authors)]
    hostile = [Liar(victim, crowd[place::liars], lies=lies) for place in range(liars)]
    for liar in hostile:
        await liar.start()
    pipe.send([each.identity.key_id for each in honest])
    pipe.recv()
    said: dict[tuple[bytes, int], float] = {}
    for phase, length in (("quiet", min(6.0, seconds)), ("flood", seconds)):
        if phase == "flood":
            for liar in hostile:
                liar.flood()
        end, number = time.monotonic() + length, int(time.time() * 1000)
        while time.monotonic() < end:
            for each in honest:
                number += 1
                statement = Statement(
                    rng.normal(size=GROUP.shape), np.full(10, 25), rng.normal(size=(20, 800)), np.ones(800)
                )
                own = each.sign_statement(statement, number=number, expires=int(time.time()) + HOUR)
                other = Identity.generate()
                brought = sign_statement(
                    statement, number=1, expires=int(time.time()) + HOUR, identity=other, group=GROUP
                )
                said[own.author, number] = said[brought.author, 1] = time.monotonic()
                each.publish(own)
                each.restore(brought)
                await asyncio.sleep(EVERY / HONEST)
        await asyncio.sleep(3.0)
        pipe.send(dict(said))
        said.clear()
        pipe.recv()
    for each in [*honest, *(liar.overlay for liar in hostile)]:
        await each.stop()


def work_victim(pipe: Connection) -> None:
    """Be the victim's process."""
    asyncio.run(suffer(pipe))


def work_others(victim: Address, liars: int, authors: int, lies: bool, seconds: float, pipe: Connection) -> None:
    """Be the others' process."""
    asyncio.run(surround(victim, liars, authors, lies, seconds, pipe))


def flood(liars: int, authors: int, *, lies: bool, seconds: float) -> dict[str, Any]:
    """Flood a peer; return how it fared."""
    mine, theirs = SPAWN.Pipe()
    victim = SPAWN.Process(target=work_victim, args=(theirs,), daemon=True)
    victim.start()
    address = mine.recv()
    watched = psutil.Process(victim.pid)
    to_others, others_pipe = SPAWN.Pipe()
    others = SPAWN.Process(target=work_others, args=(address, liars, authors, lies, seconds, others_pipe), daemon=True)
    others.start()
    honest = set(to_others.recv())
    row: dict[str, Any] = {"liars": liars, "authors": authors, "lies": lies}
    try:
        for phase in ("quiet", "flood"):
            began, cpu = time.monotonic(), sum(watched.cpu_times()[:2])
            largest = busiest = 0.0
            to_others.send("go")
            last = began, cpu
            while not to_others.poll(1.0):
                largest = max(largest, watched.memory_info().rss / 2**20)
                now = time.monotonic(), sum(watched.cpu_times()[:2])
                busiest, last = max(busiest, (now[1] - last[1]) / (now[0] - last[0])), now
            said = to_others.recv()
            share = (sum(watched.cpu_times()[:2]) - cpu) / (time.monotonic() - began)
            mine.send("report")
            report = mine.recv()
            late = [report["came"][key] - at for key, at in said.items() if key in report["came"]]
            row[phase] = {
                "honest_statements": len(said),
                "arrived": len(late),
                "seconds_median": round(median(late), 3),
                "seconds_longest": round(max(late), 3),
                "processor": round(share, 3),
                "processor_busiest_second": round(busiest, 3),
                "rss_mib": round(largest, 1),
                "statements_mib": round(report["memory"] / 2**20, 1),
                "authors_kept": report["authors"],
                "statements_taken": report["taken"],
                "equivocators": report["equivocators"],
                "honest_neighbours_kept": len(honest & set(report["neighbours"])),
                "refused": report["refused"],
            }
        to_others.send("go")
        others.join(30)
        mine.send(None)
        victim.join(30)
    finally:
        for process in (victim, others):
            if process.is_alive():
                process.kill()
    row["load"] = round(os.getloadavg()[0], 1)
    return row


def main() -> None:
    """Measure, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--liars", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--authors", type=int, default=10_000)
    parser.add_argument(
        "--lies", action="store_true", help="forged, expired, forked and replayed statements among them"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each flood")
    parser.add_argument("--json", type=Path, help="add a row for every flood to this file")
    options = parser.parse_args()
    for liars in options.liars:
        row = flood(liars, options.authors, lies=options.lies, seconds=options.seconds)
        print(json.dumps(row, indent=1), flush=True)
        if options.json:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(sys.version.split()[0], file=sys.stderr)


if __name__ == "__main__":
    main()
