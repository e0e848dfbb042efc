"""What floods a peer: identities by the hundred on sockets of their own, with and without valid sessions.

Runs as a process of its own, so that what it costs can be told from what its victim spends. Commands come in by a
pipe: "join" lets all identities ask for a place, "flood" sends to the victim, and "burn" keeps the processor as busy
as the last flood did while the victim is left alone.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import Connection

import repository  # noqa: F401
from bristle.wire import Group, Identity, handshake, messages
from bristle.wire.admission import RECORD_ID_BYTES, Offer
from bristle.wire.handshake import Caller, Cookie, Welcome
from bristle.wire.manifest import encode_manifest
from bristle.wire.offers import Have, Holding, SignedRenewal, Want
from bristle.wire.session import SEALED, Session
from bristle.wire.statements import RENEWAL_BYTES
from tests.support.manifests import manifest_of

Address = tuple[str, int]
TICK = 0.004
"""Seconds between bursts."""

LATE = 0.3
"""Seconds that the generator may lag behind before it forgets what it should have sent."""

SIGNATURES = 25.0
"""Manifests that each identity signs a second; the others are sent again."""

JOINS = 0.2
"""Of all cookies, those that a well-signed join answers: more than the victim looks at, at less cost."""

UNSIGNED = ("noise", "session", "hello", "join")
MESSAGES = ("acknowledgements", "pieces", "peers", "manifests", "statements", "probe")
FOUNDED = ("roster", "records")
"""What there is in groups with founders only: whoever floods was invited."""

SIGNED = (*MESSAGES, *FOUNDED, "joins", "everything")
SEATS = 1
"""How many others each identity may invite, in a group with founders."""

KINDS = {"unsigned": UNSIGNED, "signed": SIGNED}


@dataclass
class Source:
    """One identity with a socket of its own."""

    identity: Identity
    group: Group
    socket: socket.socket
    session: Session | None = None
    sequence: int = 2**42
    number: int = 0
    caller: Caller | None = None
    signed: bytes = b""
    signed_at: float = 0.0

    def join(self, victim: Address, *, seconds: float = 1.5) -> bool:
        """Do a whole handshake; return whether there was room."""
        caller = Caller(self.identity, self.group, nonce=os.urandom(16), session_id=os.urandom(4))
        self.socket.sendto(caller.hello(), victim)
        self.socket.setblocking(True)
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                answer = handshake.decode(self.socket.recv(9000), self.group)
                if isinstance(answer, Cookie) and answer.nonce == caller.nonce:
                    self.socket.sendto(caller.join(answer.cookie, alone=False), victim)
                elif isinstance(answer, Welcome) and answer.nonce == caller.nonce:
                    session = caller.finish(answer)
                    if not isinstance(session, Session):
                        return False
                    self.session = None if answer.full else session
                    self.socket.sendto(session.seal(messages.encode(messages.Peers(0))), victim)
                    return not answer.full
        except TimeoutError:
            pass
        finally:
            self.socket.setblocking(False)
        return False

    def record(self) -> bytes:
        """Return a message with a well-signed membership, newer than all before, of somebody who is invited by it."""
        self.sequence += 1
        invitee = Identity.generate()
        offer = Offer.sign(self.identity, self.group.id, slot=1, number=self.sequence, invitee=invitee.key_id)
        membership = offer.accept(invitee, self.group.id, number=self.sequence)
        return messages.encode(messages.Records((membership.data,)))

    def manifest(self) -> bytes:
        """Return a message with a well-signed manifest of a head that never follows."""
        self.sequence += 1
        body = bytes(4 * self.group.shape[0] * self.group.shape[1])
        manifest = manifest_of(body, self.group, self.identity.key, self.sequence)
        return messages.encode(messages.SignedManifest(1, 8000, encode_manifest(manifest, self.identity)))


def identity_of(number: int) -> Identity:
    """Return the identity of one that floods: the same each time, so that it can be invited before."""
    return Identity(sha256(f"flood {number}".encode()).digest())


def sources(group: Group, count: int, *, one_address: bool) -> list[Source]:
    """Return identities with sockets: each in a network of its own, as far as its address goes, or all at one."""
    made = []
    for number in range(count):
        bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bound.bind(("127.0.9.9" if one_address else f"127.{1 + number // 250}.{1 + number % 250}.1", 0))
        bound.setblocking(False)
        made.append(Source(identity_of(number), group, bound))
    return made


class Flood:
    """Makes the datagrams of one kind, one after the other, for one source at a time.

    Parameters
    ----------
    kind : str
        What is sent.
    sources : list of Source
        Who sends it.
    group : Group
        Whose group it is.
    rng : Random
        For bytes that mean nothing.
    """

    def __init__(self, kind: str, sources: list[Source], group: Group, rng: random.Random) -> None:
        self.kind, self.sources, self.group = kind, sources, group
        prefix = handshake.prefix_of(group)
        fixed: dict[str, Callable[[], bytes]] = {
            "noise": lambda: rng.randbytes(120),
            "session": lambda: bytes([SEALED]) + rng.randbytes(120),
            "hello": lambda: handshake.encode_hello(group, rng.randbytes(16)),
            "join": lambda: prefix + bytes([handshake.JOIN, handshake.VERSION, 0]) + rng.randbytes(212),
        }
        self._fixed = [fixed[kind]() for _ in range(512)] if kind in fixed else []
        self._turn = itertools.cycle(range(512))
        self._signed = itertools.cycle(MESSAGES)
        others = tuple((rng.randbytes(20), (f"127.7.{n}.{n}", 1000 + n)) for n in range(messages.MOST_PEERS))
        self._peers = messages.encode(messages.Peers(0, others))
        expires = int(time.time()) + 3600
        offers = tuple(Holding(rng.randbytes(20), 1, rng.randbytes(16), expires) for _ in range(24))
        wishes = tuple((rng.randbytes(20), False) for _ in range(24))
        self._probe = messages.encode(messages.Probe(rng.randbytes(4 * messages.PROBE_NUMBERS), asks=True))
        ids = tuple(sorted(rng.randbytes(RECORD_ID_BYTES) for _ in range(32)))
        digest, first, last = rng.randbytes(messages.ROSTER_DIGEST_BYTES), messages.FIRST_ID, messages.LAST_ID
        lists = [messages.RosterIds(digest), *(messages.RosterIds(digest, first, last, some) for some in ((), ids))]
        self._rosters = [messages.encode(one) for one in lists]
        self._statements: list[messages.Message] = [
            Have(1, offers),
            Want(0, wishes),
            SignedRenewal(rng.randbytes(RENEWAL_BYTES)),
        ]

    def next(self, source: Source) -> bytes:
        """Return the next datagram of a source."""
        if self._fixed:
            return self._fixed[next(self._turn)]
        if source.session is None or self.kind == "joins":
            # Somebody without a session can only begin one.
            return handshake.encode_hello(self.group, os.urandom(16))
        kind = next(self._signed) if self.kind == "everything" else self.kind
        return source.session.seal(self._message(kind, source))

    def _message(self, kind: str, source: Source) -> bytes:
        source.number += 1
        if kind == "acknowledgements":
            return messages.encode(messages.Acknowledgement(2**40 + source.number, 1, 1, 2**64 - 1))
        if kind == "pieces":
            return messages.encode(messages.Piece(2**40 + source.number, 1, source.number % 60_000, bytes(64)))
        if kind == "peers":
            return self._peers
        if kind == "statements":
            return messages.encode(self._statements[source.number % 3])
        if kind == "probe":
            return self._probe
        if kind == "roster":
            return self._rosters[source.number % 3]
        # As many signatures as would be checked, and no more.
        if time.monotonic() >= source.signed_at + 1 / SIGNATURES:
            source.signed = source.record() if kind == "records" else source.manifest()
            source.signed_at = time.monotonic()
        return source.signed


def generate(group: Group, victim: Address, pipe: Connection, *, kind: str, rate: float, count: int, one: bool) -> None:
    """Flood, or only work as hard, as the pipe says; answer each command with what was sent and what that cost."""
    os.setsid()
    if len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rng = random.Random(7)
    crowd = sources(group, count, one_address=one)
    flood = Flood(kind, crowd, group, rng)
    busy = 0.0
    pipe.send("ready")
    while (command := _command(pipe)) is not None:
        what, seconds = command
        if what == "join":
            pipe.send(_join(crowd, victim, seconds))
        elif what == "flood":
            sent, busy = _send(flood, crowd, victim, rate=rate, seconds=seconds)
            pipe.send((sent, busy))
        else:
            _burn(busy, seconds)
            pipe.send((0, busy))


def _command(pipe: Connection) -> tuple[str, float] | None:
    """Return what to do next; None: nothing more, or nobody is left to say so."""
    try:
        command: tuple[str, float] | None = pipe.recv()
    except EOFError:
        return None
    return command


def _join(crowd: list[Source], victim: Address, seconds: float) -> int:
    """Let as many as can in that time ask for a place; return how many got one."""
    admitted, end = 0, time.monotonic() + seconds
    for source in crowd:
        if time.monotonic() < end:
            admitted += source.join(victim, seconds=0.2)
    return admitted


def _burn(busy: float, seconds: float) -> None:
    """Use the processor for a share of the time, in slices as short as a flood's."""
    began, spent = time.monotonic(), time.process_time()
    while (now := time.monotonic()) < began + seconds:
        while time.process_time() - spent < busy * (time.monotonic() - began):
            pass
        time.sleep(max(0.0, TICK - (time.monotonic() - now)))


def _send(flood: Flood, crowd: list[Source], target: Address, *, rate: float, seconds: float) -> tuple[int, float]:
    """Send for a while; return how many datagrams, and which share of a processor that took."""
    began, cpu = time.monotonic(), time.process_time()
    sent = owed = 0
    turn = itertools.cycle(crowd)
    signed = flood.kind in SIGNED
    while (now := time.monotonic()) < began + seconds:
        owed = max(owed, int((now - began - LATE) * rate))
        while owed < (now - began) * rate:
            source = next(turn)
            owed += 1
            try:
                source.socket.sendto(flood.next(source), target)
                sent += 1
                if signed:
                    _answer(source, target)
            except OSError:  # Its own buffer is full.
                continue
        time.sleep(max(0.0, TICK - (time.monotonic() - now)))
    return sent, (time.process_time() - cpu) / (time.monotonic() - began)


def _answer(source: Source, target: Address) -> None:
    """Answer a cookie with a well-signed join, and a welcome as a member does; begin anew when sent away."""
    try:
        datagram = source.socket.recv(9000)
    except OSError:
        return
    if datagram[:1] == bytes([SEALED]):
        opened = source.session.open(datagram) if source.session is not None else b""
        if opened == messages.encode(messages.Leave()):
            source.session = None
        return
    answer = handshake.decode(datagram, source.group)
    if isinstance(answer, Cookie) and random.random() < JOINS:
        source.caller = Caller(source.identity, source.group, nonce=answer.nonce, session_id=os.urandom(4))
        source.socket.sendto(source.caller.join(answer.cookie, alone=True), target)
    elif isinstance(answer, Welcome) and source.caller is not None:
        session = source.caller.finish(answer)
        if isinstance(session, Session) and not answer.full:
            source.session = session
            source.socket.sendto(session.seal(messages.encode(messages.Peers(0))), target)
