"""Receiving heads: every step is checked before anything is spent on it. No sockets, no clock."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import LATE, NOTHING, PROMISED, WANTED, Limits, SharedBudget
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.route import Via
from bristle.p2p.transfer import Incoming
from bristle.wire.encoding import Head, decode_head
from bristle.wire.group import Group
from bristle.wire.manifest import Manifest, decode_manifest, is_signed, sequence_of
from bristle.wire.messages import MOST_UNITS, STOP, Acknowledgement, Address, Piece, SignedManifest, encode
from bristle.wire.refusal import Refusal

REMEMBERED_SENDERS = 4096
WAITING = 2
"""Heads waiting for the learner, one per sender, at most: a multiple of the number of slots."""

_SLOWNESS = 4.0


@dataclass(frozen=True, eq=False)
class ReceivedHead:
    """A head that arrived complete, correctly signed and finite.

    Parameters
    ----------
    sender : bytes
        Key id.
    iteration : int
        As the sender states it.
    head : float32 array [C, D]
        The head.
    claims : bool array [C], optional
        Classes that the sender says it trains and tests itself.
    sequence : int
        As the sender states it.
    address : (str, int), optional
        The sender's address; None where a neighbour forwarded it.
    bytes : int
        Size of all its datagrams that arrived.
    """

    sender: bytes
    iteration: int
    head: Head
    claims: NDArray[np.bool_] | None = None
    sequence: int = 0
    address: Address | None = None
    bytes: int = 0


class HeadInbox:
    """Collects the newest head of every neighbour.

    Parameters
    ----------
    group, limits, counters, shared
        The group, the limits, counters to update, and the budget that all neighbours share.
    send : callable
        Seals a message and sends it to a neighbour.
    """

    def __init__(
        self,
        *,
        group: Group,
        limits: Limits,
        counters: Counters,
        shared: SharedBudget,
        send: Callable[[Link, bytes], None],
    ) -> None:
        self._group, self._limits, self._counters, self._shared, self._send = group, limits, counters, shared, send
        self.memory = 0
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._inbox: dict[bytes, ReceivedHead] = {}

    def seen(self, key_id: bytes) -> int:
        """Return the newest sequence number received from a sender, or 0."""
        return self._seen.get(key_id, 0)

    def on_manifest(self, link: Link, message: SignedManifest, size: int, now: float) -> float:
        """Process a manifest, cheap checks before the signature; return its worth."""
        incoming = link.incoming
        sequence = sequence_of(message.signed)
        if incoming is not None and incoming.manifest is not None and sequence == incoming.sequence:
            # A duplicate: the acknowledgement got lost.
            incoming.begin(incoming.manifest, message.piece_size, message.order, now)
            self._acknowledge(link, now)
            return NOTHING
        if not link.budget.may_announce(now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        manifest = decode_manifest(message.signed, self._group)
        refusal = manifest if isinstance(manifest, Refusal) else self._refusal(link, manifest, message, now)
        if refusal is not None:
            if sequence != self.seen(link.key_id):  # Else it is one we have, once more.
                self._counters.refuse(refusal)
            if refusal not in (Refusal.NO_MEMORY, Refusal.OVER_BUDGET):  # Later, perhaps.
                self._send(link, encode(Acknowledgement(sequence, message.order, STOP)))
            return NOTHING
        assert isinstance(manifest, Manifest)
        worth = PROMISED
        if incoming is None or incoming.sequence != sequence:
            if incoming is not None and not incoming.pieces:
                worth = NOTHING  # Not one piece followed the last manifest.
            self.forget(link)
            incoming = link.incoming = Incoming(sequence, now)
        incoming.size = manifest.body
        incoming.bytes += size
        self.memory += manifest.body
        incoming.begin(manifest, message.piece_size, message.order, now)
        self._progress(link, now)
        return worth

    def _refusal(self, link: Link, manifest: Manifest, message: SignedManifest, now: float) -> Refusal | None:
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
        if self.memory - freed + manifest.body > self._limits.memory:
            return Refusal.NO_MEMORY
        if not link.budget.take_manifest(self._shared, now):
            return Refusal.OVER_BUDGET
        return None if is_signed(message.signed, manifest, link.key) else Refusal.BAD_SIGNATURE

    def on_piece(self, link: Link, piece: Piece, size: int, now: float) -> float:
        """Process a piece of a head, also one that overtook its manifest; return its worth."""
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
            self._counters.refuse(Refusal.MALFORMED)
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
            self._counters.refuse(Refusal.BAD_DIGEST)
            return
        head = decode_head(body, shape=manifest.shape, encoding=manifest.encoding, compression=manifest.compression)
        if isinstance(head, Refusal):
            self._counters.refuse(head)
            return
        link.budget.head_followed()
        self._counters.heads_in += 1
        link.heads_in += 1
        self._inbox.pop(link.key_id, None)  # So that the newest comes last.
        if len(self._inbox) >= WAITING * self._limits.neighbours:
            # Senders come and go while the learner rests: those who are still there send again.
            del self._inbox[next(iter(self._inbox))]
            self._counters.refuse(Refusal.NO_MEMORY)
        self._inbox[link.key_id] = ReceivedHead(
            sender=link.key_id,
            iteration=manifest.iteration,
            head=head,
            claims=manifest.claims(),
            sequence=manifest.sequence,
            address=None if isinstance(link.address, Via) else link.address,
            bytes=incoming.bytes,
        )

    def forget(self, link: Link) -> None:
        """Discard the transfer in progress from a neighbour."""
        if link.incoming is not None:
            self.memory -= link.incoming.size
            link.incoming = None

    @property
    def waiting(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._inbox)

    def take(self) -> list[ReceivedHead]:
        """Return the newest head of every sender since the last time."""
        inbox, self._inbox = self._inbox, {}
        return list(inbox.values())

    def tick(self, links: list[Link], now: float) -> float:
        """Send acknowledgements, time out transfers; return when to call again."""
        due = math.inf
        for link in links:
            if link.incoming is None:
                continue
            self._acknowledge(link, now)
            if now - link.incoming.started > self._limits.patience * _SLOWNESS:
                self._counters.refuse(Refusal.TOO_SLOW)
                self.forget(link)
            else:
                due = min(due, link.incoming.due)
        return due
