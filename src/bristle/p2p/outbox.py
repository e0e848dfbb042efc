"""Sending heads, signed once, to every neighbour at its own pace, and statements to those that ask. No sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import LATE, NOTHING, WANTED, Limits, TokenBucket
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.route import Via
from bristle.p2p.transfer import Outgoing
from bristle.wire.encoding import PLAIN
from bristle.wire.grid import GridHead, encode_grid, largest_grid_body, on_grid
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest, claims_extension, digests_of, encode_manifest
from bristle.wire.messages import FULL, KEPT, MOST_UNITS, Acknowledgement, is_loopback, transfer_of
from bristle.wire.sizes import FORWARDING, piece_bytes
from bristle.wire.statements import SignedStatement

FURTHEST = 2**41
"""How far a neighbour may advance our sequence numbers, in milliseconds (some 70 years); larger values are ignored.

Else a neighbour could exhaust them, and no peer would accept our heads after a restart.
"""

_QUANTUM = 4
_SLOWNESS = 2.0
_GRACE = 0.1
_STALL = 1.0
"""Seconds that stragglers delay the next head at most, or four times what the fastest neighbour took."""

_STALLED_SLOWNESS = 4.0
_RECENT = 64
"""Number of latest bodies for which acknowledgements may still come."""

_UNANSWERED = 2.0
"""Seconds without any answer after which a neighbour gets probes instead of whole heads."""

_REMEMBERED = 8
"""Own heads that are kept for neighbours that know an older one; those that know none of them get a head in full."""


@dataclass(frozen=True)
class Share:
    """A head that is being shared: signed once, the same for all neighbours."""

    sequence: int
    signed: bytes
    started: float
    sent: dict[int, tuple[int, bytes]] = field(default_factory=dict, compare=False)
    """What is sent of it to those who know a head of a number, 0 for none, and what that is a difference from."""


class BodyOutbox:
    """Sends the own head to all neighbours, and statements to those that asked for them, one after the other.

    Parameters
    ----------
    identity, group, limits, counters
        Own identity and group, limits, and counters to update.
    send : callable
        Seals a message and sends it to a neighbour.
    sequence : int
        Sequence number of the first body; larger than in earlier runs, such as the time in milliseconds.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        group: Group,
        limits: Limits,
        counters: Counters,
        send: Callable[[Link, bytes], None],
        sequence: int,
    ) -> None:
        self._identity, self._group, self._limits, self._counters = identity, group, limits, counters
        self._send = send
        self.next_sequence = self.first_sequence = sequence
        self._pace = TokenBucket(limits.send_rate, max(limits.send_rate / 100, 4 * limits.loopback_datagram))
        self.current: Share | None = None
        self._next_transfer = sequence
        self._heads: dict[int, GridHead] = {}
        self.awaited: list[Outgoing] = []
        self._first_after: float | None = None
        self._half_after: float | None = None
        self.ended = 0

    def share(
        self,
        head: NDArray[np.floating],
        links: Iterable[Link],
        *,
        iteration: int,
        claims: NDArray[np.bool_] | None,
        now: float,
    ) -> None:
        """Sign a head and start sending it to neighbours, in place of an older one."""
        classes, _ = self._group.shape
        if head.shape != self._group.shape:
            raise ValueError(f"heads of this group have shape {self._group.shape}, not {head.shape}")
        if claims is not None and claims.shape != (classes,):
            raise ValueError(f"claims have one value for each of {classes} classes, not shape {claims.shape}")
        self.check_fits(Kind.HEAD, largest_grid_body(self._group.shape))
        before = self.current
        public = on_grid(head, None if before is None else self._heads[before.sequence])
        share = self._sign(
            public.content(),
            iteration=iteration,
            extensions=() if claims is None else (claims_extension(np.asarray(claims, np.bool_)),),
            now=now,
        )
        self._heads[share.sequence] = public
        if len(self._heads) > _REMEMBERED:
            del self._heads[next(iter(self._heads))]
        links = list(links)
        self._first_after = self._half_after = None
        started = [(link, self._begin(link, share, now)) for link in links]
        # New neighbours are waited for only while none has proved reliable: else each new identity could stall us once.
        self.awaited = [outgoing for link, outgoing in started if link.reliable] or [
            outgoing for link, outgoing in started if not link.failed
        ]
        self.pump(links, now)

    def send_statement(self, link: Link, signed: SignedStatement, now: float) -> None:
        """Begin sending a statement to a neighbour, once the one before is over."""
        self._next_transfer += 1
        link.outgoing[Kind.STATEMENT] = self._transfer(
            link, Kind.STATEMENT, self._next_transfer, signed.manifest + signed.renewal, signed.body, now
        )
        self.pump([link], now)

    def check_fits(self, kind: Kind, size: int) -> None:
        """Raise ValueError if a body has too many bytes for our datagrams."""
        if size > piece_bytes(self._limits.datagram - FORWARDING) * (MOST_UNITS - 1):
            raise ValueError(
                f"a {kind.name.lower()} of this group takes up to {size} bytes, too many for datagrams of "
                f"{self._limits.datagram} bytes"
            )

    def _sign(self, body: bytes, *, now: float, **fields: Any) -> Share:
        """Sign a head for all neighbours."""
        classes, features = self._group.shape
        manifest = Manifest(
            group=self._group.id,
            author=self._identity.key,
            sequence=self.next_sequence,
            encoding="grid",
            compression=PLAIN,
            classes=classes,
            features=features,
            body=len(body),
            digests=digests_of(body),
            **fields,
        )
        signed = encode_manifest(manifest, self._identity)
        share = self.current = Share(self.next_sequence, signed, now)
        self.next_sequence += 1
        return share

    def _begin(self, link: Link, share: Share, now: float) -> Outgoing:
        self._end(link, Kind.HEAD)
        if link.path.asked is not None and now - link.path.asked > _UNANSWERED:
            link.path.silent()
        base, body = self._sent(share, link.known)
        transfer = transfer_of(share.sequence, base)
        outgoing = link.outgoing[Kind.HEAD] = self._transfer(link, Kind.HEAD, transfer, share.signed, body, now, base)
        return outgoing

    def datagram(self, link: Link) -> int:
        """Return the largest UDP payload on the way to a neighbour."""
        if isinstance(link.address, Via):
            return self._limits.datagram - FORWARDING
        return self._limits.loopback_datagram if is_loopback(link.address) else self._limits.datagram

    def _transfer(
        self, link: Link, kind: Kind, transfer: int, signed: bytes, body: bytes, now: float, base: int = 0
    ) -> Outgoing:
        return Outgoing(
            transfer=transfer,
            signed=signed,
            body=body,
            base=base,
            datagram=self.datagram(link),
            path=link.path,
            now=now,
            patience=self._limits.patience,
            kind=kind,
        )

    def _sent(self, share: Share, known: int) -> tuple[int, bytes]:
        """Return the base (0: none) and the bytes of a head, for a neighbour that knows the head `known`."""
        base = known if known in self._heads and known != share.sequence else 0
        if base not in share.sent:
            found = base, encode_grid(self._heads[share.sequence], self._heads.get(base))
            if base and base != list(self._heads)[-2]:
                # After a while a difference has as much to say as a whole head.
                found = min(found, self._sent(share, 0), key=lambda sent: len(sent[1]))
            share.sent[base] = found
        return share.sent[base]

    def _end(self, link: Link, kind: Kind) -> None:
        """Count the outcome of a transfer and end it."""
        outgoing = link.outgoing.pop(kind, None)
        if outgoing is None:
            return
        self.ended += 1
        self._counters.retransmissions += outgoing.retransmissions
        if kind == Kind.STATEMENT:
            self._counters.statements_out += outgoing.delivered
            self._counters.statements_given_up += not outgoing.delivered
        elif outgoing.delivered:
            self._counters.heads_out += 1
            link.delivered()
        else:
            self._counters.heads_given_up += 1
        outgoing.failed = not outgoing.delivered

    def joined(self, link: Link, now: float) -> None:
        """Send the newest head, in full, to a new or reconnected neighbour."""
        link.known = 0
        self._end(link, Kind.STATEMENT)
        if self.current is not None:
            self._begin(link, self.current, now)
            self.pump([link], now)

    def left(self, link: Link) -> None:
        """End the transfers to a neighbour that left."""
        for kind in list(link.outgoing):
            self._end(link, kind)

    def pump(self, links: Iterable[Link], now: float) -> None:
        """Send what windows and the send rate allow, round robin."""
        ready = [(link, outgoing) for link in links for outgoing in link.outgoing.values()]
        while ready:
            still = []
            for link, outgoing in ready:
                for _ in range(_QUANTUM):
                    if not outgoing.ready():
                        break
                    if self._pace.available(now) <= 0:
                        return
                    message = outgoing.next(now)
                    self._pace.tokens -= len(message)
                    self._send(link, message)
                else:
                    still.append((link, outgoing))
            ready = still

    def acknowledged(self, link: Link, news: Acknowledgement, now: float) -> float:
        """Process an acknowledgement and send what it makes room for; return its worth."""
        if news.kind == Kind.HEAD:
            ours = self.current is not None and 0 <= self.current.sequence - (news.transfer >> 1) < _RECENT
        else:
            ours = 0 <= self._next_transfer - news.transfer < _RECENT
        if not ours:
            return NOTHING
        link.path.asked = None
        if news.base == KEPT and news.kind == Kind.HEAD:
            link.known = max(link.known, news.transfer >> 1)
        outgoing = link.outgoing.get(news.kind)
        if outgoing is None or news.transfer != outgoing.transfer:
            return LATE
        missing = outgoing.missing
        outgoing.acknowledged(news, now)
        if outgoing.ended == FULL and link.known and news.kind == Kind.HEAD and self.current is not None:
            link.known = 0
            del link.outgoing[news.kind]
            again = self._begin(link, self.current, now)
            self.awaited = [again if each is outgoing else each for each in self.awaited]
            self.pump([link], now)
        elif outgoing.over:
            self._end(link, news.kind)
        else:
            self.pump([link], now)
        return WANTED if outgoing.missing < missing or outgoing.delivered else LATE

    def settled(self, now: float) -> bool:
        """Return whether the last head was delivered to, or given up for, every neighbour worth waiting for.

        Not waited for: neighbours that failed before and, once half of the others have it, those that take twice as
        long as that half did. Once one neighbour has it, the rest delay nothing for longer than a second, or four times
        what that one took.
        """
        current = self.current
        if current is None or all(outgoing.over for outgoing in self.awaited):
            return True
        arrived = sum(outgoing.delivered for outgoing in self.awaited)
        elapsed = now - current.started
        if self._first_after is None and arrived:
            self._first_after = elapsed
        if self._first_after is not None and elapsed > max(_STALL, _STALLED_SLOWNESS * self._first_after):
            return True
        if self._half_after is None and 2 * arrived >= len(self.awaited):
            self._half_after = elapsed
        return self._half_after is not None and elapsed > _SLOWNESS * self._half_after + _GRACE

    def advance(self, seen: int) -> None:
        """Continue after the newest sequence number that a neighbour has seen from us, e.g. before a restart."""
        if self.next_sequence <= seen <= self.first_sequence + FURTHEST:
            self.next_sequence = seen + 1

    def tick(self, links: list[Link], now: float) -> bool:
        """Retransmit and time out; return whether any transfer is in progress."""
        busy = False
        for link in links:
            for outgoing in list(link.outgoing.values()):
                outgoing.tick(now)
                if outgoing.over:
                    if outgoing.failed:
                        link.timed_out(counts=outgoing.kind == Kind.HEAD)
                    self._end(link, outgoing.kind)
                else:
                    busy = True
        self.pump(links, now)
        return busy
