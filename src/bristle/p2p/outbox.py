"""Heads that go out: signed once, sent to every neighbour at the pace that it takes. No sockets, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import LATE, NOTHING, WANTED, Bucket, Limits
from bristle.p2p.neighbour import Link, Tally
from bristle.p2p.transfer import Outgoing
from bristle.wire.encoding import PLAIN, ZLIB, encode_head
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.manifest import Manifest, claims_extension, digests_of, encode_manifest
from bristle.wire.messages import MOST_UNITS, Acknowledgement, is_loopback
from bristle.wire.sizes import Encoding, piece_bytes

FURTHEST = 2**41
"""Milliseconds, some 70 years, that a clock may have gone back by: what neighbours say beyond that is a lie.

Whoever had us count up to the end of all numbers would silence us for good when we start again.
"""

_QUANTUM = 4
_SLOWNESS = 2.0
_GRACE = 0.1
_STALL = 1.0
"""Seconds that those who have not taken a head hold up the next one, or four times what the quickest took."""

_STALLED_SLOWNESS = 4.0
_RECENT = 64
"""Heads, from the newest back, that acknowledgements may still come for."""

_UNANSWERED = 2.0
"""Seconds after which a neighbour that answers nothing gets probes rather than heads."""


@dataclass(frozen=True)
class Share:
    """A head that is being shared: signed once, the same for all neighbours."""

    sequence: int
    signed: bytes
    body: bytes
    started: float


class Outbox:
    """Shares the own head with all neighbours.

    Parameters
    ----------
    identity, group, limits, tally
        Who we are, whom we belong to, how much is too much, where to count.
    send : callable
        Seals a message for a neighbour and sends it.
    sequence : int
        The first head's; above those of earlier runs, as the time in milliseconds is.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        group: Group,
        limits: Limits,
        tally: Tally,
        send: Callable[[Link, bytes], None],
        sequence: int,
    ) -> None:
        self._identity, self._group, self._limits, self._tally = identity, group, limits, tally
        self._send = send
        self._next_sequence = self._first_sequence = sequence
        self._pace = Bucket(limits.send_rate, max(limits.send_rate / 100, 4 * limits.loopback_datagram))
        self._share: Share | None = None
        self._awaited: list[Outgoing] = []
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
        encoding: Encoding,
        compress: bool,
        now: float,
    ) -> None:
        """Sign a head and send it to neighbours; what was still on its way is superseded."""
        classes, features = self._group.shape
        if head.shape != self._group.shape:
            raise ValueError(f"heads of this group have shape {self._group.shape}, not {head.shape}")
        if claims is not None and claims.shape != (classes,):
            raise ValueError(f"claims have one value for each of {classes} classes, not shape {claims.shape}")
        body = encode_head(head, encoding=encoding, compress=compress)
        if len(body) > piece_bytes(self._limits.datagram) * (MOST_UNITS - 1):
            raise ValueError(
                f"the head takes {len(body)} bytes, too many for datagrams of {self._limits.datagram} bytes"
            )
        manifest = Manifest(
            group=self._group.id,
            sender=self._identity.key_id,
            sequence=self._next_sequence,
            iteration=iteration,
            encoding=encoding,
            compression=ZLIB if compress else PLAIN,
            classes=classes,
            features=features,
            body=len(body),
            digests=digests_of(body),
            extensions=() if claims is None else (claims_extension(np.asarray(claims, np.bool_)),),
        )
        self._share = Share(self._next_sequence, encode_manifest(manifest, self._identity), body, now)
        self._next_sequence += 1
        links = list(links)
        self._first_after = self._half_after = None
        started = [(link, self._begin(link, now)) for link in links]
        # Strangers are waited for only while nobody has proved reliable: else each new name could hold us up once.
        self._awaited = [outgoing for link, outgoing in started if link.reliable] or [
            outgoing for link, outgoing in started if not link.failed
        ]
        self.pump(links, now)

    def _begin(self, link: Link, now: float) -> Outgoing:
        assert self._share is not None
        self._end(link)
        if link.path.asked is not None and now - link.path.asked > _UNANSWERED:
            link.path.silent()
        datagram = self._limits.loopback_datagram if is_loopback(link.address) else self._limits.datagram
        link.outgoing = Outgoing(
            sequence=self._share.sequence,
            signed=self._share.signed,
            body=self._share.body,
            piece_size=piece_bytes(datagram),
            path=link.path,
            now=now,
            patience=self._limits.patience,
        )
        return link.outgoing

    def _end(self, link: Link) -> None:
        """Count what became of the last head, and let go of it."""
        outgoing, link.outgoing = link.outgoing, None
        if outgoing is None:
            return
        self.ended += 1
        self._tally.retransmissions += outgoing.retransmissions
        if outgoing.delivered:
            self._tally.heads_out += 1
            link.delivered()
        else:
            self._tally.heads_given_up += 1
            outgoing.failed = True

    def joined(self, link: Link, now: float) -> None:
        """Let a neighbour who is new, or has begun anew, have the newest head."""
        if self._share is not None:
            self._begin(link, now)
            self.pump([link], now)

    def left(self, link: Link) -> None:
        """Let go of what was on its way to a neighbour."""
        self._end(link)

    def pump(self, links: Iterable[Link], now: float) -> None:
        """Send what windows and pace allow, to everybody in turn."""
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
        """Take an acknowledgement; what it makes room for is sent. Return what it was worth."""
        if self._share is None or not 0 <= self._share.sequence - news.sequence < _RECENT:
            return NOTHING
        link.path.asked = None
        outgoing = link.outgoing
        if outgoing is None or news.sequence != outgoing.sequence:
            return LATE
        missing = outgoing.missing
        outgoing.acknowledged(news, now)
        if outgoing.over:
            self._end(link)
        else:
            self.pump([link], now)
        return WANTED if outgoing.missing < missing or outgoing.delivered else LATE

    def settled(self, now: float) -> bool:
        """Tell whether the last share has left: every neighbour has it or it was given up.

        Stragglers are not waited for: neighbours that let earlier heads fail, and, once half of them have it, those
        that take twice as long as that half did. However many stall, once one has it they hold up nothing for longer
        than a second, or four times what that one took.
        """
        if self._share is None or all(outgoing.over for outgoing in self._awaited):
            return True
        arrived = sum(outgoing.delivered for outgoing in self._awaited)
        elapsed = now - self._share.started
        if self._first_after is None and arrived:
            self._first_after = elapsed
        if self._first_after is not None and elapsed > max(_STALL, _STALLED_SLOWNESS * self._first_after):
            return True
        if self._half_after is None and 2 * arrived >= len(self._awaited):
            self._half_after = elapsed
        return self._half_after is not None and elapsed > _SLOWNESS * self._half_after + _GRACE

    def told(self, seen: int) -> None:
        """Learn that a neighbour has heads of ours, from before a restart, that are ahead of our clock."""
        if self._next_sequence <= seen <= self._first_sequence + FURTHEST:
            self._next_sequence = seen + 1

    def tick(self, links: list[Link], now: float) -> bool:
        """Send again, give up; tell whether anything is still on its way."""
        busy = False
        for link in links:
            if link.outgoing is not None:
                link.outgoing.tick(now)
                if link.outgoing.over:
                    if link.outgoing.failed:
                        link.let_down()
                    self._end(link)
                else:
                    busy = True
        self.pump(links, now)
        return busy
