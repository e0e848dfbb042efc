"""The transfer of one body to or from one neighbour: windows, acknowledgements, retransmission, timeouts."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest
from bristle.wire.messages import (
    FULL,
    KEPT,
    LARGEST_BITMAP,
    STOP,
    Acknowledgement,
    Piece,
    SignedManifest,
    encode,
)
from bristle.wire.sizes import ACKNOWLEDGE_EVERY, ENVELOPE, SEAL, piece_bytes

ACKNOWLEDGE_WITHIN = 0.01
"""Seconds that an acknowledgement may be delayed; shorter than any sender's timeout."""

MOST_ORPHANS = 32
"""Pieces kept while their manifest has not arrived."""


class Incoming:
    """One body being received from one neighbour.

    Parameters
    ----------
    transfer : int
        Number of the transfer.
    now : float
        When its first unit arrived.
    kind : Kind
        What it is.
    """

    def __init__(self, transfer: int, now: float, kind: Kind = Kind.HEAD) -> None:
        self.transfer = transfer
        self.kind = kind
        self.manifest: Manifest | None = None
        self.signed = b""
        self.base = 0
        self.started = now
        self.size = 0
        self.bytes = 0
        self.newest = 0
        self._start = b""
        self._piece_size = 0
        self._units = 0
        self.received: dict[int, bytes] = {}
        self._news = 0
        self._news_since = math.inf
        self._base = 0

    @property
    def sequence(self) -> int:
        """The body's sequence number."""
        return self.transfer >> 1

    def begin(self, manifest: Manifest, message: SignedManifest, now: float) -> None:
        """Take the manifest and the beginning of the body; drop earlier pieces that do not fit."""
        if self.manifest is None:
            self.manifest, self.signed, self.base = manifest, message.signed, message.base
            self.size, self._start, self._piece_size = message.size, message.start, message.piece_size
            self._units = 1 + -(-(self.size - len(self._start)) // self._piece_size)
            early, self.received = self.received, {}
            for index, data in early.items():
                if len(data) == self.expected_length(index):
                    self.received[index] = data
        self._note(message.order, now)

    def add(self, piece: Piece, now: float) -> bool:
        """Take a piece; return whether it is, or was, a missing one."""
        if self.manifest is None:
            if len(self.received) >= MOST_ORPHANS and piece.index not in self.received:
                return True
            self.received.setdefault(piece.index, piece.data)
        elif len(piece.data) != self.expected_length(piece.index):
            return False
        else:
            self.received.setdefault(piece.index, piece.data)
        self._note(piece.order, now)
        return True

    def expected_length(self, index: int) -> int:
        """Return the length of a piece, or -1 if there is no such piece."""
        if self.manifest is None or index >= self._units - 1:
            return -1
        return min(self._piece_size, self.size - len(self._start) - index * self._piece_size)

    def _note(self, order: int, now: float) -> None:
        self.newest = max(self.newest, order)
        self._news += 1
        self._news_since = min(self._news_since, now)

    @property
    def pieces(self) -> int:
        """Number of pieces received."""
        return len(self.received)

    @property
    def complete(self) -> bool:
        """Whether everything has arrived."""
        return self.manifest is not None and len(self.received) == self._units - 1

    def body(self) -> bytes:
        """Return the body; requires `complete`."""
        return self._start + b"".join(self.received[index] for index in range(self._units - 1))

    @property
    def due(self) -> float:
        """Latest time of the next acknowledgement."""
        return self._news_since + ACKNOWLEDGE_WITHIN

    def acknowledgement(self, now: float) -> Acknowledgement | None:
        """Return an acknowledgement if one is due: after some units, or after some time."""
        if not (self._news >= ACKNOWLEDGE_EVERY or now >= self.due):
            return None
        self._news, self._news_since = 0, math.inf
        if self.manifest is None:
            self._base = 0
        else:
            self._base = max(1, self._base)
            while self._base - 1 in self.received:
                self._base += 1
        later = 0
        for index in self.received:
            place = index - self._base  # Unit index + 1, counted from the one after the base.
            if 0 <= place < 8 * LARGEST_BITMAP:
                later |= 1 << place
        return Acknowledgement(self.transfer, self.newest, self._base, later, self.kind)


FIRST_WINDOW, SMALLEST_WINDOW, LARGEST_WINDOW = 32.0, 16.0, 512.0
FIRST_TIMEOUT, SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 0.5, 0.2, 2.0
_SHORTEST_REORDERING = 0.01
_PROBES = 3
_TRIES = 3
_MOST_BACK_OFF = 4
_LOSS_FACTOR = 0.7
_WINDOW_UNITS = 8 * LARGEST_BITMAP


@dataclass
class Path:
    """Round-trip time and send window of the path to a neighbour, kept from head to head.

    Parameters
    ----------
    handshake : float
        Round-trip time of the handshake in seconds: a first estimate.
    delay, variation : float, optional
        Smoothed round-trip time in seconds, and its variation.
    window : float
        Units that may be in flight.
    asked : float, optional
        Since when an answer is outstanding; None if none is.
    """

    handshake: float = 0.0
    delay: float | None = None
    variation: float = 0.0
    window: float = FIRST_WINDOW
    shrunk: float = -math.inf
    asked: float | None = None

    def measured(self, sample: float) -> None:
        """Update the estimate with one round trip (RFC 6298)."""
        if self.delay is None:
            self.delay, self.variation = sample, sample / 2
            return
        self.variation += (abs(self.delay - sample) - self.variation) / 4
        self.delay += (sample - self.delay) / 8

    @property
    def timeout(self) -> float:
        """Seconds after which an answer is overdue."""
        if self.delay is None:
            return min(LONGEST_TIMEOUT, max(FIRST_TIMEOUT, 4 * self.handshake))
        return min(LONGEST_TIMEOUT, max(SHORTEST_TIMEOUT, self.delay + 4 * self.variation))

    @property
    def overdue(self) -> float:
        """Seconds after which a unit that later ones have overtaken counts as lost."""
        delay = self.delay or 0.0
        return delay + max(_SHORTEST_REORDERING, delay / 8, 2 * self.variation)

    def delivered(self, units: int) -> None:
        """Open the window by the number of acknowledged units."""
        self.window = min(LARGEST_WINDOW, self.window + units)

    def lost(self, now: float) -> None:
        """Shrink the window, once per round trip and not far: loss need not mean congestion."""
        if now - self.shrunk > (self.delay or FIRST_TIMEOUT):
            self.shrunk = now
            self.window = min(self.window, max(SMALLEST_WINDOW, self.window * _LOSS_FACTOR))

    def silent(self) -> None:
        """Shrink the window to one probe, for a neighbour that acknowledges nothing."""
        self.window = 1.0


class Outgoing:
    """One body being sent to one neighbour.

    Parameters
    ----------
    transfer : int
        Number of the transfer.
    signed, body : bytes
        Signed manifest, and what is sent of the body.
    base : int
        Sequence number of the head that this is a difference from; 0: the body is sent in full.
    datagram : int
        Largest UDP payload on the path.
    path : Path
        Path to the neighbour.
    now, patience : float
        Start time, and timeout in seconds.
    kind : Kind
        What it is.
    """

    def __init__(
        self,
        *,
        transfer: int,
        signed: bytes,
        body: bytes,
        base: int = 0,
        datagram: int,
        path: Path,
        now: float,
        patience: float,
        kind: Kind = Kind.HEAD,
    ) -> None:
        self.transfer = transfer
        self.kind = kind
        self.path = path
        self.delivered = False
        self.failed = False
        self.ended: int | None = None
        """How the neighbour ended it: `FULL`, `KEPT` or `STOP`."""

        self.retransmissions = 0
        self._signed, self._body, self._of = signed, body, base
        self._size = piece_bytes(datagram)
        self._start = min(len(body), max(0, datagram - SEAL - ENVELOPE - len(signed)))
        self.units = 1 + -(-(len(body) - self._start) // self._size)
        self._waiting = deque(range(self.units))
        self.in_flight: dict[int, tuple[float, int]] = {}  # When it was sent, and its transmission number.
        self._times = [now]  # When each datagram was sent, by transmission number, from 1.
        self._overtaking = 0
        self._sent_again: set[int] = set()
        self._arrived = bytearray(self.units)
        self._missing = self.units
        self._base = 0
        self._started, self._deadline = now, now + patience
        self._last_news = now
        self._timeouts = 0

    @property
    def over(self) -> bool:
        """Whether it was delivered or given up."""
        return self.delivered or self.failed

    @property
    def missing(self) -> int:
        """Number of units not acknowledged yet."""
        return self._missing

    def ready(self) -> bool:
        """Return whether the window allows another unit."""
        while self._waiting and self._arrived[self._waiting[0]]:
            self._waiting.popleft()  # Thought lost, but only late.
        return (
            not self.over
            and bool(self._waiting)
            and len(self.in_flight) < self.path.window
            and self._waiting[0] <= self._base + _WINDOW_UNITS
        )

    def next(self, now: float) -> bytes:
        """Return the next message to send; requires `ready`."""
        unit = self._waiting.popleft()
        if not self.in_flight:
            self._last_news = now
        if self.path.asked is None:
            self.path.asked = now
        order = len(self._times)
        self._times.append(now)
        self.in_flight[unit] = now, order
        self.retransmissions += unit in self._sent_again
        if unit == 0:
            start = self._body[: self._start]
            base = self.transfer if self.kind == Kind.STATEMENT else self._of
            return encode(SignedManifest(order, self._size, self._signed, base, len(self._body), start, self.kind))
        at = self._start + (unit - 1) * self._size
        return encode(Piece(self.transfer, order, unit - 1, self._body[at : at + self._size], self.kind))

    def acknowledged(self, news: Acknowledgement, now: float) -> None:
        """Process an acknowledgement; detect lost units."""
        if self.over or news.transfer != self.transfer:
            return
        if self._overtaking < news.newest < len(self._times):
            self._overtaking = news.newest
            self.path.measured(now - self._times[news.newest])
        if news.base in (FULL, KEPT, STOP):
            self.path.delivered(self._missing)
            self.ended, self.delivered = news.base, True
            return
        arrived = self._newly_arrived(news)
        for unit in arrived:
            self._arrived[unit] = 1
            self.in_flight.pop(unit, None)
        self._base = max(self._base, min(news.base, self.units))
        self._missing -= len(arrived)
        if arrived:
            self.path.delivered(len(arrived))
            self._last_news, self._timeouts = now, 0
        if not self._missing:
            self.delivered = True
        else:
            self._declare_lost(now)

    def _newly_arrived(self, news: Acknowledgement) -> list[int]:
        units = [unit for unit in range(self._base, min(news.base, self.units)) if not self._arrived[unit]]
        later, unit = news.later, news.base + 1
        while later and unit < self.units:
            if later & 1 and not self._arrived[unit]:
                units.append(unit)
            later >>= 1
            unit += 1
        return units

    def _declare_lost(self, now: float) -> None:
        before = now - self.path.overdue
        lost = sorted(
            unit for unit, (sent, order) in self.in_flight.items() if order < self._overtaking and sent <= before
        )
        if lost:
            self._send_again(lost)
            self.path.lost(now)

    def _send_again(self, units: list[int]) -> None:
        for unit in units:
            del self.in_flight[unit]
            self._sent_again.add(unit)
        # In order, the manifest first: without it the receiver has no room for more than a few pieces.
        self._waiting = deque(sorted((*units, *self._waiting)))

    def _back_off(self) -> int:
        """Return the number of timeouts to wait: exponential back-off after a few tries."""
        return int(min(_MOST_BACK_OFF, 2 ** max(0, self._timeouts - _TRIES)))

    def tick(self, now: float) -> None:
        """Retransmit overdue units, or give up. To be called every few milliseconds."""
        if self.over:
            return
        if now >= self._deadline:
            self.failed = True
            return
        self._declare_lost(now)
        if not self.in_flight or now < self._last_news + self.path.timeout * self._back_off():
            return
        self._last_news = now
        self._timeouts += 1
        # A probe, and no more: often only the answer got lost, or somebody is slow. The answer says what is missing.
        oldest = sorted(self.in_flight, key=self.in_flight.__getitem__)
        self._send_again(sorted(oldest[:_PROBES]))
        self.path.lost(now)
