"""What is known of a neighbour: for the user, and for the protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

from bristle.network.addresses import Address
from bristle.network.allowance import Allowance
from bristle.network.handshake import Caller
from bristle.network.receiving import Incoming
from bristle.network.sending import Outgoing, Path
from bristle.network.session import Session

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
