"""Statements passed on: two neighbours that offer, ask, send, renew and accuse, in any order, cut and changed.

An input is a list of things that happen, each a byte that says which and some that say how.
"""

from __future__ import annotations

from dataclasses import dataclass

from bristle.p2p.gossip import StatementGossip
from bristle.p2p.inbox import BodyInbox
from bristle.p2p.limits import Limits, NeighbourBudget, SharedBudget
from bristle.p2p.neighbour import MOST_ASKED, MOST_OFFERS, Counters, Link
from bristle.p2p.outbox import BodyOutbox
from bristle.wire import messages
from bristle.wire.kinds import Kind
from bristle.wire.messages import Acknowledgement, Piece, SignedManifest
from bristle.wire.offers import CONVICTED, EquivocationProof, Have, Holding, SignedRenewal, Want
from bristle.wire.refusal import Refusal
from bristle.wire.session import Session
from bristle.wire.statements import Proof, SignedStatement
from harness import BrokenPromiseError, Reader, Target, counted
from world import CLOCK, GROUP, HONEST, LIAR, OTHER, SEQUENCE, Signed, stated

LIMITS = Limits(memory=20_000, statements=60_000, statement_rate=2.0, manifest_rate=4.0)
"""Room for some three statements."""

NEIGHBOURS = LIAR, OTHER
SESSION = Session(bytes(32), bytes(32), initiator=True, local=b"here", remote=b"far ")
HAVE, WANT, MANIFEST, PIECE, RENEWAL, PROOF, TIME, RAW = range(8)
_OTHER = 0x80
_PIECE = 1188
MOST = 60
"""Things that happen in one input."""


@dataclass(frozen=True)
class Said:
    """A statement, and what its author says of it: that it holds for longer."""

    body: Signed
    signed: SignedStatement
    expires: int


def _said(author: object, number: int, *, compress: bool = True, expires: int = CLOCK + 3600) -> Said:
    identity = {"liar": LIAR, "other": OTHER, "honest": HONEST}[str(author)]
    body = stated(identity, number, compress=compress, expires=expires)
    signed = SignedStatement(body.manifest, body.sent)
    return Said(body, signed.renew(identity, expires + 7200), expires)


SAID = [
    _said("other", 1),
    _said("other", 2, compress=False),
    _said("liar", 3),
    # The same number once more.
    _said("liar", 3, compress=False),
    _said("liar", 4),
    _said("liar", 5, expires=CLOCK - 4000),
    _said("honest", 6),
]
OWN = _said("honest", 7)
PROOFS = [
    Proof(SAID[2].signed.manifest, SAID[3].signed.manifest),
    Proof(SAID[0].signed.manifest, SAID[1].signed.manifest),
    Proof(SAID[0].signed.manifest, SAID[0].signed.manifest),
    Proof(SAID[2].signed.manifest, b""),
]


class Scene:
    """A peer with two neighbours, as far as statements go."""

    def __init__(self) -> None:
        self.counters, self.answers, shared = Counters(), list[bytes](), SharedBudget(LIMITS)
        self.outbox = BodyOutbox(
            identity=HONEST, group=GROUP, limits=LIMITS, counters=self.counters, send=self.send, sequence=1
        )
        self.gossip = StatementGossip(
            key_id=HONEST.key_id,
            group=GROUP,
            limits=LIMITS,
            counters=self.counters,
            shared=shared,
            outbox=self.outbox,
            send=self.send,
            clock=lambda: CLOCK,
        )
        self.inbox = BodyInbox(
            group=GROUP, limits=LIMITS, counters=self.counters, shared=shared, send=self.send, gossip=self.gossip
        )
        self.links = [
            Link(each.key, each.key_id, ("127.0.0.1", 1 + at), SESSION, NeighbourBudget(LIMITS), 0, 0)
            for at, each in enumerate(NEIGHBOURS)
        ]
        self.gossip.publish(SignedStatement(OWN.body.manifest, OWN.body.sent))
        for link in self.links:
            self.gossip.joined(link, 0.0)

    def send(self, link: Link, message: bytes) -> None:
        """Make a note of what is sent."""
        self.answers.append(message)

    def take(self, link: Link, message: object, now: float) -> None:
        """Do what a node does with a message."""
        match message:
            case SignedManifest():
                self.inbox.on_manifest(link, message, 1200, now)
            case Piece():
                self.inbox.on_piece(link, message, 1200, now)
            case Acknowledgement():
                self.outbox.acknowledged(link, message, now)
                self.gossip.serve(link, now)
            case Have() | Want() | SignedRenewal() | EquivocationProof():
                self.gossip.receive(link, message, now)

    def tick(self, now: float) -> None:
        """Let time pass."""
        self.inbox.tick(self.links, now)
        self.outbox.tick(self.links, now)
        self.gossip.tick(self.links, now)

    def check(self) -> None:
        """Raise if something is kept that should not be, or more than there is room for."""
        gossip = self.gossip
        if gossip.store.memory > LIMITS.statements or self.inbox.memory > LIMITS.memory:
            raise BrokenPromiseError(f"{gossip.store.memory} bytes of statements are kept, {self.inbox.memory} come in")
        if set(gossip.store.proofs()) - {LIAR.key_id}:
            raise BrokenPromiseError("somebody is convicted who never signed two statements of one number")
        for each in gossip.store.statements():
            if not any(each.signed.manifest == said.body.manifest for said in SAID):
                raise BrokenPromiseError(f"statement {each.number} is kept, which nobody signed")
        asked = [set(exchange.asked) for exchange in gossip.exchanges.values()]
        if asked[0] & asked[1] or asked[0] | asked[1] != set(gossip._asked):
            raise BrokenPromiseError("two neighbours are asked for one statement, or one is forgotten")
        for exchange in gossip.exchanges.values():
            if len(exchange.offers) > MOST_OFFERS or len(exchange.wanted) > MOST_ASKED:
                raise BrokenPromiseError(f"{len(exchange.offers)} offers, {len(exchange.wanted)} wishes are kept")
        for answer in self.answers:
            if isinstance(messages.decode(answer), Refusal):
                raise BrokenPromiseError(f"answered {answer.hex()}, which no peer understands")
        self.answers.clear()


def check(data: bytes) -> str:
    """Let it happen; whatever did, only what was signed is kept, and only who lied is convicted."""
    scene, reader, now = Scene(), Reader(data), 0.0
    for _ in range(MOST):
        if not reader.left:
            break
        happening = reader.byte()
        link = scene.links[happening // _OTHER]
        kind = happening % 8
        if kind == TIME:
            now += reader.byte() / 10
            scene.tick(now)
        else:
            scene.take(link, _message(reader, kind), now)
        scene.check()
    taken = len(scene.gossip.store)
    for wait in (0.1, 30.0, 60.0):
        scene.tick(now + wait)
    scene.check()
    return "taken" if taken else next(iter(scene.counters.refused), "nothing refused")


def _message(reader: Reader, kind: int) -> object:
    if kind == RAW:
        return messages.decode(reader.text())
    said = SAID[reader.byte() % len(SAID)]
    match kind:
        case 0:
            how = reader.byte()
            number = CONVICTED if how & 1 else said.signed.number + 2 * (how & 2)
            promised = Holding(said.signed.author, number, said.signed.digest, said.expires + 3600 * (how & 4))
            more = [Holding(bytes([at]) * 20, 1, bytes(16), CLOCK + 60) for at in range(how >> 3)]
            return Have(1 + how, (promised, *more))
        case 1:
            how = reader.byte()
            return Want(how >> 1, ((said.signed.author, bool(how & 1)), (HONEST.key_id, bool(how & 1))))
        case 2:
            signed = _changed(reader, said.body.manifest + (said.signed.renewal if reader.byte() & 1 else b""))
            start = said.body.sent[: 8 * reader.byte()]
            transfer = SEQUENCE + reader.byte()
            return SignedManifest(1, _PIECE, signed, transfer, len(said.body.sent), start, Kind.STATEMENT)
        case 3:
            beside, index, transfer = reader.byte(), reader.byte(), SEQUENCE + reader.byte()
            at = 8 * beside + _PIECE * index
            return Piece(transfer, 2, index, said.body.sent[at : at + _PIECE] or b"beyond", Kind.STATEMENT)
        case 4:
            return SignedRenewal(_changed(reader, said.signed.renewal))
        case _:
            proof = PROOFS[reader.byte() % len(PROOFS)]
            return EquivocationProof(_changed(reader, proof.to_bytes()))


def _changed(reader: Reader, content: bytes) -> bytes:
    """Return bytes of which one bit may be flipped: beyond the end means none."""
    change, changed = reader.short(), bytearray(content)
    if change >> 3 < len(changed):
        changed[change >> 3] ^= 1 << (change & 7)
    return bytes(changed)


def _offer(number: int, how: int = 0, *, side: int = 0) -> bytes:
    return bytes([side * _OTHER | HAVE, number, how])


def _send(number: int, transfer: int, *, renewal: int = 0, side: int = 0) -> bytes:
    """Return the happenings of one statement that is sent whole."""
    first = side * _OTHER
    made = bytes([first | MANIFEST, number, renewal, 0xFF, 0xFF, 10, transfer])
    for index in range(-(-max(0, len(SAID[number].body.sent) - 80) // _PIECE)):
        made += bytes([first | PIECE, number, 10, index, transfer])
    return made


def seeds() -> dict[str, bytes]:
    """Return exchanges as they should be, and some that should not."""
    proof = bytes([PROOF, 2, 0, 0xFF, 0xFF])
    return {
        "asked": _offer(0) + _send(0, 1),
        "unasked": _send(0, 1),
        "renewed-at-once": _offer(0, 4) + _send(0, 1, renewal=1),
        "renewed-later": _offer(0) + _send(0, 1) + _offer(0, 4) + bytes([RENEWAL, 0, 0xFF, 0xFF]),
        "newer": _offer(0) + _send(0, 1) + _offer(1) + _send(1, 2),
        "older": _offer(1) + _send(1, 1) + _offer(0, 2) + _send(0, 2),
        "fork": _offer(2) + _send(2, 1) + _offer(3, side=1) + _send(3, 1, side=1),
        "proof": _offer(2, 1) + proof,
        "false-proof": _offer(0, 1) + bytes([PROOF, 0, 1, 0xFF, 0xFF]),
        "convicted-then-newer": _offer(2, 1) + proof + _offer(4) + _send(4, 3),
        "expired": _offer(5) + _send(5, 1),
        "of-ourselves": _offer(6) + _send(6, 1),
        "full": b"".join(_offer(at) + _send(at, 1 + at) for at in (0, 2, 4)) + _offer(1, side=1) + _send(1, 9, side=1),
        "never-sent": _offer(0) + bytes([TIME, 20]) + _offer(0, side=1) + _send(0, 1, side=1),
        "wanted": bytes([WANT, 6, 2, WANT, 0, 3, TIME, 20]),
        "many": _offer(0, 0xF8) + bytes([TIME, 50]),
        "flipped": _offer(0) + bytes([MANIFEST, 0, 0, 0, 9, 10, 1]) + bytes([TIME, 30]) + _offer(0) + _send(0, 2),
        "raw": bytes([RAW]) + counted(messages.encode(Want(1))),
    }


TARGET = Target(name="gossip", check=check, seeds=seeds, largest=1500)
