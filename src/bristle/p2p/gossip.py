"""Gossip of statements: each peer tells its neighbours which ones it has, and asks them for those that it lacks.

Every statement that verifies is passed on, whether or not a rule uses it: otherwise honest outliers would be silenced.
There are no sockets and no clock here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from bristle.p2p.limits import LATE, NOTHING, PROMISED, WANTED, Limits, SharedBudget
from bristle.p2p.neighbour import MOST_ASKED, MOST_OFFERS, AskedStatement, Counters, Link, StatementExchange
from bristle.p2p.outbox import BodyOutbox
from bristle.p2p.statements import ReceivedStatement, StatementStore
from bristle.wire.group import Group
from bristle.wire.identity import KEY_BYTES, key_id_of
from bristle.wire.kinds import Kind
from bristle.wire.manifest import Manifest
from bristle.wire.offers import (
    CONVICTED,
    EquivocationProof,
    ExchangeMessage,
    Have,
    Holding,
    SignedRenewal,
    Want,
    encode_exchange,
    offers_in,
)
from bristle.wire.refusal import Refusal
from bristle.wire.statements import (
    LEAST_RENEWAL,
    STATEMENT_DIGEST_BYTES,
    Proof,
    Renewal,
    SignedStatement,
    digest_of,
    life_of,
    refusal_of_renewal,
    verify_proof,
)

_PROMPT = 1.0
"""Minimum number of seconds without any part of what was asked for, after which others are asked."""

_TOO_LONG = 2.0
"""Others are asked for a statement after this many times the patience of a transfer, however much has arrived."""

_REPEAT, _LONGEST_REPEAT = 0.5, 8.0
_EXPIRY = 10.0
"""Seconds between checks for expired statements."""

_KEY_AT = 24


class StatementGossip:
    """Exchanges statements, renewals and proofs of equivocation with all neighbours.

    Parameters
    ----------
    key_id : bytes
        Key id of this peer.
    group, limits, counters, shared
        The group, the limits, counters to update, and the budget that all neighbours share.
    store : StatementStore
        Known statements of others.
    outbox : BodyOutbox
        Sends statements.
    send : callable
        Seals a message and sends it to a neighbour.
    clock : callable
        Returns the seconds since 1970.
    """

    def __init__(
        self,
        *,
        key_id: bytes,
        group: Group,
        limits: Limits,
        counters: Counters,
        shared: SharedBudget,
        outbox: BodyOutbox,
        send: Callable[[Link, bytes], None],
        clock: Callable[[], float],
    ) -> None:
        self._key_id, self._group, self._limits, self._counters, self._shared = key_id, group, limits, counters, shared
        self._outbox, self._send, self.clock = outbox, send, clock
        self.store = StatementStore(limits.statements, self._holders)
        self.own: SignedStatement | None = None
        self.exchanges: dict[bytes, StatementExchange] = {}
        self._asked: dict[bytes, bytes] = {}
        self._looked = -math.inf

    # What is known

    def newest(self, author: bytes) -> Holding | None:
        """Return what is known of an author, the own peer included, as it would be offered."""
        entry = self.store.get(author)
        if isinstance(entry, Proof):
            return Holding(author, CONVICTED, bytes(STATEMENT_DIGEST_BYTES), 0)
        signed = self._signed(author)
        return None if signed is None else Holding(author, signed.number, signed.digest, signed.expires)

    def _signed(self, author: bytes) -> SignedStatement | None:
        if author == self._key_id:
            return self.own
        entry = self.store.get(author)
        return entry.signed if isinstance(entry, ReceivedStatement) else None

    def _holders(self, author: bytes) -> Iterator[bytes]:
        """Return the neighbours that have offered what is known of an author, or something newer."""
        known = self.newest(author)
        for key_id, exchange in self.exchanges.items():
            offer = exchange.offers.get(author)
            if known is not None and offer is not None and offer.number >= known.number:
                yield key_id

    def _lacks(self, offer: Holding) -> bool:
        """Return whether an offer is newer than what is known, or differs from it under the same number."""
        known = self.newest(offer.author)
        if offer.author == self._key_id and offer.number != CONVICTED:
            return False
        return known is None or (offer.number >= known.number and not _covers(known, offer))

    def publish(self, signed: SignedStatement) -> None:
        """Offer the own statement, or its renewal, to all neighbours."""
        self.own = signed
        self.changed(self._key_id)

    def changed(self, author: bytes) -> None:
        """Offer what is newly known of an author to all neighbours that may lack it."""
        if author != self._key_id and not self._limits.forward_rate:
            return
        for exchange in self.exchanges.values():
            exchange.news[author] = None

    # Neighbours

    def joined(self, link: Link, now: float) -> None:
        """Start the exchange with a new or reconnected neighbour: it is offered everything."""
        self.left(link)
        exchange = self.exchanges[link.key_id] = StatementExchange()
        if self.own is not None:
            exchange.news[self._key_id] = None
        if self._limits.forward_rate:
            exchange.news.update(dict.fromkeys(self.store.in_turn()))
        self._tell(link, exchange, now)

    def left(self, link: Link) -> None:
        """Forget what a neighbour offered, and ask others for what it was asked for."""
        exchange = self.exchanges.pop(link.key_id, None)
        for author in () if exchange is None else exchange.asked:
            self._asked.pop(author, None)

    def receive(self, link: Link, message: ExchangeMessage, now: float) -> float:
        """Process a message about statements; return its worth."""
        match message:
            case Have():
                return self._on_have(link, message, now)
            case Want():
                return self._on_want(link, message, now)
            case SignedRenewal():
                return self._on_renewal(link, message, now)
            case EquivocationProof():
                return self._on_proof(link, message, now)

    # Offering

    def _tell(self, link: Link, exchange: StatementExchange, now: float) -> None:
        """Send a neighbour a list of what it may lack, or repeat the last one if it was not acknowledged."""
        if exchange.have is not None:
            if now < exchange.repeat:
                return
            exchange.tries += 1
        else:
            offers = list(self._offers(exchange, offers_in(self._outbox.datagram(link))))
            if not offers:
                return
            exchange.order += 1
            exchange.have, exchange.tries = Have(exchange.order, tuple(offers)), 0
        wait = max(_REPEAT, link.path.timeout) * 2 ** min(exchange.tries, 8)
        exchange.repeat = now + min(_LONGEST_REPEAT, wait)
        self._send(link, encode_exchange(exchange.have))

    def _offers(self, exchange: StatementExchange, most: int) -> Iterator[Holding]:
        clock, count = self.clock(), 0
        while exchange.news and count < most:
            author, _ = exchange.news.popitem(last=False)
            offer = self.newest(author)
            if offer is None or (offer.number != CONVICTED and life_of(offer.expires, clock) is not None):
                continue
            known = (exchange.offers.get(author), exchange.told.get(author))
            if not any(each is not None and _covers(each, offer) for each in known):
                count += 1
                yield offer

    def _on_want(self, link: Link, message: Want, now: float) -> float:
        """Process an acknowledgement of an offer, and send what is asked for; return the message's worth."""
        exchange, worth = self.exchanges[link.key_id], NOTHING
        if exchange.have is not None and message.order == exchange.have.order:
            exchange.told.update({offer.author: offer for offer in exchange.have.offers})
            exchange.have, worth = None, WANTED
            self._tell(link, exchange, now)
        for author, only_renewal in message.wishes:
            worth = max(worth, self._grant(link, exchange, author, only_renewal, now))
        self.serve(link, now)
        return worth

    def _grant(self, link: Link, exchange: StatementExchange, author: bytes, only_renewal: bool, now: float) -> float:
        """Send a renewal or a proof, or queue a statement that is asked for; return the worth of the request."""
        entry, signed = self.store.get(author), self._signed(author)
        if isinstance(entry, Proof):
            if link.budget.send_statement(now):
                self._send(link, encode_exchange(EquivocationProof(entry.to_bytes())))
        elif signed is None:
            return LATE  # Dropped since it was offered.
        elif only_renewal and signed.renewal:
            if link.budget.send_statement(now):
                self._send(link, encode_exchange(SignedRenewal(signed.renewal)))
        elif author != exchange.sending and len(exchange.wanted) < MOST_ASKED:
            exchange.wanted[author] = None
        return PROMISED

    def serve(self, link: Link, now: float) -> None:
        """Start to send the next statement that a neighbour asked for, if the last transfer has ended."""
        exchange = self.exchanges.get(link.key_id)
        if exchange is None or Kind.STATEMENT in link.outgoing:
            return
        exchange.sending = None
        while exchange.wanted and link.budget.send_statement(now):
            author = next(iter(exchange.wanted))
            del exchange.wanted[author]
            signed = self._signed(author)
            if signed is not None:
                exchange.sending = author
                self._outbox.send_statement(link, signed, now)
                return

    # Asking

    def _on_have(self, link: Link, message: Have, now: float) -> float:
        """Record what a neighbour offers, and ask for what is lacking; return the message's worth."""
        if not link.budget.take_offers(now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return NOTHING
        exchange, clock, worth = self.exchanges[link.key_id], self.clock(), LATE
        for offer in message.offers:
            refusal = None if offer.number == CONVICTED else life_of(offer.expires, clock)
            if refusal is not None:
                self._counters.refuse(refusal)
            elif exchange.offers.get(offer.author) != offer:
                worth = PROMISED
                exchange.offers[offer.author] = offer
                exchange.offers.move_to_end(offer.author)
                exchange.lacking.pop(offer.author, None)
                if not self._group.admits(offer.author):
                    self._counters.refuse(Refusal.NOT_A_MEMBER)  # For now: rosters change.
                if self._lacks(offer):
                    exchange.lacking[offer.author] = None
                    if offer.author == link.key_id:
                        exchange.lacking.move_to_end(offer.author, last=False)
        while len(exchange.offers) > MOST_OFFERS:
            author, _ = exchange.offers.popitem(last=False)
            exchange.lacking.pop(author, None)
        self._send(link, encode_exchange(Want(message.order, tuple(self._wishes(link, exchange, now)))))
        return worth

    def _ask(self, link: Link, exchange: StatementExchange, now: float) -> None:
        if exchange.lacking and (wishes := tuple(self._wishes(link, exchange, now))):
            self._send(link, encode_exchange(Want(0, wishes)))

    def _wishes(self, link: Link, exchange: StatementExchange, now: float) -> Iterator[tuple[bytes, bool]]:
        """Choose what to ask a neighbour for: its earliest offers that no other neighbour is being asked for."""
        if now < exchange.not_before:
            return
        clock = self.clock()
        for author in list(islice(exchange.lacking, 2 * MOST_ASKED)):
            if len(exchange.asked) >= exchange.window:
                return
            offer = exchange.offers[author]
            known = self.newest(author)
            expired = offer.number != CONVICTED and life_of(offer.expires, clock) is not None
            if expired or not self._lacks(offer):
                del exchange.lacking[author]
                continue
            exchange.lacking.move_to_end(author)
            if author in self._asked or not self._group.admits(author):
                continue
            mine = len(exchange.asked)
            if (
                known is None
                and author != link.key_id
                and not self.store.has_room(link.key_id, coming=len(self._asked), mine=mine)
            ):
                continue
            if not link.budget.take_statement(self._shared, now):
                return
            only_renewal = known is not None and (offer.number, offer.digest) == (known.number, known.digest)
            if not exchange.asked:
                exchange.heard = now
            exchange.asked[author] = AskedStatement(offer, now, only_renewal)
            self._asked[author] = link.key_id
            yield author, only_renewal

    def settle(self, link: Link, author: bytes, now: float, *, well: bool) -> None:
        """Record that what a neighbour was asked for has arrived, or that what it sent was refused."""
        exchange = self.exchanges[link.key_id]
        asked = exchange.asked.pop(author, None)
        if asked is None:
            return
        del self._asked[author]
        if not well or exchange.offers.get(author) == asked.offer:
            exchange.lacking.pop(author, None)  # Else something newer was offered meanwhile.
        exchange.heard = now
        if well:
            exchange.succeeded()
        else:
            exchange.offers.pop(author, None)
            exchange.failed(now)
        self._ask(link, exchange, now)

    # What comes

    def is_over(self, link: Link, transfer: int) -> bool:
        """Return whether the transfer of a statement from a neighbour has ended."""
        return transfer <= self.exchanges[link.key_id].finished

    def ended(self, link: Link, transfer: int) -> None:
        """Record that the transfer of a statement from a neighbour has ended."""
        exchange = self.exchanges[link.key_id]
        exchange.finished = max(exchange.finished, transfer)

    def awaits(self, link: Link, author: bytes) -> bool:
        """Return whether a neighbour was asked for a statement and has not begun to send it; asking has paid for it."""
        asked = self.exchanges[link.key_id].asked.get(author)
        return asked is not None and not asked.begun and not asked.only_renewal

    def has(self, author: bytes, number: int, digest: bytes) -> bool:
        """Return whether exactly this statement is the newest known one of its author."""
        known = self.newest(author)
        return known is not None and (known.number, known.digest) == (number, digest)

    def refusal(self, link: Link, manifest: Manifest, expires: int) -> Refusal | None:
        """Return why a statement is refused before its signature is checked, or None."""
        known, author = self.newest(manifest.sender), manifest.sender
        if known is not None and known.number == CONVICTED:
            return Refusal.EQUIVOCATION
        if known is not None and manifest.sequence <= known.number and author != self._key_id:
            return Refusal.REPLAY if manifest.sequence < known.number else None
        if author not in self._asked:
            return Refusal.NOT_WANTED
        return life_of(expires, self.clock())

    def begun(self, link: Link, author: bytes, now: float) -> None:
        """Record that the transfer of a statement has begun."""
        exchange = self.exchanges[link.key_id]
        exchange.heard = now
        if author in exchange.asked:
            exchange.asked[author].begun = True

    def progress(self, link: Link, now: float) -> None:
        """Record that a part of a statement arrived."""
        self.exchanges[link.key_id].heard = now

    def convict(self, link: Link, manifest: bytes, now: float) -> bool:
        """Keep a proof if a signed manifest has the number of another known statement; return whether there was one."""
        author = key_id_of(manifest[_KEY_AT : _KEY_AT + KEY_BYTES])
        entry, number = self.store.get(author), int.from_bytes(manifest[_KEY_AT + KEY_BYTES :][:8], "big")
        if not isinstance(entry, ReceivedStatement) or entry.number != number:
            return False
        if digest_of(entry.signed.manifest) == digest_of(manifest):
            return False
        self._keep(link, author, Proof(entry.signed.manifest, manifest), now)
        return True

    def take(self, link: Link, received: ReceivedStatement, now: float) -> Refusal | None:
        """Keep a complete statement; return the reason to refuse it, or None."""
        known = self.newest(received.author)
        if self.convict(link, received.signed.manifest, now):
            return Refusal.EQUIVOCATION
        if known is not None and known.number >= received.number:
            self.settle(link, received.author, now, well=True)
            return None if self.has(received.author, received.number, received.signed.digest) else Refusal.REPLAY
        return self._keep(link, received.author, received, now)

    def _keep(self, link: Link, author: bytes, entry: ReceivedStatement | Proof, now: float) -> Refusal | None:
        if not self.store.put(author, entry, link.key_id):
            self.settle(link, author, now, well=True)
            self.exchanges[link.key_id].offers.pop(author, None)
            return Refusal.NO_MEMORY
        self.settle(link, author, now, well=True)
        self.changed(author)
        return None

    def _on_renewal(self, link: Link, message: SignedRenewal, now: float) -> float:
        """Extend the life of a statement; return the message's worth."""
        renewal = Renewal.from_bytes(message.data)
        if isinstance(renewal, Refusal):
            self._counters.refuse(renewal)
            return NOTHING
        author, entry = renewal.author, self.store.get(renewal.author)
        if author not in self.exchanges[link.key_id].asked:
            # Perhaps an answer that came late, after another neighbour's.
            late = isinstance(entry, ReceivedStatement) and entry.expires == renewal.expires
            self._counters.refuse(Refusal.REPLAY if late else Refusal.NOT_WANTED)
            return LATE if late else NOTHING
        if isinstance(entry, ReceivedStatement) and renewal.number > entry.number:
            self.settle(link, author, now, well=True)  # It has a newer statement by now, and will offer that.
            return LATE
        if not isinstance(entry, ReceivedStatement):
            refusal: Refusal | None = Refusal.NOT_WANTED
        elif renewal.expires < entry.expires + LEAST_RENEWAL:
            refusal = Refusal.REPLAY
        else:
            refusal = life_of(renewal.expires, self.clock()) or refusal_of_renewal(message.data, entry.signed.manifest)
        if refusal is not None or not isinstance(entry, ReceivedStatement):
            self._counters.refuse(refusal or Refusal.NOT_WANTED)
            self.settle(link, author, now, well=False)
            return NOTHING
        signed = replace(entry.signed, renewal=message.data)
        self.store.renewed(author, replace(entry, expires=renewal.expires, signed=signed))
        self._counters.renewals_in += 1
        self.settle(link, author, now, well=True)
        self.changed(author)
        return WANTED

    def _on_proof(self, link: Link, message: EquivocationProof, now: float) -> float:
        """Keep a proof of equivocation; return the message's worth."""
        proof = Proof.from_bytes(message.data)
        author = key_id_of(proof.first[_KEY_AT : _KEY_AT + KEY_BYTES])
        if author not in self.exchanges[link.key_id].asked:
            known = isinstance(self.store.get(author), Proof)
            self._counters.refuse(Refusal.REPLAY if known else Refusal.NOT_WANTED)
            return LATE if known else NOTHING
        found = verify_proof(proof, self._group)
        if isinstance(found, Refusal):
            self._counters.refuse(found)
            self.settle(link, author, now, well=False)
            return NOTHING
        refusal = self._keep(link, author, proof, now)
        if refusal is not None:
            self._counters.refuse(refusal)
        return WANTED

    # Time

    def tick(self, links: list[Link], now: float) -> None:
        """Repeat unanswered messages, ask others for what does not arrive, and forget what has expired."""
        if now - self._looked >= _EXPIRY or now < self._looked:
            self._looked = now
            self._expire()
        for link in links:
            exchange = self.exchanges[link.key_id]
            self._give_up(link, exchange, now)
        for link in sorted(links, key=lambda each: self.exchanges[each.key_id].failures):
            exchange = self.exchanges[link.key_id]
            self._tell(link, exchange, now)
            self._ask(link, exchange, now)
            self.serve(link, now)

    def _give_up(self, link: Link, exchange: StatementExchange, now: float) -> None:
        """Stop waiting for what a neighbour was asked for if nothing arrives, or if it takes too long."""
        silent = now - exchange.heard > max(_PROMPT, 3 * link.path.timeout)
        long = _TOO_LONG * self._limits.patience
        late = [author for author, asked in exchange.asked.items() if silent or now - asked.since > long]
        for author in late:
            del exchange.asked[author], self._asked[author]
        if late:
            exchange.failed(now)

    def _expire(self) -> None:
        clock = self.clock()
        self.store.expire(lambda entry: life_of(entry.expires, clock) is not None)
        for exchange in self.exchanges.values():
            for author in [author for author in exchange.told if author not in self.store and author != self._key_id]:
                del exchange.told[author]


def _covers(known: Holding, offer: Holding) -> bool:
    """Return whether `offer` adds nothing to `known`: it is older, or the same apart from a slightly later expiry."""
    if known.number != offer.number:
        return known.number > offer.number
    return known.digest == offer.digest and offer.expires < known.expires + LEAST_RENEWAL
