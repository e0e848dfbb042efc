"""Heads that come in: checked at every step before anything is spent on them. No sockets, no clock."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import LATE, NOTHING, PROMISED, WANTED, Limits, Pool
from bristle.p2p.neighbour import Link, Tally
from bristle.p2p.transfer import Incoming
from bristle.wire.encoding import Head, decode_head
from bristle.wire.group import Group
from bristle.wire.manifest import Manifest, decode_manifest, is_signed, sequence_of
from bristle.wire.messages import MOST_UNITS, STOP, Acknowledgement, Address, Piece, SignedManifest, encode
from bristle.wire.refusal import Refusal

REMEMBERED_SENDERS = 4096
WAITING = 2
"""Times the number of neighbours: heads, one of each sender, that wait for the learner at most."""

_SLOWNESS = 4.0


@dataclass(frozen=True, eq=False)
class Received:
    """A head that arrived whole, from who it says, and finite.

    Parameters
    ----------
    sender : bytes
        Key id.
    iteration, sequence : int
        The sender's words.
    head : float32 array [C, D]
        The head.
    claims : bool array [C], optional
        The classes that the sender says it knows first-hand.
    address : (str, int)
        Where it came from.
    bytes : int
        What it took on the wire: all datagrams of it that arrived.
    """

    sender: bytes
    iteration: int
    sequence: int
    head: Head
    claims: NDArray[np.bool_] | None
    address: Address
    bytes: int


class Inbox:
    """Collects the heads of all neighbours, the newest of each.

    Parameters
    ----------
    group, limits, tally, pool
        What heads must fit, how much is too much, where to count, and what all neighbours share.
    send : callable
        Seals a message for a neighbour and sends it.
    """

    def __init__(
        self, *, group: Group, limits: Limits, tally: Tally, pool: Pool, send: Callable[[Link, bytes], None]
    ) -> None:
        self._group, self._limits, self._tally, self._pool, self._send = group, limits, tally, pool, send
        self._memory = 0
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._inbox: dict[bytes, Received] = {}

    def seen(self, key_id: bytes) -> int:
        """Return the newest sequence that came from a sender; 0: none did."""
        return self._seen.get(key_id, 0)

    def on_manifest(self, link: Link, message: SignedManifest, size: int, now: float) -> float:
        """Take a manifest: everything that costs nothing is checked before the signature. Return what it was worth."""
        incoming = link.incoming
        sequence = sequence_of(message.signed)
        if incoming is not None and incoming.manifest is not None and sequence == incoming.sequence:
            # Once more: the acknowledgement got lost.
            incoming.begin(incoming.manifest, message.piece_size, message.order, now)
            self._acknowledge(link, now)
            return NOTHING
        if not link.allowance.may_announce(now):
            self._tally.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        manifest = decode_manifest(message.signed, self._group)
        refusal = manifest if isinstance(manifest, Refusal) else self._why_not(link, manifest, message, now)
        if refusal is not None:
            if sequence != self.seen(link.key_id):  # Else it is one we have, once more.
                self._tally.refuse(refusal)
            if refusal not in (Refusal.NO_MEMORY, Refusal.OVER_BUDGET):  # Later, perhaps.
                self._send(link, encode(Acknowledgement(sequence, message.order, STOP)))
            return NOTHING
        assert isinstance(manifest, Manifest)
        worth = PROMISED
        if incoming is None or incoming.sequence != sequence:
            if incoming is not None and not incoming.pieces:
                worth = NOTHING  # The last manifest was for nothing, and so is this one perhaps.
            self.forget(link)
            incoming = link.incoming = Incoming(sequence, now)
        incoming.size = manifest.body
        incoming.bytes += size
        self._memory += manifest.body
        incoming.begin(manifest, message.piece_size, message.order, now)
        self._progress(link, now)
        return worth

    def _why_not(self, link: Link, manifest: Manifest, message: SignedManifest, now: float) -> Refusal | None:
        newest = self.seen(link.key_id)
        if link.incoming is not None and link.incoming.manifest is not None:
            newest = max(newest, link.incoming.sequence)
        if manifest.sender != link.key_id:
            return Refusal.FORGED_SENDER
        if manifest.sequence <= newest:
            return Refusal.REPLAY
        if manifest.body > message.piece_size * (MOST_UNITS - 1):
            return Refusal.MALFORMED
        freed = link.incoming.size if link.incoming is not None else 0
        if self._memory - freed + manifest.body > self._limits.memory:
            return Refusal.NO_MEMORY
        if not link.allowance.take_manifest(self._pool, now):
            return Refusal.OVER_BUDGET
        return None if is_signed(message.signed, manifest, link.key) else Refusal.BAD_SIGNATURE

    def on_piece(self, link: Link, piece: Piece, size: int, now: float) -> float:
        """Take a piece, of the head that is coming in or of one whose manifest is late. Return what it was worth."""
        incoming = link.incoming
        if piece.sequence <= self.seen(link.key_id) or (incoming is not None and piece.sequence < incoming.sequence):
            self._send(link, encode(Acknowledgement(piece.sequence, piece.order, STOP)))
            return LATE
        if incoming is None or piece.sequence > incoming.sequence:
            self.forget(link)
            incoming = link.incoming = Incoming(piece.sequence, now)
        incoming.bytes += size
        pieces = incoming.pieces
        if not incoming.add(piece, now):
            self._tally.refuse(Refusal.MALFORMED)
            return NOTHING
        worth = WANTED if incoming.manifest is not None and incoming.pieces > pieces else LATE
        self._progress(link, now)
        return worth

    def _progress(self, link: Link, now: float) -> None:
        incoming = link.incoming
        self._acknowledge(link, now)
        if incoming is not None and incoming.complete:
            self._finish(link, incoming)

    def _acknowledge(self, link: Link, now: float) -> None:
        if link.incoming is not None and (news := link.incoming.acknowledgement(now)) is not None:
            self._send(link, encode(news))

    def _finish(self, link: Link, incoming: Incoming) -> None:
        manifest, body = incoming.manifest, incoming.body()
        assert manifest is not None
        self.forget(link)
        self._seen[link.key_id] = manifest.sequence
        self._seen.move_to_end(link.key_id)
        if len(self._seen) > REMEMBERED_SENDERS:
            self._seen.popitem(last=False)
        if not manifest.matches(body):
            self._tally.refuse(Refusal.BAD_DIGEST)
            return
        head = decode_head(body, shape=manifest.shape, encoding=manifest.encoding, compression=manifest.compression)
        if isinstance(head, Refusal):
            self._tally.refuse(head)
            return
        link.allowance.kept()
        self._tally.heads_in += 1
        link.heads_in += 1
        self._inbox.pop(link.key_id, None)  # So that the newest comes last.
        if len(self._inbox) >= WAITING * self._limits.neighbours:
            # Senders come and go while the learner rests: those who are still there send again.
            del self._inbox[next(iter(self._inbox))]
            self._tally.refuse(Refusal.NO_MEMORY)
        self._inbox[link.key_id] = Received(
            link.key_id,
            manifest.iteration,
            manifest.sequence,
            head,
            manifest.claims(),
            link.address,
            incoming.bytes,
        )

    def forget(self, link: Link) -> None:
        """Let go of what was coming in from a neighbour."""
        if link.incoming is not None:
            self._memory -= link.incoming.size
            link.incoming = None

    @property
    def waiting(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._inbox)

    def take(self) -> list[Received]:
        """Return the newest head of every sender since the last time."""
        inbox, self._inbox = self._inbox, {}
        return list(inbox.values())

    def tick(self, links: list[Link], now: float) -> float:
        """Acknowledge, stop waiting; return when to come again."""
        due = math.inf
        for link in links:
            if link.incoming is None:
                continue
            self._acknowledge(link, now)
            if now - link.incoming.started > self._limits.patience * _SLOWNESS:
                self._tally.refuse(Refusal.TOO_SLOW)
                self.forget(link)
            else:
                due = min(due, link.incoming.due)
        return due
