"""One head coming in from one neighbour: what is there, what to acknowledge, and when to stop waiting.

No sockets and no clock: time comes in as an argument. Nothing is kept that the manifest, or, before it is there, a
small bound does not allow.
"""

from __future__ import annotations

import math

from bristle.network.manifest import Manifest
from bristle.network.messages import LARGEST_BITMAP, Acknowledgement, Piece
from bristle.peer.wire_size import ACKNOWLEDGE_EVERY

ACKNOWLEDGE_WITHIN = 0.01
"""Seconds: so long may news wait for more, and less than any timeout of a sender."""

MOST_ORPHANS = 32
"""Pieces kept while the manifest is not there yet."""


class Incoming:
    """One head coming in from one neighbour.

    Parameters
    ----------
    sequence : int
        The head's.
    now : float
        When its first unit came.
    """

    def __init__(self, sequence: int, now: float) -> None:
        self.sequence = sequence
        self.manifest: Manifest | None = None
        self.started = now
        self.size = 0
        self.bytes = 0
        self._piece_size = 0
        self._units = 0
        self._pieces: dict[int, bytes] = {}
        self._news = 0
        self._news_since = math.inf
        self._base = 0
        self._newest = 0

    def begin(self, manifest: Manifest, piece_size: int, order: int, now: float) -> None:
        """Take the manifest: now it is known what to expect, and what came early and does not fit is dropped."""
        if self.manifest is None:
            self.manifest = manifest
            self._piece_size = piece_size
            self._units = 1 + -(-manifest.body // piece_size)
            early, self._pieces = self._pieces, {}
            for index, data in early.items():
                if len(data) == self._expected(index):
                    self._pieces[index] = data
        self._note(order, now)

    def add(self, piece: Piece, now: float) -> bool:
        """Take a piece; tell whether it is one that was wanted, or at least one that had been."""
        if self.manifest is None:
            if len(self._pieces) >= MOST_ORPHANS and piece.index not in self._pieces:
                return True
            self._pieces.setdefault(piece.index, piece.data)
        elif len(piece.data) != self._expected(piece.index):
            return False
        else:
            self._pieces.setdefault(piece.index, piece.data)
        self._note(piece.order, now)
        return True

    def _expected(self, index: int) -> int:
        """Return how long a piece has to be; -1: there is no such piece."""
        if self.manifest is None or index >= self._units - 1:
            return -1
        return min(self._piece_size, self.manifest.body - index * self._piece_size)

    def _note(self, order: int, now: float) -> None:
        self._newest = max(self._newest, order)
        self._news += 1
        self._news_since = min(self._news_since, now)

    @property
    def pieces(self) -> int:
        """How many pieces are there."""
        return len(self._pieces)

    @property
    def complete(self) -> bool:
        """Whether all of it is there."""
        return self.manifest is not None and len(self._pieces) == self._units - 1

    def body(self) -> bytes:
        """Return the body; it must be complete."""
        return b"".join(self._pieces[index] for index in range(self._units - 1))

    @property
    def due(self) -> float:
        """When news must be acknowledged at the latest."""
        return self._news_since + ACKNOWLEDGE_WITHIN

    def acknowledgement(self, now: float) -> Acknowledgement | None:
        """Return what to tell the sender now, if anything: after some units, after some time, and at the end."""
        if not (self._news >= ACKNOWLEDGE_EVERY or now >= self.due or (self._news and self.complete)):
            return None
        self._news, self._news_since = 0, math.inf
        if self.manifest is None:
            self._base = 0
        else:
            self._base = max(1, self._base)
            while self._base - 1 in self._pieces:
                self._base += 1
        later = 0
        for index in self._pieces:
            place = index - self._base  # Unit index + 1, counted from the one after the base.
            if 0 <= place < 8 * LARGEST_BITMAP:
                later |= 1 << place
        return Acknowledgement(self.sequence, self._newest, self._base, later)
