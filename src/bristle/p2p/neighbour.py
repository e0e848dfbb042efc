"""What is known of a neighbour, and counters of traffic and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bristle.p2p.limits import Allowance
from bristle.p2p.transfer import Incoming, Outgoing, Path
from bristle.wire.handshake import Caller
from bristle.wire.messages import Address
from bristle.wire.refusal import Refusal
from bristle.wire.session import Session


@dataclass(frozen=True, kw_only=True)
class Counters:
    """A snapshot since the start. Bytes are UDP payloads, whatever they carried.

    Parameters
    ----------
    bytes_in, bytes_out, datagrams_in, datagrams_out : int
        All that came and went.
    heads_in, heads_out : int
        Heads that arrived whole and well, and that a neighbour acknowledged.
    heads_given_up : int
        Heads that no acknowledgement came for, or whose neighbour went away.
    retransmissions : int
        Datagrams of heads sent again.
    refused : mapping
        How often something was refused, for each reason.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    datagrams_in: int = 0
    datagrams_out: int = 0
    heads_in: int = 0
    heads_out: int = 0
    heads_given_up: int = 0
    retransmissions: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def datagrams(self) -> int:
        """Datagrams in both directions."""
        return self.datagrams_in + self.datagrams_out


@dataclass
class Tally:
    """The counters while they count."""

    bytes_in: int = 0
    bytes_out: int = 0
    datagrams_in: int = 0
    datagrams_out: int = 0
    heads_in: int = 0
    heads_out: int = 0
    heads_given_up: int = 0
    retransmissions: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)

    def refuse(self, reason: Refusal, count: int = 1) -> None:
        """Count something that was not taken."""
        if count:
            self.refused[reason] += count

    def snapshot(self) -> Counters:
        """Return the counters as they are now."""
        refused = {reason.value: count for reason, count in sorted(self.refused.items())}
        return Counters(**{**vars(self), "refused": refused})


MOST_NEEDED = 64
"""Heads in a row that a neighbour has to take, at most, until it is waited for again."""


@dataclass(frozen=True)
class Neighbour:
    """A peer that heads are exchanged with.

    Parameters
    ----------
    key_id : bytes
        Its name.
    address : (str, int)
        Where it is.
    last_heard : float
        Seconds since it last showed a sign of life.
    delay : float, optional
        Round-trip time, seconds, as far as it has been measured.
    heads_in : int
        Heads that came from it.
    """

    key_id: bytes
    address: Address
    last_heard: float
    delay: float | None
    heads_in: int


@dataclass
class Link:
    """A neighbour, as the protocol keeps it."""

    key: bytes = field(repr=False)
    key_id: bytes
    address: Address
    session: Session
    allowance: Allowance
    last_heard: float
    next_word: float
    previous: Session | None = None
    path: Path = field(default_factory=Path)
    outgoing: Outgoing | None = None
    incoming: Incoming | None = None
    taken: int = 0
    needed: int = 1
    heads_in: int = 0

    @property
    def reliable(self) -> bool:
        """Whether the last heads were taken: one at least, and twice as many after each that was not."""
        return self.taken >= self.needed

    @property
    def failed(self) -> bool:
        """Whether a head was ever not taken."""
        return self.needed > 1

    def delivered(self) -> None:
        """Note that a head was taken."""
        self.taken += 1

    def let_down(self) -> None:
        """Note that a head was not taken in all the time there was."""
        self.taken, self.needed = 0, min(MOST_NEEDED, 2 * self.needed)
        self.path.silent()

    def seen_by_user(self, now: float) -> Neighbour:
        """Return what the user gets to see."""
        return Neighbour(self.key_id, self.address, max(0.0, now - self.last_heard), self.path.delay, self.heads_in)


@dataclass
class Guest:
    """A session that has not become a neighbour: not confirmed yet, or there is no room."""

    session: Session
    key: bytes
    address: Address
    full: bool
    caller: bool
    began: float


@dataclass
class Call:
    """A handshake that we began."""

    caller: Caller
    address: Address
    began: float
    joined: float = 0.0
    said: bytes = b""
    again: float = 0.0
