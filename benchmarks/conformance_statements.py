"""What Bristle makes of hostile statements: one member of the group says them to another, over real sockets.

`python benchmarks/conformance_statements.py [--out docs/conformance.md]` writes a section of that page.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import numpy as np

import repository  # noqa: F401
from bristle.p2p import Overlay, SignedStatement
from bristle.rules.evidence import Statement
from bristle.wire import Group, Identity
from bristle.wire import messages as wire
from bristle.wire.encoding import PLAIN, ZLIB, encode_statement
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, digests_of, encode_manifest
from bristle.wire.offers import CONVICTED, EquivocationProof, Have, Holding, SignedRenewal
from bristle.wire.statements import Proof, sign_statement
from sections import run_as_script, table_of

FEATURES = 80
GROUP = Group(application="conformance", backbone="none", classes=tuple("0123456789"), features=FEATURES)
SECTION = "conformance_statements"
HOUR = 3600
PIECE = 1100


def statement(value: float = 1.0) -> Statement:
    """Return a statement."""
    return Statement(np.full(GROUP.shape, value), np.full(10, 25), np.ones((2, FEATURES)), np.ones(FEATURES))


class Pair:
    """A victim, and a member of its group that says what it likes."""

    def __init__(self, victim: Overlay, liar: Overlay) -> None:
        self.victim, self.liar, self.author = victim, liar, Identity.generate()
        self._order, self._transfer = 2**31, 2**50

    def say(self, message: wire.Message) -> None:
        """Seal and send a message."""
        (link,) = self.liar.node.membership.links.values()
        self.liar.node.send_message(link, wire.encode(message))

    async def offer(self, author: bytes, number: int, digest: bytes = bytes(16)) -> None:
        """Offer a statement, and wait until the victim has asked for it."""
        self._order += 1
        self.say(Have(self._order, (Holding(author, number, digest, int(time.time()) + HOUR),)))
        await self.until(lambda: author in self.victim.node.gossip._asked)

    def send(self, manifest: bytes, body: bytes) -> None:
        """Send a statement."""
        self._transfer += 1
        self.say(wire.SignedManifest(1, PIECE, manifest, self._transfer, len(body), kind=Kind.STATEMENT))
        for index in range(-(-len(body) // PIECE)):
            piece = body[PIECE * index : PIECE * (index + 1)]
            self.say(wire.Piece(self._transfer, 2 + index, index, piece, Kind.STATEMENT))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, or for two seconds."""
        end = time.monotonic() + 2.0
        while not condition() and time.monotonic() < end:
            await asyncio.sleep(0.01)

    def signed(self, number: int, value: float = 1.0, *, expires: int | None = None) -> SignedStatement:
        """Return a statement of the author that is nobody's neighbour."""
        until = int(time.time()) + HOUR if expires is None else expires
        return sign_statement(statement(value), number=number, expires=until, identity=self.author, group=GROUP)

    def made(self, body: bytes, *, compression: int = PLAIN, rank: int = 2) -> bytes:
        """Return the signed manifest of anything at all."""
        manifest = Manifest(
            group=GROUP.id, author=self.author.key, kind=Kind.STATEMENT, sequence=5, expires=int(time.time()) + HOUR,
            encoding="float32", compression=compression, classes=10, features=FEATURES, rank=rank, body=len(body),
            digests=digests_of(body),
        )  # fmt: skip
        return encode_manifest(manifest, self.author)

    async def deliver(self, manifest: bytes, body: bytes, *, number: int = 5) -> None:
        """Offer and send."""
        await self.offer(self.author.key_id, number)
        self.send(manifest, body)

    async def take(self, number: int = 5) -> SignedStatement:
        """Let the victim have a right statement."""
        said = self.signed(number)
        await self.deliver(said.manifest, said.body, number=number)
        await self.until(lambda: any(one.number == number for one in self.victim.statements()))
        return said


async def nan(pair: Pair) -> None:
    body = bytearray(encode_statement(statement(), encoding="float32", compress=False))
    for plane in range(4):  # Byte planes: a value is spread over four parts of the body.
        values = len(body) - 40 - 13
        at = 40 + 13 + plane * values // 4
        body[at : at + FEATURES] = bytes([np.full(1, np.nan, "<f4").tobytes()[plane]]) * FEATURES
    await pair.deliver(pair.made(bytes(body)), bytes(body))


async def short(pair: Pair) -> None:
    body = encode_statement(statement(), encoding="float32", compress=False)[:-4]
    await pair.deliver(pair.made(body), body)


async def no_count(pair: Pair) -> None:
    body = bytes(40 + 3 * (1 + 4 * FEATURES))
    await pair.deliver(pair.made(body), body)


async def bomb(pair: Pair) -> None:
    body = zlib.compress(bytes(4_000_000))
    await pair.deliver(pair.made(body, compression=ZLIB), body)


async def forged(pair: Pair) -> None:
    said = pair.signed(5)
    other = Identity.generate()
    manifest = said.manifest[:24] + other.key + said.manifest[56:]
    await pair.offer(other.key_id, 5)
    pair.send(manifest, said.body)


async def changed(pair: Pair) -> None:
    said = pair.signed(5)
    await pair.deliver(said.manifest, said.body[:-1] + bytes([said.body[-1] ^ 1]))


async def replayed(pair: Pair) -> None:
    said = await pair.take(5)
    await pair.take(6)
    await pair.offer(pair.author.key_id, 7)
    pair.send(said.manifest, said.body)


async def expired(pair: Pair) -> None:
    said = pair.signed(5, expires=int(time.time()) - HOUR)
    await pair.deliver(said.manifest, said.body)


async def for_ever(pair: Pair) -> None:
    said = pair.signed(5, expires=int(time.time()) + 365 * 86_400)
    await pair.deliver(said.manifest, said.body)


async def forked(pair: Pair) -> None:
    await pair.take(5)
    other = pair.signed(5, 2.0)
    await pair.offer(other.author, 5, other.digest)
    pair.send(other.manifest, other.body)


async def unasked(pair: Pair) -> None:
    said = pair.signed(5)
    pair.send(said.manifest, said.body)


async def false_renewal(pair: Pair) -> None:
    said = await pair.take(5)
    renewal = said.renew(pair.author, int(time.time()) + 2 * HOUR).renewal
    pair._order += 1
    pair.say(Have(pair._order, (Holding(said.author, 5, said.digest, int(time.time()) + 2 * HOUR),)))
    await pair.until(lambda: said.author in pair.victim.node.gossip._asked)
    pair.say(SignedRenewal(renewal[:-1] + bytes([renewal[-1] ^ 1])))


async def false_proof(pair: Pair) -> None:
    first, newer = pair.signed(5), pair.signed(6)
    await pair.offer(pair.author.key_id, CONVICTED)
    pair.say(EquivocationProof(Proof(first.manifest, newer.manifest).to_bytes()))


CASES: dict[str, tuple[Callable[[Pair], Awaitable[None]], str]] = {
    "NaN": (nan, "in the place of a mean"),
    "short": (short, "one value is missing"),
    "no counts": (no_count, "of no sample at all"),
    "decompression bomb": (bomb, "4 MB of zeros, packed"),
    "forged author": (forged, "in the name of somebody else"),
    "changed on the way": (changed, "one bit differs from what was signed"),
    "replayed": (replayed, "an old one, once more"),
    "expired": (expired, "it ceased to count an hour ago"),
    "for ever": (for_ever, "it expires in a year"),
    "forked": (forked, "another one of the same number, well signed"),
    "unasked": (unasked, "nobody asked for it"),
    "false renewal": (false_renewal, "one bit of the signature differs"),
    "false proof": (false_proof, "two statements of different numbers, well signed"),
}


async def observe(case: str) -> str:
    """Return what became of a hostile statement."""
    async with AsyncExitStack() as exits:
        victim = Overlay(identity=Identity.generate(), group=GROUP)
        liar = Overlay(identity=Identity.generate(), group=GROUP, known=[])
        await victim.start()
        exits.push_async_callback(victim.stop)
        liar = Overlay(identity=Identity.generate(), group=GROUP, known=[victim.address])
        await liar.start()
        exits.push_async_callback(liar.stop)
        pair = Pair(victim, liar)
        await pair.until(lambda: bool(victim.neighbours() and liar.neighbours()))
        await CASES[case][0](pair)
        await pair.until(lambda: bool(victim.counters.refused))
        refused = ", ".join(victim.counters.refused) or "nothing"
        kept = [one.number for one in victim.statements()]
        convicted = "; its author is excluded, and the proof is passed on" if victim.equivocators() else ""
        return f"refused: {refused}{convicted}" + (f"; statement {kept[0]} stays" if kept else "")


def section() -> str:
    """Return the section of the page."""
    rows = [f"| {case} | {what} | {asyncio.run(observe(case))} |" for case, (_, what) in CASES.items()]
    words = [
        "What a member of the group may bring where statements are exchanged: two peers on loopback, as above, and",
        "a statement of a third. Made by `python benchmarks/conformance_statements.py`.",
    ]
    return table_of("Hostile statements", words, ["statement", "what is wrong with it", "Bristle"], rows)


if __name__ == "__main__":
    run_as_script(__doc__, SECTION, section)
