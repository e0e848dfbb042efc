"""Introductions and forwarding: a peer with a neighbour that keeps to nothing, an honest one, and one behind the first.

An input is a list of things that happen, each a byte that says which, most with a byte string.
"""

from __future__ import annotations

import random
from collections import Counter

from bristle.p2p.introducer import MOST_OFFERS
from bristle.p2p.limits import Limits
from bristle.p2p.meetings import MOST_CIRCUITS
from bristle.p2p.node import Node
from bristle.p2p.route import Via
from bristle.wire import messages
from bristle.wire.handshake import Caller, prefix_of
from bristle.wire.messages import Address, CallRequest, Forward, Forwarded, Leave, Meet, Message, Peers, Piece
from bristle.wire.session import Session
from harness import BrokenPromiseError, Reader, Target, counted
from target_datagrams import Counted
from world import GROUP, HONEST, LIAR, OTHER, SEQUENCE, identity

LIMITS = Limits(memory=10_000, neighbours=4, contacts=16, forward_rate=20_000, forward_pairs=2)
BEHIND, BESIDE = identity("behind"), identity("beside")
OWN = ("192.168.1.2", 7700)
LIARS, OTHERS = ("198.51.100.2", 7700), ("198.51.100.3", 7700)
CIRCUIT = b"\x01\x02\x03\x04"
SAYS, OTHER_SAYS, BEHIND_SAYS, FORWARDS, TIME, HELLO = range(6)
START = 1000.0
MOST = 40
"""Things that happen in one input: the limit on its time is one on each of them, then."""

MOST_CALLED = 4 * (64 + LIMITS.contacts)
"""Datagrams for addresses that are nobody's neighbour: hellos, repeated, to whom the liar says one should call."""


def check(data: bytes) -> str:
    """Let it happen; nothing may raise, and what is kept, sent and forwarded stays within the limits."""
    sent: Counter[Address] = Counter()
    node = Node(
        identity=HONEST,
        group=GROUP,
        limits=LIMITS,
        send=lambda to, datagram: sent.update([to]),
        send_near=lambda to, datagram: sent.update([to]),
        sequence=1,
        rng=random.Random(0),
        entropy=Counted(),
    )
    node.membership.meetings.local = (OWN,)
    liar = _neighbour(node, LIAR.key, LIARS, b"liar")
    other = _neighbour(node, OTHER.key, OTHERS, b"othr")
    via = Via(LIAR.key_id, BEHIND.key_id, CIRCUIT, LIARS)
    node.receive(LIARS, liar.seal(messages.encode(CallRequest(BEHIND.key_id, CIRCUIT))), START)
    behind = _neighbour(node, BEHIND.key, via, b"bhnd")
    reader, now = Reader(data), START
    for _ in range(MOST):
        if not reader.left:
            break
        match reader.byte() % 6:
            case 0:
                node.receive(LIARS, liar.seal(reader.text()), now)
            case 1:
                node.receive(OTHERS, other.seal(reader.text()), now)
            case 2:
                said = behind.seal(reader.text())
                node.receive(LIARS, liar.seal(messages.encode(Forwarded(CIRCUIT, said))), now)
            case 3:
                node.receive(LIARS, liar.seal(messages.encode(Forwarded(CIRCUIT, reader.text()))), now)
            case 4:
                now += reader.byte() / 20
                node.tick(now)
            case _:
                circuits = list(node.introducer.circuits) or [CIRCUIT]
                number = circuits[reader.byte() % len(circuits)]
                node.receive(LIARS, liar.seal(messages.encode(Forward(number, reader.text() or b"x"))), now)
    node.tick(now + 0.1)
    _hold(node, sent, now - START)
    node.tick(now + 60)
    if node.inbox.memory or node.introducer.circuits or node.membership.meetings.circuits:
        raise BrokenPromiseError("something is kept though nobody is there")
    return next(iter(node.counters.refused), "nothing refused")


def _hold(node: Node, sent: Counter[Address], seconds: float) -> None:
    """Raise if a limit does not hold."""
    if node.counters.bytes_forwarded > LIMITS.forward_rate * (seconds + 2):
        raise BrokenPromiseError(f"{node.counters.bytes_forwarded} bytes were forwarded in {seconds} s")
    if node.introducer.pairs > LIMITS.forward_pairs or len(node.introducer.circuits) > MOST_OFFERS:
        raise BrokenPromiseError(f"{node.introducer.pairs} pairs")
    if len(node.membership.meetings.circuits) > MOST_CIRCUITS or len(node.membership.links) > LIMITS.neighbours:
        raise BrokenPromiseError("too many circuits or neighbours")
    strangers = sum(count for address, count in sent.items() if address not in (LIARS, OTHERS))
    if strangers > MOST_CALLED:
        raise BrokenPromiseError(f"{strangers} datagrams to strangers")
    if any(address[0].startswith("127.") for address in sent):
        raise BrokenPromiseError("a stranger made this peer call a service of its own machine")


def _neighbour(node: Node, key: bytes, route: Address | Via, name: bytes) -> Session:
    """Make somebody a neighbour; return its end of the session."""
    ours = Session(bytes(32), bytes(32), initiator=False, local=name, remote=name[::-1])
    node.membership._establish(ours, key, route, START, 0.001)
    return Session(bytes(32), bytes(32), initiator=True, local=name[::-1], remote=name)


def _said(event: int, message: Message) -> bytes:
    return bytes([event]) + counted(messages.encode(message))


def seeds() -> dict[str, bytes]:
    """Return conversations."""
    hello = Caller(BESIDE, GROUP, nonce=b"n" * 16, session_id=b"call").hello()
    near, far = ("192.168.1.9", 7700), ("198.51.100.9", 7700)
    offered = _said(SAYS, Meet(OTHER.key_id))
    return {
        "meet": offered + bytes([TIME, 30]),
        "meet-stranger": _said(SAYS, Meet(BESIDE.key_id)),
        "meet-hidden": _said(OTHER_SAYS, Meet(BEHIND.key_id)),
        "forward": offered + bytes([HELLO, 0]) + counted(hello),
        "forward-unknown": _said(SAYS, Forward(b"none", b"x")),
        "call": _said(SAYS, CallRequest(BESIDE.key_id, b"\x05\x06\x07\x08", (far, near)))
        + bytes([TIME, 2, TIME, 40, TIME, 40]),
        "call-known": _said(OTHER_SAYS, CallRequest(BEHIND.key_id, b"\x05\x06\x07\x08", (far,))) + bytes([TIME, 2]),
        "call-misled": _said(
            SAYS, CallRequest(BESIDE.key_id, addresses=(("127.0.0.1", 22), ("192.168.1.9", 22), ("10.1.1.1", 7700)))
        ),
        "behind": _said(BEHIND_SAYS, Peers(0, ((bytes(20), far),))) + _said(BEHIND_SAYS, Piece(SEQUENCE, 1, 0, b"x")),
        "nested": _said(BEHIND_SAYS, Forwarded(CIRCUIT, b"x")) + _said(BEHIND_SAYS, Forward(CIRCUIT, b"x")),
        "behind-calls": _said(BEHIND_SAYS, CallRequest(BESIDE.key_id, CIRCUIT, (far,)))
        + _said(BEHIND_SAYS, Meet(OTHER.key_id)),
        "hello": bytes([FORWARDS]) + counted(hello),
        "prefix": bytes([FORWARDS]) + counted(prefix_of(GROUP)),
        "closed": _said(SAYS, Forwarded(CIRCUIT)),
        "leave": _said(SAYS, Leave()),
    }


TARGET = Target(name="forwarding", check=check, seeds=seeds, largest=3000, tokens=(CIRCUIT, OTHER.key_id))
