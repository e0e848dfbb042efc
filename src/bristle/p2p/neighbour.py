"""Neighbours and pending handshakes as the protocol keeps them, and counters of traffic and refusals."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace

from bristle.p2p.limits import NeighbourBudget
from bristle.p2p.route import Reached, Route, Via, reached
from bristle.p2p.transfer import Incoming, Outgoing, Path
from bristle.wire.grid import GridHead
from bristle.wire.handshake import Caller
from bristle.wire.kinds import Kind
from bristle.wire.messages import Address
from bristle.wire.offers import Have, Holding
from bristle.wire.refusal import Refusal
from bristle.wire.session import Session


@dataclass
class Counters:
    """Traffic and refusals since the start. Bytes are UDP payloads, whatever they carried.

    Parameters
    ----------
    bytes_in, bytes_out, datagrams_in, datagrams_out : int
        Everything received and sent.
    heads_in, heads_out : int
        Heads received whole and valid, and heads that a neighbour acknowledged.
    heads_given_up : int
        Heads that were never acknowledged, or whose neighbour left.
    statements_in, statements_out, statements_given_up : int
        The same of statements, whoever their authors are.
    renewals_in : int
        Renewals of statements received and valid.
    features_differ : int
        Neighbours whose backbone makes other features of the group's test sample than this peer's.
    records_in, records_out : int
        Records of a founded group that were new, and those that were sent to neighbours.
    retransmissions : int
        Datagrams of heads and statements sent again.
    bytes_forwarded : int
        Of the bytes sent, those forwarded for others.
    refused : Counter
        Number of refusals, by reason.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    datagrams_in: int = 0
    datagrams_out: int = 0
    heads_in: int = 0
    heads_out: int = 0
    heads_given_up: int = 0
    statements_in: int = 0
    statements_out: int = 0
    statements_given_up: int = 0
    features_differ: int = 0
    records_in: int = 0
    records_out: int = 0
    renewals_in: int = 0
    retransmissions: int = 0
    bytes_forwarded: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def datagrams(self) -> int:
        """Datagrams in both directions."""
        return self.datagrams_in + self.datagrams_out

    def refuse(self, reason: Refusal, count: int = 1) -> None:
        """Count something that was refused."""
        if count:
            self.refused[reason.value] += count

    def snapshot(self) -> Counters:
        """Return a copy that no longer counts."""
        return replace(self, refused=Counter(dict(sorted(self.refused.items()))))


MOST_OFFERS = 4096
"""Offers of a neighbour that are remembered; of more, the oldest is forgotten."""

FIRST_ASKED, MOST_ASKED = 4, 32
"""Statements that a neighbour is asked for at a time: one more with each that comes, half as many if it fails."""

_BACK_OFF, _LONGEST_BACK_OFF = 0.25, 60.0

MOST_NEEDED = 64
"""Largest number of consecutive heads that a neighbour must acknowledge before it counts as reliable again."""


@dataclass(frozen=True)
class Neighbour:
    """A peer that heads are exchanged with.

    Parameters
    ----------
    key_id : bytes
        Its key id.
    address : (str, int), optional
        Its address; None where another neighbour forwards.
    last_heard : float
        Seconds since its last message.
    delay : float, optional
        Smoothed round-trip time in seconds, once it has been measured.
    heads_in : int
        Heads received from it.
    reached : str
        ``"directly"``, ``"locally"`` (on this machine, or at a private address) or ``"forwarded"``.
    forwarder : bytes, optional
        Key id of the neighbour that forwards.
    difference : float, optional
        By how much its features of the group's test sample differ, relative to their size; None before it is known.
    """

    key_id: bytes
    address: Address | None
    last_heard: float
    delay: float | None
    heads_in: int
    reached: Reached = "directly"
    forwarder: bytes | None = None
    difference: float | None = None


@dataclass
class Link:
    """The protocol's state of one neighbour."""

    key: bytes = field(repr=False)
    key_id: bytes
    address: Route
    session: Session
    budget: NeighbourBudget
    last_heard: float
    next_word: float
    since: float = -math.inf
    previous: Session | None = None
    previous_address: Route | None = None
    local: tuple[Address, ...] = ()
    path: Path = field(default_factory=Path)
    outgoing: dict[Kind, Outgoing] = field(default_factory=dict)
    incoming: dict[Kind, Incoming] = field(default_factory=dict)
    bases: dict[int, GridHead] = field(default_factory=dict, repr=False)
    """Heads received from it, by sequence number, that its next ones may be differences from."""

    known: int = 0
    """Sequence number of our newest head that it keeps; 0: none."""

    taken: int = 0
    needed: int = 1
    heads_in: int = 0
    difference: float | None = None
    """By how much its features of the group's test sample differ from this peer's, relative to their size."""

    probes_answered: int = 0

    @property
    def reliable(self) -> bool:
        """Whether it acknowledged its last `needed` heads: 1 at first, and doubled by every failure."""
        return self.taken >= self.needed

    @property
    def failed(self) -> bool:
        """Whether it ever failed to acknowledge a head."""
        return self.needed > 1

    def delivered(self) -> None:
        """Note that it acknowledged a head."""
        self.taken += 1

    def timed_out(self, *, counts: bool) -> None:
        """Note that a transfer to it timed out; one of a head `counts`, for those are waited for."""
        if counts:
            self.taken, self.needed = 0, min(MOST_NEEDED, 2 * self.needed)
        self.path.silent()

    def public(self, now: float) -> Neighbour:
        """Return the public view of this neighbour."""
        return Neighbour(
            key_id=self.key_id,
            address=None if isinstance(self.address, Via) else self.address,
            last_heard=max(0.0, now - self.last_heard),
            delay=self.path.delay,
            heads_in=self.heads_in,
            reached=reached(self.address),
            forwarder=self.address.forwarder if isinstance(self.address, Via) else None,
            difference=self.difference,
        )

    def session_from(self, route: Route, session_id: bytes) -> Session | None:
        """Return the session with an id, if what came by a route may belong to it."""
        if self.session.local == session_id:
            return self.session if self.address == route else None
        if self.previous is not None and self.previous.local == session_id:
            return self.previous if route in (self.address, self.previous_address) else None
        return None


@dataclass
class AskedStatement:
    """What a neighbour was asked for: because of which offer, and since when."""

    offer: Holding
    since: float
    only_renewal: bool
    begun: bool = False


@dataclass(eq=False)
class StatementExchange:
    """Statements between this peer and one neighbour."""

    finished: int = 0
    """Number of the last statement's transfer that is over."""

    offers: OrderedDict[bytes, Holding] = field(default_factory=OrderedDict)
    """What it says it has, by author."""

    lacking: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Authors of whom it may have something that we lack."""

    asked: dict[bytes, AskedStatement] = field(default_factory=dict)
    heard: float = -math.inf
    window: int = FIRST_ASKED
    failures: int = 0
    not_before: float = -math.inf

    told: dict[bytes, Holding] = field(default_factory=dict)
    """What it knows that we have."""

    news: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Authors about whom there is news for it."""

    have: Have | None = None
    order: int = 0
    tries: int = 0
    repeat: float = -math.inf
    wanted: dict[bytes, None] = field(default_factory=dict)
    """Statements that it asked for and that are not being sent yet."""

    sending: bytes | None = None

    def succeeded(self) -> None:
        """Note that what it was asked for came."""
        self.window, self.failures = min(MOST_ASKED, self.window + 1), 0

    def failed(self, now: float) -> None:
        """Note that what it was asked for did not come, or was refused: it is asked for less, and later."""
        self.failures += 1
        self.window = max(1, self.window // 2)
        self.not_before = now + min(_LONGEST_BACK_OFF, _BACK_OFF * 2.0 ** min(self.failures, 16))


@dataclass
class Guest:
    """A session without a neighbour slot: not confirmed yet, or all slots are taken."""

    session: Session
    key: bytes
    address: Route
    full: bool
    caller: bool
    began: float

    def session_from(self, route: Route, session_id: bytes) -> Session | None:
        """Return the session with an id, if what came by a route may belong to it."""
        return self.session if (self.session.local, self.address) == (session_id, route) else None


@dataclass
class PendingHandshake:
    """A handshake that this peer began.

    Parameters
    ----------
    key_id : bytes
        The peer expected there; empty if unknown.
    yields : bool
        Whether to wait a little before joining, since the other one calls at the same time.
    credentials : tuple of bytes
        Datagrams that are sent before the join.
    """

    caller: Caller
    address: Route
    began: float
    key_id: bytes = b""
    yields: bool = False
    joined: float = 0.0
    said: bytes = b""
    credentials: tuple[bytes, ...] = ()
    again: float = 0.0
