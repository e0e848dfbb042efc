"""Heads and statements that come in: manifests and pieces of several of two senders, in any order, cut and changed.

An input is a list of things that happen, each a byte that says which and some that say how.
"""

from __future__ import annotations

import numpy as np

from bristle.p2p.gossip import StatementGossip
from bristle.p2p.inbox import BodyInbox
from bristle.p2p.limits import Limits, NeighbourBudget, SharedBudget
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.outbox import BodyOutbox
from bristle.rules.evidence.statement import Statement
from bristle.wire import messages
from bristle.wire.kinds import Kind
from bristle.wire.messages import Piece, SignedManifest, transfer_of
from bristle.wire.offers import Have, Holding
from bristle.wire.refusal import Refusal
from bristle.wire.session import Session
from harness import BrokenPromiseError, Reader, Target, counted
from world import CLOCK, GROUP, HONEST, LIAR, OTHER, SEQUENCE, Signed, signed_by

LIMITS = Limits(memory=10_000)
"""Less than two heads that are not compressed: the bound is met often."""

SENDERS = LIAR, OTHER
HEADS = {sender.key_id: signed_by(sender) for sender in SENDERS}
SESSION = Session(bytes(32), bytes(32), initiator=True, local=b"here", remote=b"far ")
SIZES = 512, 1188, 8148, 4096
MANIFEST, PIECE, RAW, TIME = range(4)
_OTHER = 0x80
MOST = 60
"""Things that happen in one input."""


STATEMENTS = {(key_id, each.sequence): each for key_id, heads in HEADS.items() for each in heads if each.statement}


EXPECTED = {
    (key_id, each.sequence): each.head.values()
    for key_id, heads in HEADS.items()
    for each in heads
    if each.head is not None
}
"""What each sender really signed."""


def check(data: bytes) -> str:
    """Let it happen; whatever did, memory is accounted for, and every head that arrived is the one that was signed."""
    counters = Counters()
    answers: list[bytes] = []
    shared = SharedBudget(LIMITS)

    def send(link: Link, message: bytes) -> None:
        answers.append(message)

    outbox = BodyOutbox(identity=HONEST, group=GROUP, limits=LIMITS, counters=counters, send=send, sequence=1)
    gossip = StatementGossip(
        key_id=HONEST.key_id,
        group=GROUP,
        limits=LIMITS,
        counters=counters,
        shared=shared,
        outbox=outbox,
        send=send,
        clock=lambda: CLOCK,
    )
    inbox = BodyInbox(group=GROUP, limits=LIMITS, counters=counters, shared=shared, send=send, gossip=gossip)
    links = [
        Link(sender.key, sender.key_id, ("127.0.0.1", 1 + at), SESSION, NeighbourBudget(LIMITS), 0, 0)
        for at, sender in enumerate(SENDERS)
    ]
    for link in links:
        gossip.joined(link, 0.0)
    reader, now, taken = Reader(data), 0.0, 0
    for _ in range(MOST):
        if not reader.left:
            break
        happening = reader.byte()
        link = links[happening // _OTHER]
        kind = happening % 4
        if kind == TIME:
            now += reader.byte() / 10
            inbox.tick(links, now)
            gossip.tick(links, now)
        else:
            message = _message(reader, kind, HEADS[link.key_id])
            if isinstance(message, SignedManifest):
                if message.kind == Kind.STATEMENT:
                    promised = Holding(link.key_id, 2 * SEQUENCE, bytes(16), CLOCK + 3600)
                    gossip.receive(link, Have(1, (promised,)), now)
                inbox.on_manifest(link, message, 1200, now)
            elif isinstance(message, Piece):
                inbox.on_piece(link, message, 1200, now)
        held = sum(incoming.size for each in links for incoming in each.incoming.values())
        if held != inbox.memory or held > LIMITS.memory:
            raise BrokenPromiseError(f"heads of {held} bytes are coming in, {inbox.memory} are accounted for")
        taken += _taken(inbox, gossip)
    for answer in answers:
        if isinstance(messages.decode(answer), Refusal):
            raise BrokenPromiseError(f"answered {answer.hex()}, which no peer understands")
    return "taken" if taken else next(iter(counters.refused), "incomplete")


def _taken(inbox: BodyInbox, gossip: StatementGossip) -> int:
    """Return how many heads and statements arrived; each is one that was signed."""
    heads, statements = inbox.take(), gossip.store.take()
    for received in heads:
        expected = EXPECTED.get((received.sender, received.sequence))
        if expected is None or not np.array_equal(received.head, expected):
            raise BrokenPromiseError(f"a head of sequence {received.sequence} arrived that nobody signed")
    for stated in statements:
        said = STATEMENTS.get((stated.author, stated.number))
        if said is None or said.sent != stated.signed.body or not _alike(stated.statement, said.statement):
            raise BrokenPromiseError(f"statement {stated.number} arrived, which nobody signed")
    return len(heads) + len(statements)


def _alike(found: Statement, said: Statement | None) -> bool:
    return said is not None and all(map(np.array_equal, vars(found).values(), vars(said).values()))


def _message(reader: Reader, kind: int, heads: list[Signed]) -> object:
    if kind == RAW:
        return messages.decode(reader.text())
    head = heads[reader.byte() % len(heads)]
    size = SIZES[reader.byte() % len(SIZES)]
    if kind == MANIFEST:
        # Where to flip a bit: beyond the end means nowhere.
        change, content = reader.short(), bytearray(head.manifest)
        if change >> 3 < len(content):
            content[change >> 3] ^= 1 << (change & 7)
        beside = reader.byte()
        base = head.base if not beside & 1 else SEQUENCE + beside
        base = _transfer(head) if head.kind == Kind.STATEMENT else base
        start = head.sent[: 8 * beside]
        return SignedManifest(reader.byte(), size, bytes(content), base, len(head.sent), start, head.kind)
    index, cut, forged = reader.byte(), reader.byte(), reader.byte()
    body = head.sent[size * index : size * (index + 1)] or b"beyond"
    body = body[: len(body) - cut] or b"x"
    if forged:
        body = bytes([body[0] ^ forged]) + body[1:]
    # Sequences are near each other, so that older and newer heads meet.
    return Piece(_transfer(head), reader.byte(), index, body, head.kind)


def _transfer(head: Signed) -> int:
    return head.sequence if head.kind == Kind.STATEMENT else transfer_of(head.sequence, head.base)


def _whole(number: int, *, sender: int = 0, size: int = 1, order: tuple[int, ...] | None = None) -> bytes:
    """Return the happenings of one head: its manifest at -1, and its pieces, in some order."""
    head = HEADS[SENDERS[sender].key_id][number]
    first = _OTHER * sender
    pieces = -(-len(head.sent) // SIZES[size])
    made = b""
    for index in order if order is not None else (-1, *range(pieces)):
        if index < 0:
            made += bytes([first | MANIFEST, number, size, 0xFF, 0xFF, 0, 1])
        else:
            made += bytes([first | PIECE, number, size, index, 0, 0, 1])
    return made


def seeds() -> dict[str, bytes]:
    """Return heads in order and not, in full and as differences, one after the other and mixed."""
    raw = messages.encode(Piece(2 * SEQUENCE, 1, 0, b"raw"))
    beside = bytes([MANIFEST, 0, 2, 0xFF, 0xFF, 254, 1])
    return {
        "in-order": _whole(0),
        "beside": beside,
        "difference": _whole(0) + _whole(1),
        "difference-without-base": _whole(1) + _whole(0),
        "base-unknown": _whole(4),
        "backwards": _whole(0, order=(3, 2, 1, 0, -1), size=0),
        "small-pieces": _whole(2, size=0) + _whole(3, size=0),
        "large-pieces": _whole(2, size=2) + _whole(3, size=2),
        "bomb": _whole(5),
        "no-deflate": _whole(6),
        "another-head": _whole(2) + _whole(7),
        "statement": _whole(8),
        "statement-plain": _whole(9, size=0),
        "statement-expired": _whole(10),
        "statement-of-nothing": _whole(11),
        "statement-among-heads": _whole(9, order=(-1, 0, 1)) + _whole(2) + _whole(9, order=(2, 3, 4, 5, 6)),
        "two-senders": _whole(0) + _whole(0, sender=1),
        "mixed": _whole(0, order=(-1, 0), size=0) + _whole(2, sender=1) + _whole(0, order=(1, 2, 3), size=0),
        "newer-first": _whole(2) + _whole(0),
        "slow": _whole(0, order=(-1, 0)) + bytes([TIME, 255]) + _whole(0, order=(1,)),
        "raw": bytes([RAW]) + counted(raw) + _whole(2),
    }


TARGET = Target(name="transfer", check=check, seeds=seeds, largest=1500)
