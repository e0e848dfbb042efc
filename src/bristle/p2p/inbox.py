"""Receiving heads and statements: every step is checked before anything is spent on it. No sockets."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.gossip import StatementGossip
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
from bristle.wire.statements import (
    Renewal,
    SignedStatement,
    decode_statement_manifest,
    digest_of,
    open_statement,
    refusal_of_renewal,
    split_renewal,
)

REMEMBERED_SENDERS = 4096
WAITING = 2
"""Bodies of a kind that wait for the learner, one per sender, at most: a multiple of the number of slots."""

_LATER = (Refusal.NO_MEMORY, Refusal.OVER_BUDGET)
"""Refusals of a body that may be taken when it comes again."""

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
    """Collects the newest head of every neighbour, and the statements that they were asked for.

    Parameters
    ----------
    group, limits, counters, shared
        The group, the limits, counters to update, and the budget that all neighbours share.
    send : callable
        Seals a message and sends it to a neighbour.
    gossip : StatementGossip
        Knows which statements were asked for, and takes them.
    """

    def __init__(
        self,
        *,
        group: Group,
        limits: Limits,
        counters: Counters,
        shared: SharedBudget,
        send: Callable[[Link, bytes], None],
        gossip: StatementGossip,
    ) -> None:
        self._gossip = gossip
        self._group, self._limits, self._counters, self._shared, self._send = group, limits, counters, shared, send
        self.memory = 0
        self._bases = min(_BASES, limits.memory // (2 * limits.neighbours * grid_bytes(*group.shape)))
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._heads: dict[bytes, ReceivedHead] = {}

    def seen(self, key_id: bytes) -> int:
        """Return the newest sequence number of a head received from a sender, or 0."""
        return self._seen.get(key_id, 0)

    def _is_over(self, link: Link, kind: Kind, transfer: int) -> bool:
        """Return whether a transfer, or a later one of its kind, has ended."""
        if kind == Kind.STATEMENT:
            return self._gossip.is_over(link, transfer)
        return transfer >> 1 <= self.seen(link.key_id)

    def on_manifest(self, link: Link, message: SignedManifest, size: int, now: float) -> float:
        """Process a manifest, cheap checks before the signature; return its worth."""
        incoming = link.incoming.get(message.kind)
        sequence = sequence_of(message.signed)
        transfer = message.base if message.kind == Kind.STATEMENT else transfer_of(sequence, message.base)
        if incoming is not None and incoming.manifest is not None and transfer == incoming.transfer:
            # A duplicate: the acknowledgement got lost.
            incoming.begin(incoming.manifest, message, now)
            self._acknowledge(link, incoming, now)
            return NOTHING
        if message.kind == Kind.STATEMENT:
            return self._on_statement(link, message, size, now)
        if 0 < sequence == self.seen(link.key_id):
            self._answer(link, message.kind, transfer, message.order, self._had(link, message.kind, sequence))
            return LATE
        if not link.budget.may_announce(now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        manifest = decode_manifest(message.signed, self._group)
        if isinstance(manifest, Refusal):
            return self._refuse(link, message, transfer, manifest)
        if (refusal := self._refusal(link, manifest, message, now)) is not None:
            return self._refuse(link, message, transfer, refusal)
        if message.base and message.base not in link.bases:
            self._answer(link, message.kind, transfer, message.order, FULL)
            return PROMISED
        return self._start(link, manifest, message, transfer, size, now)

    def _on_statement(self, link: Link, message: SignedManifest, size: int, now: float) -> float:
        """Process the manifest of a statement, of whatever author; return its worth."""
        gossip, transfer = self._gossip, message.base
        if self._is_over(link, message.kind, transfer):
            self._answer(link, message.kind, transfer, message.order, STOP)
            return LATE
        parts = split_renewal(message.signed)
        if isinstance(parts, Refusal):
            return self._refuse(link, message, transfer, parts)
        signed, renewal = parts
        manifest = decode_statement_manifest(signed, self._group)
        if isinstance(manifest, Refusal):
            return self._refuse(link, message, transfer, manifest)
        author, asked = manifest.sender, gossip.awaits(link, manifest.sender)
        if gossip.has(author, manifest.sequence, digest_of(signed)):
            gossip.settle(link, author, now, well=True)
            gossip.ended(link, transfer)
            self._answer(link, message.kind, transfer, message.order, STOP)
            return LATE
        extended = Renewal.from_bytes(renewal) if renewal else None
        expires = manifest.expires if not isinstance(extended, Renewal) else max(manifest.expires, extended.expires)
        refusal = gossip.refusal(link, manifest, expires) or self._unfit(link, manifest, message)
        # What was asked for is paid for, once.
        if refusal is None and not asked and not link.budget.take_manifest(self._shared, now):
            refusal = Refusal.OVER_BUDGET
        if refusal is None and not is_signed(signed, manifest):
            refusal = Refusal.BAD_SIGNATURE
        if refusal is None and renewal:
            refusal = refusal_of_renewal(renewal, signed)
        if refusal is None and gossip.convict(link, signed, now):
            self._refuse(link, message, transfer, Refusal.EQUIVOCATION)
            return WANTED
        if refusal is not None:
            if refusal not in _LATER:
                gossip.settle(link, author, now, well=False)
            return self._refuse(link, message, transfer, refusal)
        gossip.begun(link, author, now)
        return self._start(link, manifest, message, transfer, size, now)

    def _refuse(self, link: Link, message: SignedManifest, transfer: int, refusal: Refusal) -> float:
        self._counters.refuse(refusal)
        if refusal not in _LATER:
            if message.kind == Kind.STATEMENT:
                self._gossip.ended(link, transfer)
            self._answer(link, message.kind, transfer, message.order, STOP)
        return NOTHING

    def _start(
        self, link: Link, manifest: Manifest, message: SignedManifest, transfer: int, size: int, now: float
    ) -> float:
        """Expect the pieces of a body whose manifest is right; return the worth of the manifest."""
        incoming, worth = link.incoming.get(message.kind), PROMISED
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
        newest, incoming = self.seen(link.key_id), link.incoming.get(message.kind)
        if incoming is not None and incoming.manifest is not None:
            # The same head may follow once more, in full.
            newest = max(newest, incoming.sequence - (message.base == 0 < incoming.base))
        if manifest.kind != message.kind:
            return Refusal.MALFORMED
        if manifest.sender != link.key_id:
            return Refusal.FORGED_SENDER
        if manifest.sequence <= newest:
            return Refusal.REPLAY
        if message.size > largest_grid_body(manifest.shape):
            return Refusal.OVERSIZE
        if (refusal := self._unfit(link, manifest, message)) is not None:
            return refusal
        if not link.budget.take_manifest(self._shared, now):
            return Refusal.OVER_BUDGET
        return None if is_signed(message.signed, manifest) else Refusal.BAD_SIGNATURE

    def _unfit(self, link: Link, manifest: Manifest, message: SignedManifest) -> Refusal | None:
        """Return why a body of this size cannot come in, or None."""
        if message.kind == Kind.STATEMENT and message.size != manifest.body:
            return Refusal.MALFORMED
        if message.size > message.piece_size * (MOST_UNITS - 1):
            return Refusal.MALFORMED
        incoming = link.incoming.get(message.kind)
        freed = incoming.size if incoming is not None else 0
        return Refusal.NO_MEMORY if self.memory - freed + message.size > self._limits.memory else None

    def on_piece(self, link: Link, piece: Piece, size: int, now: float) -> float:
        """Process a piece of a body, also one that overtook its manifest; return its worth."""
        incoming, sequence = link.incoming.get(piece.kind), piece.transfer >> 1
        if self._is_over(link, piece.kind, piece.transfer) or (
            incoming is not None and piece.transfer < incoming.transfer
        ):
            answer = self._had(link, piece.kind, sequence) if sequence == self.seen(link.key_id) else STOP
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
        if worth == WANTED and piece.kind == Kind.STATEMENT:
            self._gossip.progress(link, now)
        self._progress(link, incoming, now)
        return worth

    def _progress(self, link: Link, incoming: Incoming, now: float) -> bool:
        """Acknowledge what has come, and finish what is complete; return whether it is a body that can be used."""
        if not incoming.complete:
            self._acknowledge(link, incoming, now)
            return False
        taken, answer = self._finish(link, incoming, now)
        self._answer(link, incoming.kind, incoming.transfer, incoming.newest, answer)
        return taken

    def _acknowledge(self, link: Link, incoming: Incoming, now: float) -> None:
        if (news := incoming.acknowledgement(now)) is not None:
            self._send(link, encode(news))

    def _finish(self, link: Link, incoming: Incoming, now: float) -> tuple[bool, int]:
        """Take a body that is complete; return whether it was of use, and what to answer."""
        manifest, body = incoming.manifest, incoming.body()
        assert manifest is not None
        self._discard(link, incoming.kind)
        if manifest.kind == Kind.HEAD:
            refusal = self._finish_head(link, incoming, manifest, body)
        else:
            self._gossip.ended(link, incoming.transfer)
            refusal = self._finish_statement(link, incoming, manifest, body, now)
        if refusal is not None:
            self._counters.refuse(refusal)
            if incoming.base:
                return False, FULL if manifest.kind == Kind.HEAD else STOP
        if manifest.kind == Kind.HEAD:
            self._seen[link.key_id] = manifest.sequence
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

    def _finish_statement(
        self, link: Link, incoming: Incoming, manifest: Manifest, body: bytes, now: float
    ) -> Refusal | None:
        statement = open_statement(manifest, body)
        if isinstance(statement, Refusal):
            self._gossip.settle(link, manifest.sender, now, well=False)
            return statement
        parts = split_renewal(incoming.signed)
        assert not isinstance(parts, Refusal)
        signed = SignedStatement(parts[0], body, parts[1])
        refusal = self._gossip.take(
            link,
            ReceivedStatement(
                author=manifest.sender,
                statement=statement,
                number=manifest.sequence,
                expires=signed.expires,
                signed=signed,
                source=link.key_id,
            ),
            now,
        )
        self._counters.statements_in += refusal is None
        return refusal

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
