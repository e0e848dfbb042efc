"""Receiving heads and statements: every step is checked before anything is spent on it. No sockets."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import LATE, NOTHING, PROMISED, WANTED, Limits, SharedBudget
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.route import Via
from bristle.p2p.statements import ReceivedStatement
from bristle.p2p.transfer import Incoming
from bristle.wire.grid import GridHead, decode_grid, largest_grid_body
from bristle.wire.group import Group
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, decode_manifest, is_signed, sequence_of
from bristle.wire.messages import (
    FULL,
    KEPT,
    MOST_UNITS,
    STOP,
    Acknowledgement,
    Address,
    Piece,
    SignedManifest,
    encode,
    transfer_of,
)
from bristle.wire.refusal import Refusal
from bristle.wire.sizes import grid_bytes
from bristle.wire.statements import SignedStatement, life_of, open_statement

REMEMBERED_SENDERS = 4096
WAITING = 2
"""Bodies of a kind that wait for the learner, one per sender, at most: a multiple of the number of slots."""

_SLOWNESS = 4.0
_BASES = 8
"""Heads of a neighbour that are kept at most, for its next ones to be differences from."""


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
    head: NDArray[np.float32]
    claims: NDArray[np.bool_] | None = None
    sequence: int = 0
    address: Address | None = None
    bytes: int = 0


class BodyInbox:
    """Collects the newest head and the newest statement of every neighbour.

    Parameters
    ----------
    group, limits, counters, shared
        The group, the limits, counters to update, and the budget that all neighbours share.
    send : callable
        Seals a message and sends it to a neighbour.
    stated : callable
        Takes a statement that has arrived; returns whether there was room for it.
    clock : callable
        Returns the seconds since 1970, which expiry is measured by.
    """

    def __init__(
        self,
        *,
        group: Group,
        limits: Limits,
        counters: Counters,
        shared: SharedBudget,
        send: Callable[[Link, bytes], None],
        stated: Callable[[ReceivedStatement], bool] = lambda received: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stated, self._clock = stated, clock
        self._group, self._limits, self._counters, self._shared, self._send = group, limits, counters, shared, send
        self.memory = 0
        self._bases = min(_BASES, limits.memory // (2 * limits.neighbours * grid_bytes(*group.shape)))
        self._seen: OrderedDict[bytes, dict[Kind, int]] = OrderedDict()
        self._heads: dict[bytes, ReceivedHead] = {}

    def seen(self, key_id: bytes) -> int:
        """Return the newest sequence number received from a sender, of any kind, or 0."""
        return max(self._seen.get(key_id, {}).values(), default=0)

    def _seen_of(self, key_id: bytes, kind: Kind) -> int:
        return self._seen.get(key_id, {}).get(kind, 0)

    def on_manifest(self, link: Link, message: SignedManifest, size: int, now: float) -> float:
        """Process a manifest, cheap checks before the signature; return its worth."""
        incoming = link.incoming.get(message.kind)
        sequence = sequence_of(message.signed)
        transfer = transfer_of(sequence, message.base)
        if incoming is not None and incoming.manifest is not None and transfer == incoming.transfer:
            # A duplicate: the acknowledgement got lost.
            incoming.begin(incoming.manifest, message, now)
            self._acknowledge(link, incoming, now)
            return NOTHING
        if 0 < sequence == self._seen_of(link.key_id, message.kind):
            self._answer(link, message.kind, transfer, message.order, self._had(link, message.kind, sequence))
            return LATE
        if not link.budget.may_announce(now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        manifest = decode_manifest(message.signed, self._group)
        refusal = manifest if isinstance(manifest, Refusal) else self._refusal(link, manifest, message, now)
        if refusal is not None:
            self._counters.refuse(refusal)
            if refusal not in (Refusal.NO_MEMORY, Refusal.OVER_BUDGET):  # Later, perhaps.
                self._answer(link, message.kind, transfer, message.order, STOP)
            return NOTHING
        assert isinstance(manifest, Manifest)
        if message.base and message.base not in link.bases:
            self._answer(link, message.kind, transfer, message.order, FULL)
            return PROMISED
        worth = PROMISED
        if incoming is None or incoming.transfer != transfer:
            if incoming is not None and not incoming.pieces:
                worth = NOTHING  # Not one piece followed the last manifest.
            incoming = self._begin(link, transfer, message.kind, now)
        incoming.bytes += size
        self.memory += message.size
        incoming.begin(manifest, message, now)
        return WANTED if self._progress(link, incoming, now) else worth

    def _had(self, link: Link, kind: Kind, sequence: int) -> int:
        """Return what to answer to a body that has come before."""
        return KEPT if kind == Kind.HEAD and sequence in link.bases else STOP

    def _answer(self, link: Link, kind: Kind, transfer: int, order: int, answer: int) -> None:
        self._send(link, encode(Acknowledgement(transfer, order, answer, kind=kind)))

    def _begin(self, link: Link, transfer: int, kind: Kind, now: float) -> Incoming:
        """Expect a body in the place of an older one of its kind."""
        self._discard(link, kind)
        incoming = link.incoming[kind] = Incoming(transfer, now, kind)
        return incoming

    def _refusal(self, link: Link, manifest: Manifest, message: SignedManifest, now: float) -> Refusal | None:
        newest, incoming = self._seen_of(link.key_id, message.kind), link.incoming.get(message.kind)
        if incoming is not None and incoming.manifest is not None:
            # The same head may follow once more, in full.
            newest = max(newest, incoming.sequence - (message.base == 0 < incoming.base))
        if manifest.kind != message.kind:
            return Refusal.MALFORMED
        if manifest.sender != link.key_id:
            return Refusal.FORGED_SENDER
        if manifest.sequence <= newest:
            return Refusal.REPLAY
        if manifest.kind == Kind.STATEMENT and (refusal := life_of(manifest.expires, self._clock())) is not None:
            return refusal
        if manifest.kind == Kind.HEAD and message.size > largest_grid_body(manifest.shape):
            return Refusal.OVERSIZE
        if manifest.kind != Kind.HEAD and (message.base or message.size != manifest.body):
            return Refusal.MALFORMED
        if message.size > message.piece_size * (MOST_UNITS - 1):
            return Refusal.MALFORMED
        freed = incoming.size if incoming is not None else 0
        if self.memory - freed + message.size > self._limits.memory:
            return Refusal.NO_MEMORY
        if not link.budget.take_manifest(self._shared, now):
            return Refusal.OVER_BUDGET
        return None if is_signed(message.signed, manifest) else Refusal.BAD_SIGNATURE

    def on_piece(self, link: Link, piece: Piece, size: int, now: float) -> float:
        """Process a piece of a body, also one that overtook its manifest; return its worth."""
        incoming, sequence = link.incoming.get(piece.kind), piece.transfer >> 1
        seen = self._seen_of(link.key_id, piece.kind)
        if sequence <= seen or (incoming is not None and piece.transfer < incoming.transfer):
            answer = self._had(link, piece.kind, sequence) if sequence == seen else STOP
            self._answer(link, piece.kind, piece.transfer, piece.order, answer)
            return LATE
        if incoming is None or piece.transfer > incoming.transfer:
            incoming = self._begin(link, piece.transfer, piece.kind, now)
        incoming.bytes += size
        pieces = incoming.pieces
        if not incoming.add(piece, now):
            self._counters.refuse(Refusal.MALFORMED)
            return NOTHING
        worth = WANTED if incoming.manifest is not None and incoming.pieces > pieces else LATE
        self._progress(link, incoming, now)
        return worth

    def _progress(self, link: Link, incoming: Incoming, now: float) -> bool:
        """Acknowledge what has come, and finish what is complete; return whether it is a body that can be used."""
        if not incoming.complete:
            self._acknowledge(link, incoming, now)
            return False
        taken, answer = self._finish(link, incoming)
        self._answer(link, incoming.kind, incoming.transfer, incoming.newest, answer)
        return taken

    def _acknowledge(self, link: Link, incoming: Incoming, now: float) -> None:
        if (news := incoming.acknowledgement(now)) is not None:
            self._send(link, encode(news))

    def _finish(self, link: Link, incoming: Incoming) -> tuple[bool, int]:
        """Take a body that is complete; return whether it was of use, and what to answer."""
        manifest, body = incoming.manifest, incoming.body()
        assert manifest is not None
        self._discard(link, incoming.kind)
        if manifest.kind == Kind.HEAD:
            refusal = self._finish_head(link, incoming, manifest, body)
        else:
            refusal = self._finish_statement(link, incoming, manifest, body)
        if refusal is not None:
            self._counters.refuse(refusal)
            if incoming.base:
                return False, FULL
        self._seen.setdefault(link.key_id, {})[incoming.kind] = manifest.sequence
        self._seen.move_to_end(link.key_id)
        if len(self._seen) > REMEMBERED_SENDERS:
            self._seen.popitem(last=False)
        if refusal is not None:
            return False, STOP
        link.budget.body_followed()
        return True, self._had(link, incoming.kind, manifest.sequence)

    def _finish_head(self, link: Link, incoming: Incoming, manifest: Manifest, body: bytes) -> Refusal | None:
        base = link.bases.get(incoming.base)
        if incoming.base and base is None:
            return Refusal.BAD_BODY
        head = decode_grid(body, shape=manifest.shape, base=base)
        if isinstance(head, Refusal):
            return head
        if not manifest.matches(head.content()):
            return Refusal.BAD_DIGEST
        self._keep(link, incoming.base, manifest.sequence, head)
        self._counters.heads_in += 1
        link.heads_in += 1
        self._make_room(self._heads, link.key_id)
        self._heads[link.key_id] = ReceivedHead(
            sender=link.key_id,
            iteration=manifest.iteration,
            head=head.values(),
            claims=manifest.claims(),
            sequence=manifest.sequence,
            address=None if isinstance(link.address, Via) else link.address,
            bytes=incoming.bytes,
        )
        return None

    def _keep(self, link: Link, base: int, sequence: int, head: GridHead) -> None:
        """Keep a head for the next difference; as its sender knows of the base, it will name no older one."""
        link.bases = {number: kept for number, kept in link.bases.items() if number >= base}
        link.bases[sequence] = head
        while len(link.bases) > self._bases:
            del link.bases[next(iter(link.bases))]

    def _finish_statement(self, link: Link, incoming: Incoming, manifest: Manifest, body: bytes) -> Refusal | None:
        statement = open_statement(manifest, body)
        if isinstance(statement, Refusal):
            return statement
        received = ReceivedStatement(
            author=manifest.sender,
            statement=statement,
            number=manifest.sequence,
            expires=manifest.expires,
            signed=SignedStatement(incoming.signed, body),
            source=link.key_id,
        )
        if not self._stated(received):
            return Refusal.NO_MEMORY
        self._counters.statements_in += 1
        return None

    def _make_room(self, waiting: dict[bytes, Any], key_id: bytes) -> None:
        """Drop an older body of this sender, so that the newest comes last, or the oldest of too many."""
        waiting.pop(key_id, None)
        if len(waiting) >= WAITING * self._limits.neighbours:
            # Senders come and go while the learner rests: those who are still there send again.
            del waiting[next(iter(waiting))]
            self._counters.refuse(Refusal.NO_MEMORY)

    def _discard(self, link: Link, kind: Kind) -> None:
        incoming = link.incoming.pop(kind, None)
        if incoming is not None:
            self.memory -= incoming.size

    def forget(self, link: Link) -> None:
        """Discard the transfers in progress from a neighbour."""
        for kind in list(link.incoming):
            self._discard(link, kind)

    @property
    def waiting(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._heads)

    def take(self) -> list[ReceivedHead]:
        """Return the newest head of every sender since the last time."""
        heads, self._heads = self._heads, {}
        return list(heads.values())

    def tick(self, links: list[Link], now: float) -> float:
        """Send acknowledgements, time out transfers; return when to call again."""
        due = math.inf
        for link in links:
            for incoming in list(link.incoming.values()):
                self._acknowledge(link, incoming, now)
                if now - incoming.started > self._limits.patience * _SLOWNESS:
                    self._counters.refuse(Refusal.TOO_SLOW)
                    self._discard(link, incoming.kind)
                else:
                    due = min(due, incoming.due)
        return due
