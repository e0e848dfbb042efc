"""What is inside sealed datagrams: `messages.decode`."""

from __future__ import annotations

from bristle.wire import messages
from bristle.wire.admission import Offer, Revocation
from bristle.wire.identity import Identity
from bristle.wire.kinds import Kind
from bristle.wire.messages import (
    Acknowledgement,
    CallRequest,
    Forward,
    Forwarded,
    Leave,
    Meet,
    Message,
    Peers,
    Piece,
    Probe,
    Records,
    RosterIds,
    SignedManifest,
)
from bristle.wire.offers import EquivocationProof, Have, Holding, SignedRenewal, Want
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import LARGEST_DATAGRAM
from harness import BrokenPromiseError, Target


def _records() -> tuple[bytes, bytes, bytes]:
    """Return a record of each kind."""
    group, (ann, ben, code) = bytes(20), (Identity(bytes([number]) * 32) for number in range(3))
    offer = Offer.sign(ann, group, slot=1, number=7, invitee=ben.key_id, seats=3, expires=2_000_000_000)
    by_code = Offer.sign(ann, group, slot=2, number=7, invitee=code.key_id, by_code=True)
    return (
        offer.accept(ben, group, number=8).data,
        by_code.accept(ben, group, number=8, code=code.secret).data,
        Revocation.sign(ann, group, inviter=ann.key_id, slot=1, number=7).data,
    )


MEMBERSHIP, BY_CODE, REVOCATION = _records()


def check(data: bytes) -> str:
    """Decode; what is taken must survive being written and read again."""
    message = messages.decode(data)
    if isinstance(message, Refusal):
        return message.value
    if messages.decode(messages.encode(message)) != message:
        raise BrokenPromiseError(f"{message} is not what it is after writing and reading it again")
    return type(message).__name__


def seeds() -> dict[str, bytes]:
    """Return a message of each kind."""
    six = ("2001:db8::7", 7700)
    made: dict[str, Message] = {
        "piece": Piece(1 << 40, 3, 7, b"some of a body"),
        "manifest": SignedManifest(1, 1188, bytes(range(200)), 1 << 40, 900, b"start"),
        "acknowledgement": Acknowledgement(1 << 40, 17, 4, 0b1011),
        "piece-of-a-statement": Piece(1 << 40, 3, 7, b"some of a body", Kind.STATEMENT),
        "manifest-of-a-statement": SignedManifest(1, 1188, bytes(range(200)), size=900, kind=Kind.STATEMENT),
        "acknowledgement-of-a-statement": Acknowledgement(1 << 40, 17, 4, 0b1011, Kind.STATEMENT),
        "stop": Acknowledgement(1 << 40, 1, messages.STOP),
        "kept": Acknowledgement(1 << 40, 1, messages.KEPT),
        "full": Acknowledgement(1 << 40, 1, messages.FULL),
        "peers": Peers(9, ((bytes(20), ("192.0.2.1", 7700)), (b"\xff" * 20, six))),
        "alone": Peers(0),
        "local": Peers(0, ((bytes(20), six),), (("192.168.1.2", 7700), ("10.0.0.2", 7700))),
        "leave": Leave(),
        "meet": Meet(b"\x05" * 20),
        "call": CallRequest(b"\x05" * 20, b"\x01\x02\x03\x04", (("192.0.2.1", 7700), six, ("192.168.1.2", 7700))),
        "call-nowhere": CallRequest(b"\x05" * 20),
        "roster": RosterIds(b"a digest", bytes(8), b"\xff" * 8, (b"\x01" * 8, b"\x02" * 8)),
        "roster-answer": RosterIds(b"a digest", b"\x01" * 8, b"\x02" * 8, (b"\x01" * 8,), answers=True),
        "roster-digest": RosterIds(b"a digest"),
        "probe": Probe(bytes(range(256)), asks=True),
        "probe-answer": Probe(bytes(256), asks=False),
        "records": Records((MEMBERSHIP, BY_CODE, REVOCATION)),
        "forward": Forward(b"\x01\x02\x03\x04", b"a datagram"),
        "forwarded": Forwarded(b"\x01\x02\x03\x04", b"a datagram"),
        "closed": Forwarded(b"\x01\x02\x03\x04"),
        "have": Have(
            1, (Holding(b"\x05" * 20, 1 << 40, bytes(16), 1_800_000_000), Holding(bytes(20), 2**64 - 1, bytes(16), 0))
        ),
        "want": Want(1, ((b"\x05" * 20, False), (bytes(20), True))),
        "want-nothing": Want(7),
        "renewal": SignedRenewal(bytes(144)),
        "proof": EquivocationProof(b"\x00\xd8" + bytes(432)),
    }
    return {name: messages.encode(message) for name, message in made.items()}


TARGET = Target(
    name="messages", check=check, seeds=seeds, largest=LARGEST_DATAGRAM, tokens=(b"\x04", b"\x06", b"\x0e", b"\x0f")
)
