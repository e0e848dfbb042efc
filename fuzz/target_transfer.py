"""Heads and statements that come in: manifests and pieces of several of two senders, in any order, cut and changed.

An input is a list of things that happen, each a byte that says which and some that say how.
"""

from __future__ import annotations

import numpy as np

from bristle.p2p.inbox import BodyInbox
from bristle.p2p.limits import Limits, NeighbourBudget, SharedBudget
from bristle.p2p.neighbour import Counters, Link
from bristle.rules.evidence.statement import Statement
from bristle.wire import messages
from bristle.wire.encoding import decode_head
from bristle.wire.kinds import Kind
from bristle.wire.manifest import decode_manifest
from bristle.wire.messages import Piece, SignedManifest
from bristle.wire.refusal import Refusal
from bristle.wire.session import Session
from harness import BrokenPromiseError, Reader, Target, counted
from world import GROUP, LIAR, OTHER, SEQUENCE, Signed, signed_by

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


def _expected() -> dict[tuple[bytes, int], np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return what each sender really signed."""
    found = {}
    for key_id, heads in HEADS.items():
        for each in heads:
            if each.kind != Kind.HEAD:
                continue
            manifest = decode_manifest(each.manifest, GROUP)
            assert not isinstance(manifest, Refusal)
            head = decode_head(
                each.body, shape=manifest.shape, encoding=manifest.encoding, compression=manifest.compression
            )
            if not isinstance(head, Refusal):
                found[key_id, each.sequence] = head
    return found


STATEMENTS = {(key_id, each.sequence): each for key_id, heads in HEADS.items() for each in heads if each.statement}


EXPECTED = _expected()


def check(data: bytes) -> str:
    """Let it happen; whatever did, memory is accounted for, and every head that arrived is the one that was signed."""
    counters = Counters()
    answers: list[bytes] = []
    shared = SharedBudget(LIMITS)
    inbox = BodyInbox(
        group=GROUP, limits=LIMITS, counters=counters, shared=shared, send=lambda link, message: answers.append(message)
    )
    links = [
        Link(sender.key, sender.key_id, ("127.0.0.1", 1 + at), SESSION, NeighbourBudget(LIMITS), 0, 0)
        for at, sender in enumerate(SENDERS)
    ]
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
        else:
            message = _message(reader, kind, HEADS[link.key_id])
            if isinstance(message, SignedManifest):
                inbox.on_manifest(link, message, 1200, now)
            elif isinstance(message, Piece):
                inbox.on_piece(link, message, 1200, now)
        held = sum(incoming.size for each in links for incoming in each.incoming.values())
        if held != inbox.memory or held > LIMITS.memory:
            raise BrokenPromiseError(f"heads of {held} bytes are coming in, {inbox.memory} are accounted for")
        taken += _taken(inbox)
    for answer in answers:
        if isinstance(messages.decode(answer), Refusal):
            raise BrokenPromiseError(f"answered {answer.hex()}, which no peer understands")
    return "taken" if taken else next(iter(counters.refused), "incomplete")


def _taken(inbox: BodyInbox) -> int:
    """Return how many heads and statements arrived; each is one that was signed."""
    heads, statements = inbox.take(), inbox.take_statements()
    for received in heads:
        expected = EXPECTED.get((received.sender, received.sequence))
        if expected is None or not np.array_equal(received.head, expected):
            raise BrokenPromiseError(f"a head of sequence {received.sequence} arrived that nobody signed")
    for stated in statements:
        said = STATEMENTS.get((stated.sender, stated.sequence))
        if said is None or said.body != stated.body or not _alike(stated.statement, said.statement):
            raise BrokenPromiseError(f"a statement of sequence {stated.sequence} arrived that nobody signed")
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
        return SignedManifest(reader.byte(), size, bytes(content), head.kind)
    index, cut, forged = reader.byte(), reader.byte(), reader.byte()
    body = head.body[size * index : size * (index + 1)] or b"beyond"
    body = body[: len(body) - cut] or b"x"
    if forged:
        body = bytes([body[0] ^ forged]) + body[1:]
    # Sequences are near each other, so that older and newer heads meet.
    return Piece(head.sequence, reader.byte(), index, body, head.kind)


def _whole(number: int, *, sender: int = 0, size: int = 1, order: tuple[int, ...] | None = None) -> bytes:
    """Return the happenings of one head: its manifest at -1, and its pieces, in some order."""
    head = HEADS[SENDERS[sender].key_id][number]
    first = _OTHER * sender
    pieces = -(-len(head.body) // SIZES[size])
    made = b""
    for index in order if order is not None else (-1, *range(pieces)):
        if index < 0:
            made += bytes([first | MANIFEST, number, size, 0xFF, 0xFF, 1])
        else:
            made += bytes([first | PIECE, number, size, index, 0, 0, 1])
    return made


def seeds() -> dict[str, bytes]:
    """Return heads in order and not, one after the other and mixed."""
    backwards = tuple(range(6, -2, -1))
    raw = messages.encode(Piece(SEQUENCE, 1, 0, b"raw"))
    return {
        "in-order": _whole(0),
        "plain": _whole(1),
        "backwards": _whole(1, order=backwards),
        "small-pieces": _whole(2, size=0),
        "large-pieces": _whole(3, size=2),
        "not-finite": _whole(4),
        "bomb": _whole(5),
        "no-zlib": _whole(6),
        "int8": _whole(7),
        "statement": _whole(8),
        "statement-plain": _whole(9, size=0),
        "statement-expired": _whole(10),
        "statement-of-nothing": _whole(11),
        "statement-among-heads": _whole(9, order=(-1, 0, 1)) + _whole(7) + _whole(9, order=(2, 3, 4, 5, 6)),
        "two-senders": _whole(1) + _whole(1, sender=1),
        "mixed": _whole(1, order=(-1, 0, 1, 2)) + _whole(2, sender=1) + _whole(1, order=(3, 4, 5, 6)),
        "newer-first": _whole(3) + _whole(2),
        "slow": _whole(1, order=(-1, 0)) + bytes([TIME, 255]) + _whole(1, order=(1, 2)),
        "raw": bytes([RAW]) + counted(raw) + _whole(2),
    }


TARGET = Target(name="transfer", check=check, seeds=seeds, largest=1500)
