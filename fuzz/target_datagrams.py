"""A whole peer, fed by a neighbour that does not keep to the protocol and by strangers: `Node.receive` and `Node.tick`.

An input is a list of things that happen, each a byte that says which, most with a byte string.
"""

from __future__ import annotations

import logging
import random

import numpy as np

from bristle.p2p.limits import Limits
from bristle.p2p.node import Node
from bristle.rules.evidence.statement import unfit
from bristle.wire import messages
from bristle.wire.handshake import Caller, CookieJar, prefix_of
from bristle.wire.kinds import Kind
from bristle.wire.messages import Acknowledgement, Leave, Peers, Piece, SignedManifest, transfer_of
from bristle.wire.offers import Have, Holding, Want
from bristle.wire.session import Session
from harness import BrokenPromiseError, Reader, Target, counted
from world import CLOCK, GROUP, HONEST, LIAR, OTHER, SEQUENCE, signed_by

LIMITS = Limits(memory=10_000, neighbours=3, contacts=16)
NEIGHBOUR, STRANGER = ("127.0.0.1", 2), ("127.0.0.1", 3)
HEADS = signed_by(LIAR)
HEAD = np.random.default_rng(7).normal(0, 0.1, GROUP.shape).astype(np.float32)
SEALED, RAW, STRANGE, PREFIXED, JOIN, TIME, SHARE, HEAD_PART = range(8)
START = 1000.0
logging.getLogger("bristle.p2p").setLevel(logging.ERROR)  # Warnings of other versions would hide what a run prints.
MOST = 40
"""Things that happen in one input: the limit on its time is one on each of them, then."""


class Counted:
    """Random bytes that are not random, and never the same twice: session ids must differ."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, size: int) -> bytes:
        """Return the next number."""
        self._next += 1
        return self._next.to_bytes(size, "big")


def check(data: bytes) -> str:
    """Let it happen; nothing may raise, and what is kept stays within the limits."""
    sent: list[bytes] = []
    node = Node(
        identity=HONEST,
        group=GROUP,
        limits=LIMITS,
        send=lambda to, datagram: sent.append(datagram),
        send_near=lambda to, datagram: sent.append(datagram),
        sequence=1,
        rng=random.Random(0),
        entropy=Counted(),
        clock=lambda: CLOCK,
    )
    ours = Session(bytes(32), bytes(32), initiator=False, local=b"here", remote=b"far ")
    theirs = Session(bytes(32), bytes(32), initiator=True, local=b"far ", remote=b"here")
    node.membership._establish(ours, LIAR.key, NEIGHBOUR, START, 0.001)
    reader, now = Reader(data), START
    for _ in range(MOST):
        if not reader.left:
            break
        now = _happen(reader, node, theirs, now)
    node.tick(now + 0.1)
    node.tick(now + 60)
    heads = node.take()
    if not all(np.isfinite(received.head).all() for received in heads):
        raise BrokenPromiseError("a head that is not finite was handed on")
    if node.inbox.memory or len(node.membership.links) > LIMITS.neighbours:
        raise BrokenPromiseError(f"{node.inbox.memory} bytes or {len(node.membership.links)} neighbours are left")
    if len(node.membership.contacts) > LIMITS.contacts + LIMITS.neighbours:
        raise BrokenPromiseError(f"{len(node.membership.contacts)} addresses are kept")
    statements = node.take_statements()
    if any(unfit(each.statement, *GROUP.shape) for each in statements):
        raise BrokenPromiseError("a statement that no rule takes was handed on")
    return "taken" if heads or statements else next(iter(node.counters.refused), "nothing refused")


def _happen(reader: Reader, node: Node, theirs: Session, now: float) -> float:
    """Let one thing happen; return the time after it."""
    match reader.byte() % 8:
        case 0:
            node.receive(NEIGHBOUR, theirs.seal(reader.text()), now)
        case 1:
            node.receive(NEIGHBOUR, reader.text(), now)
        case 2:
            node.receive(STRANGER, reader.text(), now)
        case 3:
            node.receive(STRANGER, prefix_of(GROUP) + reader.text(), now)
        case 4:
            _join(node, reader.byte(), now)
        case 5:
            now += reader.byte() / 20
            node.tick(now)
        case 6:
            node.share(HEAD, iteration=1, now=now)
        case _:
            node.receive(NEIGHBOUR, theirs.seal(_part(reader)), now)
    return now


def _join(node: Node, choice: int, now: float) -> None:
    """Let a stranger join as it should, with a cookie for its address, or with one for another."""
    address = STRANGER if choice & 1 else ("127.0.0.1", 4)
    caller = Caller(OTHER, GROUP, nonce=bytes([choice]) * 16, session_id=b"join")
    jar: CookieJar = node.membership.cookies
    cookie = jar.make(STRANGER, now)
    node.receive(address, caller.join(cookie, alone=bool(choice & 2)), now)


def _part(reader: Reader) -> bytes:
    """Return a manifest or a piece of a head or statement that the neighbour signed."""
    head, index = HEADS[reader.byte() % len(HEADS)], reader.byte()
    stated = head.kind == Kind.STATEMENT
    transfer = head.sequence if stated else transfer_of(head.sequence, head.base)
    if index == 0:
        base = transfer if stated else head.base
        said = SignedManifest(1, 1188, head.manifest, base, len(head.sent), head.sent[:8], head.kind)
        return messages.encode(said)
    piece = head.sent[8 + 1188 * (index - 1) : 8 + 1188 * index] or b"x"
    return messages.encode(Piece(transfer, index, index - 1, piece, head.kind))


def _sealed(message: messages.Message) -> bytes:
    return bytes([SEALED]) + counted(messages.encode(message))


def seeds() -> dict[str, bytes]:
    """Return conversations."""
    whole = b"".join(bytes([HEAD_PART, 2, unit]) for unit in range(5))
    offered = _sealed(Have(1, (Holding(LIAR.key_id, 2 * SEQUENCE, bytes(16), CLOCK + 3600),)))
    caller = Caller(OTHER, GROUP, nonce=b"n" * 16, session_id=b"call")
    others = tuple((bytes([at]) * 20, ("127.0.0.1", 50 + at)) for at in range(20))
    return {
        "head": whole,
        "difference": b"".join(bytes([HEAD_PART, head, unit]) for head in (0, 1) for unit in range(3)),
        "statement": offered + b"".join(bytes([HEAD_PART, 9, unit]) for unit in range(6)) + whole,
        "statement-unasked": b"".join(bytes([HEAD_PART, 9, unit]) for unit in range(6)),
        "wanted": _sealed(Want(0, ((LIAR.key_id, False), (HONEST.key_id, True)))) + bytes([TIME, 30]),
        "head-late": bytes([HEAD_PART, 1, 2, HEAD_PART, 1, 0, TIME, 255, HEAD_PART, 1, 1]),
        "peers": _sealed(Peers(5, others)) + bytes([TIME, 30]),
        "acknowledged": bytes([SHARE]) + _sealed(Acknowledgement(3, 1, 1, 0b1110)) + bytes([TIME, 5]),
        "stopped": bytes([SHARE]) + _sealed(Acknowledgement(3, 1, messages.STOP)),
        "kept": (bytes([SHARE]) + _sealed(Acknowledgement(3, 1, messages.KEPT)) + bytes([TIME, 5])) * 2,
        "asked-in-full": (bytes([SHARE]) + _sealed(Acknowledgement(3, 1, messages.KEPT)) + bytes([SHARE]))
        + _sealed(Acknowledgement(4, 1, messages.FULL)),
        "far-ahead": _sealed(Peers(2**63 - 1)) + bytes([SHARE]) + _sealed(Peers(2**64 - 1)) + bytes([SHARE]),
        "leave": _sealed(Leave()) + whole,
        "orphans": b"".join(_sealed(Piece(2 * SEQUENCE + 18, at, at, b"x")) for at in range(36)),
        "hello": bytes([STRANGE]) + counted(caller.hello()),
        "version-1": bytes([STRANGE]) + counted(b"\x00\x02" + GROUP.id + bytes([1, 1]) + bytes(40)),
        "version-3": bytes([PREFIXED]) + counted(bytes([1, 3]) + bytes(50)),
        "hello-prefixed": bytes([PREFIXED]) + counted(caller.hello()[22:]),
        "join": bytes([JOIN, 1, JOIN, 2, JOIN, 3, TIME, 10]),
        "raw": bytes([RAW]) + counted(b"\xb5here" + bytes(40)),
    }


TARGET = Target(name="datagrams", check=check, seeds=seeds, largest=3000)
