"""The roster of a founded group: credentials of strangers, ids and records of a neighbour, in any order, and time.

An input is a list of things that happen, each a byte that says which, most with a byte string. A record whose first
byte is 0 stands for one of those that were signed before, with a byte of it changed or not.
"""

from __future__ import annotations

import random

from bristle.p2p.limits import Limits
from bristle.p2p.members.roster import GRACE, Roster
from bristle.p2p.node import Node
from bristle.wire import handshake, messages
from bristle.wire.admission import MOST_SEATS, Admission, Offer, Revocation, decode_record, split_records
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.messages import MOST_IDS, Records, RosterIds
from bristle.wire.refusal import Refusal
from bristle.wire.session import Session
from harness import BrokenPromiseError, Reader, Target, counted
from target_datagrams import Counted
from world import CLOCK, HONEST, LIAR

FOUNDED = Group(
    application="fuzz", backbone="none", classes=("a", "b"), features=8, founders=frozenset([HONEST.key_id])
)
LIMITS = Limits(neighbours=3, contacts=16)
NEIGHBOUR, STRANGER = ("127.0.0.1", 2), ("127.0.0.1", 3)
RECORDS, IDS, CREDENTIALS, SEALED, TIME = range(5)
START, MOST = 1000.0, 40


def _signed() -> list[bytes]:
    """Return records of a founder, of the neighbour, whom it invited, and of one whom that one invited."""
    third, code = Identity(b"3" * 32), Identity(b"4" * 32)

    def offer(inviter: Identity, invitee: Identity, *, seats: int = 0, expires: int = 0) -> Offer:
        return Offer.sign(inviter, FOUNDED.id, slot=1, number=5, invitee=invitee.key_id, seats=seats, expires=expires)

    by_code = Offer.sign(LIAR, FOUNDED.id, slot=2, number=5, invitee=code.key_id, by_code=True)
    return [
        offer(HONEST, LIAR, seats=9).accept(LIAR, FOUNDED.id, number=1).data,
        offer(LIAR, third, seats=3, expires=CLOCK + 100).accept(third, FOUNDED.id, number=1).data,
        by_code.accept(third, FOUNDED.id, number=1, code=code.secret).data,
        by_code.accept(HONEST, FOUNDED.id, number=1, code=code.secret).data,
        Revocation.sign(LIAR, FOUNDED.id, inviter=LIAR.key_id, slot=1, number=5).data,
        Revocation.sign(third, FOUNDED.id, inviter=HONEST.key_id, slot=1, number=5).data,
        offer(third, Identity(b"5" * 32), expires=CLOCK - 100).accept(Identity(b"5" * 32), FOUNDED.id, number=1).data,
    ]


SIGNED = _signed()


def check(data: bytes) -> str:
    """Let it happen; nothing may raise, and whoever is a member has signatures for it."""
    clock = [float(CLOCK)]
    roster = Roster(FOUNDED, clock=lambda: clock[0])
    roster.add(SIGNED[0])
    sent: list[bytes] = []
    node = Node(
        identity=HONEST,
        group=FOUNDED,
        limits=LIMITS,
        send=lambda to, datagram: sent.append(datagram),
        send_near=lambda to, datagram: sent.append(datagram),
        sequence=1,
        roster=roster,
        rng=random.Random(0),
        entropy=Counted(),
        clock=lambda: clock[0],
    )
    ours = Session(bytes(32), bytes(32), initiator=False, local=b"here", remote=b"far ")
    theirs = Session(bytes(32), bytes(32), initiator=True, local=b"far ", remote=b"here")
    node.membership._establish(ours, LIAR.key, NEIGHBOUR, START, 0.001)
    reader, now = Reader(data), START
    for _ in range(MOST):
        if not reader.left:
            break
        what = reader.byte() % 5
        if what == TIME:
            clock[0] += reader.short() * GRACE / 2**14
            now += 0.2
            node.tick(now)
        else:
            node.receive(*_said(what, reader, node, theirs, now), now)
    node.tick(now + 0.1)
    _check(roster, sent)
    if not roster.admits(LIAR.key_id) and node.membership.links:
        raise BrokenPromiseError("somebody who is no member is still a neighbour")
    return f"{len(roster.members())} members" if not node.counters.refused else next(iter(node.counters.refused))


def _said(what: int, reader: Reader, node: Node, theirs: Session, now: float) -> tuple[tuple[str, int], bytes]:
    if what == CREDENTIALS:
        cookie = node.membership.cookies.make(STRANGER, now)
        head = handshake.prefix_of(FOUNDED) + bytes([handshake.CREDENTIALS, handshake.VERSION, 0])
        return STRANGER, head + cookie + bytes(16) + _records(reader)
    if what == RECORDS:
        return NEIGHBOUR, theirs.seal(bytes([messages.RECORDS]) + _records(reader))
    return NEIGHBOUR, theirs.seal((bytes([messages.ROSTER]) if what == IDS else b"") + reader.text())


def _records(reader: Reader) -> bytes:
    text = reader.text()
    if text[:1] != b"\0":
        return text
    number, at, change = (*text[1:4], 0, 0, 0)[:3]
    record = bytearray(SIGNED[number % len(SIGNED)])
    record[at % len(record)] ^= change
    return bytes(record)


def _check(roster: Roster, sent: list[bytes]) -> None:
    members = roster.members()
    if len(members) > 1 + MOST_SEATS or len(roster.records()) > 100:
        raise BrokenPromiseError(f"{len(members)} members, {len(roster.records())} records")
    for key_id in members:
        for data in roster.chain(key_id):
            record = decode_record(data)
            if not isinstance(record, Admission) or not record.is_signed(FOUNDED.id):
                raise BrokenPromiseError(f"{key_id.hex()} is a member by a record that is not signed")
    if isinstance(split_records(b"".join(roster.records())), Refusal):
        raise BrokenPromiseError("records that were taken are refused when they are passed on")
    if sum(map(len, sent)) > 100_000:
        raise BrokenPromiseError(f"{sum(map(len, sent))} bytes were sent")


def seeds() -> dict[str, bytes]:
    """Return what members and strangers say."""
    listed = messages.encode(RosterIds(b"a digest", bytes(8), b"\xff" * 8, (b"\x01" * 8, b"\x02" * 8)))[1:]
    many = tuple(number.to_bytes(8, "big") for number in range(MOST_IDS))
    full = messages.encode(RosterIds(b"a digest", bytes(8), b"\xff" * 8, many, answers=True))[1:]
    summary = messages.encode(RosterIds(b"another."))[1:]
    every = b"".join(bytes([RECORDS]) + counted(bytes([0, number])) for number in range(len(SIGNED)))
    return {
        "all": every,
        "backwards": b"".join(bytes([RECORDS]) + counted(bytes([0, number])) for number in range(len(SIGNED))[::-1]),
        "changed": b"".join(bytes([RECORDS]) + counted(bytes([0, 1, at, 1])) for at in (5, 40, 60, 150)),
        "together": bytes([SEALED]) + counted(messages.encode(Records(tuple(SIGNED[1:4])))),
        "credentials": b"".join(bytes([CREDENTIALS]) + counted(bytes([0, number])) for number in (1, 4)),
        "ids": every[:10] + bytes([IDS]) + counted(listed) + bytes([IDS]) + counted(full),
        "digest": bytes([IDS]) + counted(summary) + bytes([IDS]) + counted(summary),
        "expiry": every + bytes([TIME]) + b"\x00\x40" + bytes([TIME]) + b"\xff\xff" + every,
    }


TARGET = Target(name="roster", check=check, seeds=seeds, largest=1600, tokens=(b"\x00\x02\x00\x01", b"\x0e", b"\x0f"))
