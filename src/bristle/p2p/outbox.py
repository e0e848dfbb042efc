"""Sending heads: signed once, sent to every neighbour at its own pace. No sockets, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import LATE, NOTHING, WANTED, Limits, TokenBucket
from bristle.p2p.neighbour import Counters, Link
from bristle.p2p.transfer import Outgoing
from bristle.wire.grid import GridHead, encode_grid, largest_grid_body, on_grid
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.manifest import Manifest, claims_extension, digests_of, encode_manifest
from bristle.wire.messages import FULL, KEPT, MOST_UNITS, Acknowledgement, is_loopback
from bristle.wire.sizes import piece_bytes

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
"""Number of latest heads for which acknowledgements may still come."""

_UNANSWERED = 2.0
"""Seconds without any answer after which a neighbour gets probes instead of whole heads."""

_REMEMBERED = 8
"""Own heads that are kept for neighbours that know an older one; others get a head in full."""


@dataclass(frozen=True, eq=False)
class Share:
    """A head that is being shared: signed once, the same for all neighbours.

    Parameters
    ----------
    sequence : int
        Sequence number.
    head : GridHead
        The head as everybody shall know it.
    signed : bytes
        The manifest.
    started : float
        When.
    """

    sequence: int
    head: GridHead
    signed: bytes
    started: float
    bodies: dict[int, bytes] = field(default_factory=dict)
    """What is sent of it, by the sequence number of the head that it is a difference from; 0 for none."""


class HeadOutbox:
    """Sends the own head to all neighbours.

    Parameters
    ----------
    identity, group, limits, counters
        Own identity and group, limits, and counters to update.
    send : callable
        Seals a message and sends it to a neighbour.
    sequence : int
        Sequence number of the first head; larger than in earlier runs, such as the time in milliseconds.
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
        self._public: dict[int, GridHead] = {}
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
        classes, features = self._group.shape
        if head.shape != self._group.shape:
            raise ValueError(f"heads of this group have shape {self._group.shape}, not {head.shape}")
        if claims is not None and claims.shape != (classes,):
            raise ValueError(f"claims have one value for each of {classes} classes, not shape {claims.shape}")
        largest = largest_grid_body(self._group.shape)
        if largest > piece_bytes(self._limits.datagram) * (MOST_UNITS - 1):
            raise ValueError(
                f"a head may take {largest} bytes, too many for datagrams of {self._limits.datagram} bytes"
            )
        public = on_grid(head, None if self.current is None else self.current.head)
        content = public.content()
        manifest = Manifest(
            group=self._group.id,
            sender=self._identity.key_id,
            sequence=self.next_sequence,
            iteration=iteration,
            classes=classes,
            features=features,
            body=len(content),
            digests=digests_of(content),
            extensions=() if claims is None else (claims_extension(np.asarray(claims, np.bool_)),),
        )
        self.current = Share(self.next_sequence, public, encode_manifest(manifest, self._identity), now)
        self._public[self.next_sequence] = public
        if len(self._public) > _REMEMBERED:
            del self._public[next(iter(self._public))]
        self.next_sequence += 1
        links = list(links)
        self._first_after = self._half_after = None
        started = [(link, self._begin(link, now)) for link in links]
        # New neighbours are waited for only while none has proved reliable: else each new identity could stall us once.
        self.awaited = [outgoing for link, outgoing in started if link.reliable] or [
            outgoing for link, outgoing in started if not link.failed
        ]
        self.pump(links, now)

    def _begin(self, link: Link, now: float) -> Outgoing:
        assert self.current is not None
        self._end(link)
        if link.path.asked is not None and now - link.path.asked > _UNANSWERED:
            link.path.silent()
        base, body = self._body(self.current, link.known)
        link.outgoing = Outgoing(
            sequence=self.current.sequence,
            signed=self.current.signed,
            body=body,
            base=base,
            datagram=self._limits.loopback_datagram if is_loopback(link.address) else self._limits.datagram,
            path=link.path,
            now=now,
            patience=self._limits.patience,
        )
        return link.outgoing

    def _body(self, share: Share, known: int) -> tuple[int, bytes]:
        """Return what to send of a head to somebody who knows an earlier one, and which one it is a difference from."""
        base = known if known in self._public and known != share.sequence else 0
        if base not in share.bodies:
            share.bodies[base] = encode_grid(share.head, self._public[base] if base else None)
            if base and base != share.sequence - 1:  # After a while a difference has no less to say than a whole head.
                full = self._body(share, 0)[1]
                if len(full) < len(share.bodies[base]):
                    return 0, full
        return base, share.bodies[base]

    def _end(self, link: Link) -> None:
        """Count the outcome of a transfer and end it."""
        outgoing, link.outgoing = link.outgoing, None
        if outgoing is None:
            return
        self.ended += 1
        self._counters.retransmissions += outgoing.retransmissions
        if outgoing.delivered:
            self._counters.heads_out += 1
            link.delivered()
        else:
            self._counters.heads_given_up += 1
            outgoing.failed = True

    def joined(self, link: Link, now: float) -> None:
        """Send the newest head, in full, to a new or reconnected neighbour."""
        link.known = 0
        if self.current is not None:
            self._begin(link, now)
            self.pump([link], now)

    def left(self, link: Link) -> None:
        """End the transfer to a neighbour that left."""
        self._end(link)

    def pump(self, links: Iterable[Link], now: float) -> None:
        """Send what windows and the send rate allow, round robin."""
        ready = [link for link in links if link.outgoing is not None]
        while ready:
            still = []
            for link in ready:
                outgoing = link.outgoing
                for _ in range(_QUANTUM):
                    if outgoing is None or not outgoing.ready():
                        break
                    if self._pace.available(now) <= 0:
                        return
                    message = outgoing.next(now)
                    self._pace.tokens -= len(message)
                    self._send(link, message)
                else:
                    still.append(link)
            ready = still

    def acknowledged(self, link: Link, news: Acknowledgement, now: float) -> float:
        """Process an acknowledgement and send what it makes room for; return its worth."""
        sequence = news.transfer >> 1
        if self.current is None or not 0 <= self.current.sequence - sequence < _RECENT:
            return NOTHING
        link.path.asked = None
        if news.base == KEPT:
            link.known = max(link.known, sequence)
        outgoing = link.outgoing
        if outgoing is None or news.transfer != outgoing.transfer:
            return LATE
        missing = outgoing.missing
        outgoing.acknowledged(news, now)
        if outgoing.ended == FULL and link.known:
            link.known, link.outgoing = 0, None
            again = self._begin(link, now)
            self.awaited = [again if each is outgoing else each for each in self.awaited]
            self.pump([link], now)
        elif outgoing.over:
            self._end(link)
        else:
            self.pump([link], now)
        return WANTED if outgoing.missing < missing or outgoing.delivered else LATE

    def settled(self, now: float) -> bool:
        """Return whether the last head was delivered to, or given up for, every neighbour worth waiting for.

        Not waited for: neighbours that failed before and, once half of the others have it, those that take twice as
        long as that half did. Once one neighbour has it, the rest delay nothing for longer than a second, or four times
        what that one took.
        """
        if self.current is None or all(outgoing.over for outgoing in self.awaited):
            return True
        arrived = sum(outgoing.delivered for outgoing in self.awaited)
        elapsed = now - self.current.started
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
            if link.outgoing is not None:
                link.outgoing.tick(now)
                if link.outgoing.over:
                    if link.outgoing.failed:
                        link.timed_out()
                    self._end(link)
                else:
                    busy = True
        self.pump(links, now)
        return busy
