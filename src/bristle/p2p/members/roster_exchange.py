"""How the records of a founded group travel: neighbours compare ids, and send each other what is missing.

Each neighbour gets the digest of all ids when it joins, after every change, and once a minute. Where two digests
differ, the peer with the smaller key id lists its ids; the other one sends the records that are missing there, and
answers with its own ids, so that it gets those that it lacks. No record is sent to who has it. No sockets, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from bristle.p2p.limits import LATE, NOTHING, PROMISED, WANTED, TokenBucket
from bristle.p2p.members.roster import Roster
from bristle.p2p.neighbour import Counters, Link
from bristle.wire.admission import Record, Revocation, decode_record
from bristle.wire.messages import (
    FIRST_ID,
    LAST_ID,
    MOST_IDS,
    MOST_RECORD_BYTES,
    ROSTER_DIGEST_BYTES,
    Records,
    RosterIds,
    encode,
)
from bristle.wire.refusal import Refusal

AGAIN, SELDOM = 1.0, 60.0
"""Seconds between digests: where they differ, at first, and doubled each time; and at most."""

RATE = 200.0
"""Records per second that a neighbour is sent, and as many at once; twice as many new ones are taken from it."""

REST = 5e-4
"""Seconds between two times that all records are gone through, for each of them."""

_LISTS, _MOST_LISTS = 1.0, 1.0
_MESSAGES, _MOST_MESSAGES = 8.0, 80.0
_PARTING = 8
"""Number of revocations sent to a neighbour that they remove, which would not learn of them otherwise."""


@dataclass
class _Peer:
    """What is known of a neighbour's records, and what it may still send and cause."""

    theirs: bytes = b""
    due: float = 0.0
    wait: float = AGAIN
    lists: TokenBucket = field(default_factory=lambda: TokenBucket(_LISTS, _MOST_LISTS))
    messages: TokenBucket = field(default_factory=lambda: TokenBucket(_MESSAGES, _MOST_MESSAGES))
    sent: TokenBucket = field(default_factory=lambda: TokenBucket(RATE, RATE))
    taken: TokenBucket = field(default_factory=lambda: TokenBucket(2 * RATE, 2 * RATE))


class RosterExchange:
    """Keeps the roster of this peer and those of its neighbours the same.

    Parameters
    ----------
    roster : Roster
        Of the group.
    key_id : bytes
        Of this peer.
    links : dict
        The neighbours, by key id.
    counters : Counters
        To update.
    send : callable
        Seals a message and sends it to a neighbour.
    changed : callable
        Called when the members have changed.
    """

    def __init__(
        self,
        *,
        roster: Roster,
        key_id: bytes,
        links: dict[bytes, Link],
        counters: Counters,
        send: Callable[[Link, bytes], None],
        changed: Callable[[float], None],
    ) -> None:
        self.roster, self._key_id, self._links, self._counters = roster, key_id, links, counters
        self._send, self._changed = send, changed
        self._peers: dict[bytes, _Peer] = {}
        self._revision = -1
        self._entries: dict[bytes, tuple[bytes, ...]] = {}
        self._digest = b""
        self._revocations: list[bytes] = []
        self._not_before = -math.inf
        self.refresh(-math.inf)
        roster.held = True

    def refresh(self, now: float) -> None:
        """Record what has expired or was added; the next `tick` sends it to neighbours that do not know it yet.

        Not at once where there are many records: else a member that renews its invitations all the time would keep
        this peer busy.
        """
        if now < self._not_before or self.roster.refresh() == self._revision:
            return
        self._not_before = now + REST * len(self._entries)
        first, self._revision = self._revision < 0, self.roster.revision
        gone = set(self._entries)
        self._entries = dict(self.roster.entries())
        self._digest = blake2b(b"".join(sorted(self._entries)), digest_size=ROSTER_DIGEST_BYTES).digest()
        if first:
            return
        new = [data for name, records in self._entries.items() if name not in gone for data in records]
        revoked = [data for data in new if isinstance(decode_record(data), Revocation)]
        self._revocations = (self._revocations + revoked)[-_PARTING:]
        for peer in self._peers.values():
            peer.due, peer.wait = now, AGAIN
        self._changed(now)

    def put_out(self, link: Link) -> None:
        """Send a neighbour that is no member any more the revocations that may be why."""
        for message in _packed(self._revocations):
            self._send(link, message)

    def joined(self, link: Link, now: float) -> None:
        """Begin to compare with a new neighbour, or with one that has come again."""
        self._peers.setdefault(link.key_id, _Peer()).due = now

    def left(self, link: Link) -> None:
        """Forget a neighbour."""
        self._peers.pop(link.key_id, None)

    def add(self, records: Iterable[Record], now: float) -> int:
        """Add records; return how many were new, and count why others were refused."""
        new = 0
        for record in records:
            answer = self.roster.add(record)
            if isinstance(answer, Refusal):
                self._counters.refuse(answer)
            new += answer is True
        if new:
            self._counters.records_in += new
            self.refresh(now)
        return new

    def receive(self, link: Link, message: RosterIds | Records, now: float) -> float:
        """Process a message of a neighbour; return its worth."""
        if isinstance(message, Records):
            return self._on_records(link, message, now)
        return self._on_ids(link, message, now)

    def _on_records(self, link: Link, message: Records, now: float) -> float:
        peer = self._peers.get(link.key_id)
        records = [one for one in map(decode_record, message.records) if not isinstance(one, Refusal)]
        if peer is None or not peer.taken.take(sum(map(self.roster.price, records)), now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        unknown = [record for record in records if not self.roster.knows(record)]
        if not unknown:
            return LATE  # Somebody else was faster.
        return WANTED if self.add(unknown, now) else NOTHING

    def _on_ids(self, link: Link, message: RosterIds, now: float) -> float:
        peer = self._peers.get(link.key_id)
        if peer is None or not peer.messages.take(1, now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        self.refresh(now)
        if peer.theirs != message.digest:
            peer.theirs, peer.wait = message.digest, AGAIN
            peer.due = min(peer.due, now + AGAIN)
        if message.digest == self._digest:
            return PROMISED
        if message.first <= message.last:
            self._send_missing(link, peer, message, now)
        elif peer.lists.take(1, now):
            pages = self._pages() if self._key_id < link.key_id else (RosterIds(self._digest),)
            for page in pages:
                self._send(link, encode(page))
        return PROMISED

    def _send_missing(self, link: Link, peer: _Peer, message: RosterIds, now: float) -> None:
        """Send what a neighbour lacks of a part of the ids, and ask for what it has more."""
        theirs = set(message.ids)
        missing = list[bytes]()
        for name, records in self._entries.items():  # Inviters come first.
            if message.first <= name <= message.last and name not in theirs:
                if not peer.sent.take(len(records), now):
                    break
                missing += records
        for packed in _packed(missing):
            self._send(link, packed)
        self._counters.records_out += len(missing)
        if not message.answers and any(name not in self._entries for name in message.ids):
            for page in self._pages(message.first, message.last, answers=True):
                self._send(link, encode(page))

    def _pages(self, first: bytes = FIRST_ID, last: bytes = LAST_ID, *, answers: bool = False) -> Iterator[RosterIds]:
        """Yield all ids from the first to the last, in messages that leave nothing out in between."""
        ids = sorted(name for name in self._entries if first <= name <= last)
        for at in range(0, max(1, len(ids)), MOST_IDS):
            some = tuple(ids[at : at + MOST_IDS])
            until = last if at + MOST_IDS >= len(ids) else some[-1]
            yield RosterIds(self._digest, first, until, some, answers)
            first = (int.from_bytes(until, "big") + 1).to_bytes(len(until) + 1, "big")[-len(until) :]

    def tick(self, now: float) -> None:
        """Send digests that are due."""
        self.refresh(now)
        for key_id, peer in list(self._peers.items()):
            link = self._links.get(key_id)
            if link is None or now < peer.due:
                continue
            self._send(link, encode(RosterIds(self._digest)))
            peer.wait = SELDOM if peer.theirs == self._digest else min(SELDOM, 2 * peer.wait)
            peer.due = now + peer.wait


def _packed(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield messages with the records."""
    some, size = list[bytes](), 0
    for record in records:
        if size + len(record) > MOST_RECORD_BYTES:
            yield encode(Records(tuple(some)))
            some, size = [], 0
        some.append(record)
        size += len(record)
    if some:
        yield encode(Records(tuple(some)))
