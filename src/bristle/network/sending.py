"""One head on its way to one neighbour: what to send, what to send again, and when to give up.

No sockets and no clock: time comes in as an argument. A unit is the manifest (0) or a piece of the body (1, 2, ...). It
counts as lost when one that was sent a good while later has arrived (as RACK does for TCP, RFC 8985); when nothing is
heard for longer than it should take, some units are sent again to get an answer.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from bristle.network.messages import LARGEST_BITMAP, STOP, Acknowledgement, Piece, SignedManifest, encode

FIRST_WINDOW, SMALLEST_WINDOW, LARGEST_WINDOW = 32.0, 16.0, 512.0
FIRST_TIMEOUT, SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 1.0, 0.2, 2.0
_SHORTEST_REORDERING = 0.005
_PROBES = 2
_LOSS_FACTOR = 0.7
_WINDOW_UNITS = 8 * LARGEST_BITMAP


@dataclass
class Path:
    """What is known of the way to a neighbour; it outlives a head.

    Parameters
    ----------
    delay, variation : float, optional
        Smoothed round-trip time, seconds, and how much it varies.
    window : float
        Units that may be on their way.
    """

    delay: float | None = None
    variation: float = 0.0
    window: float = FIRST_WINDOW
    shrunk: float = -math.inf

    def measured(self, sample: float) -> None:
        """Learn from one round trip (RFC 6298)."""
        if self.delay is None:
            self.delay, self.variation = sample, sample / 2
            return
        self.variation += (abs(self.delay - sample) - self.variation) / 4
        self.delay += (sample - self.delay) / 8

    @property
    def timeout(self) -> float:
        """Seconds after which an answer is overdue."""
        if self.delay is None:
            return FIRST_TIMEOUT
        return min(LONGEST_TIMEOUT, max(SHORTEST_TIMEOUT, self.delay + 4 * self.variation))

    def delivered(self, units: int) -> None:
        """Open the window: what arrives shows that more would."""
        self.window = min(LARGEST_WINDOW, self.window + units)

    def lost(self, now: float) -> None:
        """Close the window somewhat, once for each round trip. It never closes far: loss need not mean congestion."""
        if now - self.shrunk > (self.delay or FIRST_TIMEOUT):
            self.shrunk = now
            self.window = max(SMALLEST_WINDOW, self.window * _LOSS_FACTOR)


class Outgoing:
    """One head on its way to one neighbour.

    Parameters
    ----------
    sequence : int
        The head's.
    signed, body : bytes
        Its manifest, and what follows in pieces.
    piece_size : int
        Bytes of the body in one datagram.
    path : Path
        To the neighbour.
    now, patience : float
        When this begins, and how many seconds it may take.
    """

    def __init__(
        self, *, sequence: int, signed: bytes, body: bytes, piece_size: int, path: Path, now: float, patience: float
    ) -> None:
        self.sequence = sequence
        self.path = path
        self.delivered = False
        self.failed = False
        self.retransmissions = 0
        self._signed, self._body, self._size = signed, body, piece_size
        self.units = 1 + -(-len(body) // piece_size)
        self._waiting = deque(range(self.units))
        self._on_their_way: dict[int, float] = {}
        self._sent_again: set[int] = set()
        self._arrived = bytearray(self.units)
        self._missing = self.units
        self._base = 0
        self._started, self._deadline = now, now + patience
        self._last_news = now
        self._timeouts = 0

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do: all has arrived, or it was given up."""
        return self.delivered or self.failed

    def ready(self) -> bool:
        """Tell whether a unit may be sent now, as far as the window goes."""
        while self._waiting and self._arrived[self._waiting[0]]:
            self._waiting.popleft()  # Thought lost, but only late.
        return (
            not self.over
            and bool(self._waiting)
            and len(self._on_their_way) < self.path.window
            and self._waiting[0] <= self._base + _WINDOW_UNITS
        )

    def next(self, now: float) -> bytes:
        """Return the next message to seal and send; `ready` must hold."""
        unit = self._waiting.popleft()
        if not self._on_their_way:
            self._last_news = now
        self._on_their_way[unit] = now
        self.retransmissions += unit in self._sent_again
        if unit == 0:
            return encode(SignedManifest(self._size, self._signed))
        start = (unit - 1) * self._size
        return encode(Piece(self.sequence, unit - 1, self._body[start : start + self._size]))

    def acknowledged(self, news: Acknowledgement, now: float) -> None:
        """Take note of what has arrived, and of what must be lost."""
        if self.over or news.sequence != self.sequence:
            return
        if news.base == STOP:
            self.delivered = True
            return
        latest, sample, count = -math.inf, None, 0
        for unit in self._newly_arrived(news):
            self._arrived[unit] = 1
            self._missing -= 1
            count += 1
            sent = self._on_their_way.pop(unit, None)
            if sent is not None:
                latest = max(latest, sent)
                if unit not in self._sent_again and (sample is None or now - sent < sample):
                    sample = now - sent
        self._base = max(self._base, min(news.base, self.units))
        if sample is not None:
            self.path.measured(sample)
        if count:
            self.path.delivered(count)
            self._last_news, self._timeouts = now, 0
        if not self._missing:
            self.delivered = True
            return
        self._declare_lost(latest - self._reordering(), now)

    def _newly_arrived(self, news: Acknowledgement) -> list[int]:
        units = [unit for unit in range(self._base, min(news.base, self.units)) if not self._arrived[unit]]
        later, unit = news.later, news.base + 1
        while later and unit < self.units:
            if later & 1 and not self._arrived[unit]:
                units.append(unit)
            later >>= 1
            unit += 1
        return units

    def _reordering(self) -> float:
        """Seconds by which units may overtake each other without one of them being lost."""
        return max(_SHORTEST_REORDERING, (self.path.delay or 0.0) / 2)

    def _declare_lost(self, before: float, now: float) -> None:
        lost = sorted(unit for unit, sent in self._on_their_way.items() if sent < before)
        if lost:
            self._send_again(lost)
            self.path.lost(now)

    def _send_again(self, units: list[int]) -> None:
        for unit in reversed(units):
            del self._on_their_way[unit]
            self._waiting.appendleft(unit)
            self._sent_again.add(unit)

    @property
    def due(self) -> float:
        """When `tick` has something to do at the latest."""
        if self.over:
            return math.inf
        overdue = self._last_news + self.path.timeout * 2**self._timeouts if self._on_their_way else math.inf
        return min(self._deadline, overdue)

    def tick(self, now: float) -> None:
        """Give up, or, when an answer is overdue, send some units again."""
        if now < self.due:
            return
        if now >= self._deadline:
            self.failed = True
            return
        self._last_news = now
        self._timeouts += 1
        oldest = sorted(self._on_their_way, key=self._on_their_way.__getitem__)
        # First a probe, since often only the answer got lost; then whatever has not been heard of.
        self._send_again(sorted(oldest[:_PROBES] if self._timeouts == 1 else oldest))
        self.path.lost(now)
