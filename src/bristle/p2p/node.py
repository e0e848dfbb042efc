"""The whole protocol of a peer without sockets and clock: datagrams and times go in, datagrams and heads come out."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.gossip import StatementGossip
from bristle.p2p.inbox import BodyInbox, ReceivedHead
from bristle.p2p.introducer import Introducer
from bristle.p2p.limits import CHEAPEST, LATE, NOTHING, PROMISED, Limits, SharedBudget
from bristle.p2p.members.feature_check import FeatureCheck
from bristle.p2p.members.roster import Roster
from bristle.p2p.members.roster_exchange import RosterExchange
from bristle.p2p.membership import Membership
from bristle.p2p.neighbour import Counters, Guest, Link, Neighbour
from bristle.p2p.outbox import BodyOutbox
from bristle.p2p.route import Route, Via
from bristle.p2p.statements import GONE, ReceivedStatement, StatementStore
from bristle.rules.evidence.statement import Statement
from bristle.wire import messages
from bristle.wire.group import Group
from bristle.wire.handshake import PREFIX_BYTES, is_handshake, prefix_1_of, prefix_of
from bristle.wire.identity import Identity
from bristle.wire.kinds import Kind
from bristle.wire.messages import (
    Acknowledgement,
    Address,
    CallRequest,
    Forward,
    Forwarded,
    Leave,
    Meet,
    Message,
    Peers,
    Piece,
    Probe,
    Records,
    RosterIds,
    SignedManifest,
)
from bristle.wire.offers import EquivocationProof, Have, SignedRenewal, Want
from bristle.wire.refusal import Refusal
from bristle.wire.session import SEALED, session_id_of
from bristle.wire.sizes import LARGEST_DATAGRAM, Encoding
from bristle.wire.statements import SignedStatement, life_of, sign_statement, verify_statement

_SEALED = bytes([SEALED])
_PEERS = bytes([messages.PEERS])
_KEEPALIVE_HEADER = 9
"""Bytes of a keep-alive message before its addresses; those are costly to read, and ignored if too frequent."""

_NO_ADDRESSES = bytes(2)

HOUSEKEEPING = 0.1
"""Seconds between checks of handshakes, keep-alives and silent neighbours."""

SHORTEST_WAIT = 0.01
"""Seconds between checks of transfers."""


class Node:
    """The protocol state of one peer of one group.

    Parameters
    ----------
    identity, group, limits
        Its identity, group and limits.
    send : callable
        Sends a datagram to an address.
    send_near : callable
        Sends a datagram with a hop limit that takes it past this peer's router and no further.
    sequence : int
        Sequence number of the first shared body.
    rng : Random, optional
        For sampling and jitter; nothing secret.
    entropy : callable, optional
        Returns n unpredictable bytes.
    roster : Roster, optional
        Who is a member, in a group with founders.
    probe : array, optional
        The own backbone's output for the group's test sample, to be compared with the neighbours'.
    clock : callable, optional
        Returns the seconds since 1970, by which statements expire; everything else uses the times passed in.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        group: Group,
        limits: Limits,
        send: Callable[[Address, bytes], None],
        send_near: Callable[[Address, bytes], None],
        sequence: int,
        roster: Roster | None = None,
        probe: NDArray[np.float32] | None = None,
        rng: random.Random | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if roster is not None:
            group = replace(group, roster=roster.admits)
        if not group.admits(identity.key_id):
            where = "the group's list of members" if group.founders is None else "the group's roster: get an invitation"
            raise ValueError(f"this peer's own key id, {identity.key_id.hex()}, is not in {where}")
        self.counters = Counters()
        self.transmit, self._transmit_near = send, send_near
        self._group = group
        self._limits = limits
        self._shared = SharedBudget(limits)
        self._prefixes = prefix_of(group), prefix_1_of(group)
        self._housekept = -math.inf
        self.outbox = BodyOutbox(
            identity=identity,
            group=group,
            limits=limits,
            counters=self.counters,
            send=self.send_message,
            sequence=sequence,
        )
        self.gossip = StatementGossip(
            key_id=identity.key_id,
            group=group,
            limits=limits,
            counters=self.counters,
            shared=self._shared,
            outbox=self.outbox,
            send=self.send_message,
            clock=clock,
        )
        self.inbox = BodyInbox(
            group=group,
            limits=limits,
            counters=self.counters,
            shared=self._shared,
            send=self.send_message,
            gossip=self.gossip,
        )
        self.membership = Membership(
            identity=identity,
            group=group,
            limits=limits,
            counters=self.counters,
            send=self._count_and_send,
            send_near=self._count_and_send_near,
            rng=rng or random.Random(int.from_bytes(entropy(8), "big")),
            entropy=entropy,
            seen=self._seen,
            roster=roster,
            joined=self._joined,
            left=self._left,
        )
        self.features = FeatureCheck(probe, links=self.membership.links, counters=self.counters, send=self.send_message)
        self.roster: RosterExchange | None = None
        if roster is not None:
            self.roster = RosterExchange(
                roster=roster,
                key_id=identity.key_id,
                links=self.membership.links,
                counters=self.counters,
                send=self.send_message,
                changed=self._members_changed,
            )
        self.introducer = Introducer(
            limits=limits,
            counters=self.counters,
            shared=self._shared,
            links=self.membership.links,
            send=self.send_message,
            entropy=entropy,
        )

    def _count_and_send(self, route: Route, datagram: bytes) -> None:
        if isinstance(route, Via):
            forwarder = self.membership.links.get(route.forwarder)
            if forwarder is None or isinstance(forwarder.address, Via):
                return
            address = forwarder.address
            datagram = forwarder.session.seal(messages.encode(Forward(route.circuit, datagram)))
        else:
            address = route
        self._count(datagram)
        self.transmit(address, datagram)

    def _count_and_send_near(self, address: Address, datagram: bytes) -> None:
        self._count(datagram)
        self._transmit_near(address, datagram)

    def _count(self, datagram: bytes) -> None:
        self.counters.datagrams_out += 1
        self.counters.bytes_out += len(datagram)

    def send_message(self, link: Link, message: bytes) -> None:
        """Seal a message and send it to a neighbour."""
        self._count_and_send(link.address, link.session.seal(message))

    def _seen(self, key_id: bytes) -> int:
        """Return the newest number received of a peer, of a head or a statement, or 0."""
        entry = self.gossip.store.get(key_id)
        return max(self.inbox.seen(key_id), entry.number if isinstance(entry, ReceivedStatement) else 0)

    def _joined(self, link: Link, now: float) -> None:
        self.inbox.forget(link)
        self.outbox.joined(link, now)
        self.features.joined(link, now)
        if self.roster is not None:
            self.roster.joined(link, now)
        self.gossip.joined(link, now)

    def _left(self, link: Link) -> None:
        self.inbox.forget(link)
        self.outbox.left(link)
        self.gossip.left(link)
        self.introducer.left(link)
        self.features.left(link)
        if self.roster is not None:
            self.roster.left(link)

    def _members_changed(self, now: float) -> None:
        """Disconnect peers that are no longer members, and forget their statements."""
        assert self.roster is not None
        for link in self.membership.links.values():
            if not self._group.admits(link.key_id):
                self.roster.put_out(link)
        self.membership.drop_strangers(now)
        for author in [author for author in self.statement_store if not self._group.admits(author)]:
            self.statement_store.drop(author)
        self.statement_store.changed = True  # Who counts as one voice may have changed as well.

    def name(self, address: Address, now: float) -> None:
        """Add an address that the user named."""
        self.membership.contacts.name(address, now)

    def share(
        self,
        head: NDArray[np.floating],
        *,
        iteration: int,
        claims: NDArray[np.bool_] | None = None,
        now: float,
    ) -> None:
        """Share a head with all neighbours, and with those that join before the next one."""
        self.outbox.share(
            head,
            self.membership.links.values(),
            iteration=iteration,
            claims=claims,
            now=now,
        )

    def sign_statement(
        self,
        statement: Statement,
        *,
        number: int,
        expires: int,
        encoding: Encoding = "float16",
        compress: bool = True,
    ) -> SignedStatement:
        """Sign a statement; nothing is sent."""
        return sign_statement(
            statement,
            number=number,
            expires=expires,
            identity=self.membership.identity,
            group=self._group,
            encoding=encoding,
            compress=compress,
        )

    def publish(self, signed: SignedStatement, now: float) -> None:
        """Publish the own statement in place of an older one."""
        if signed.author != self.membership.identity.key_id:
            raise ValueError("only an own statement is published; those of others are restored")
        found = verify_statement(signed, self._group)
        refusal = found if isinstance(found, Refusal) else life_of(signed.expires, self.gossip.clock())
        if refusal is not None:
            raise ValueError(f"all peers would refuse this statement: {refusal}")
        own = self.gossip.own
        if own is not None and signed.number <= own.number and signed.digest != own.digest:
            raise ValueError(
                f"statement {signed.number} cannot replace statement {own.number}: sign it with a larger number"
            )
        self.outbox.check_fits(Kind.STATEMENT, len(signed.body))
        self.gossip.publish(signed)
        self.gossip.tick(list(self.membership.links.values()), now)

    def renew(self, expires: int, now: float) -> SignedStatement:
        """Extend the own statement until `expires`; return it with its renewal."""
        if self.gossip.own is None:
            raise ValueError("there is no statement to renew; publish one first")
        renewed = self.gossip.own.renew(self.membership.identity, expires)
        self.publish(renewed, now)
        return renewed

    def restore(self, signed: SignedStatement, now: float) -> bool:
        """Take back a statement that was kept on disk; return False if it no longer counts."""
        if signed.author == self.membership.identity.key_id:
            if life_of(signed.expires, self.gossip.clock()) is not None:
                return False
            self.publish(signed, now)
            return True
        if not self._group.admits(signed.author):
            return False
        statement = verify_statement(signed, self._group)
        if isinstance(statement, Refusal):
            raise ValueError(f"the stored statement is refused: {statement}")
        if life_of(signed.expires, self.gossip.clock()) is not None:
            return False
        received = ReceivedStatement(
            author=signed.author,
            statement=statement,
            number=signed.number,
            expires=signed.expires,
            signed=signed,
            source=self.membership.identity.key_id,
        )
        kept = self.statement_store.put(signed.author, received, GONE, news=False)
        if kept:
            self.gossip.changed(signed.author)
        return kept

    @property
    def statement_store(self) -> StatementStore:
        """What is known of the statements of others."""
        return self.gossip.store

    def statements(self) -> list[ReceivedStatement]:
        """Return the newest valid statement of every other author that is known now."""
        clock = self.gossip.clock()
        self.statement_store.expire(lambda entry: life_of(entry.expires, clock) is not None)
        return self.statement_store.statements()

    def equivocators(self) -> frozenset[bytes]:
        """Return the key ids of authors that signed two statements of one number."""
        return frozenset(self.statement_store.proofs())

    def take(self) -> list[ReceivedHead]:
        """Return the newest head of every sender since the last call."""
        return self.inbox.take()

    def take_statements(self) -> list[ReceivedStatement]:
        """Return the statements that are new since the last call."""
        return self.statement_store.take()

    def neighbours(self, now: float) -> list[Neighbour]:
        """Return the current neighbours."""
        return [link.public(now) for link in self.membership.links.values()]

    def leave(self) -> None:
        """Send all neighbours a leave message."""
        for link in self.membership.links.values():
            self.send_message(link, messages.encode(Leave()))

    def receive(self, address: Address, datagram: bytes, now: float) -> None:
        """Process any datagram from any address. Nothing in it can raise."""
        self.counters.datagrams_in += 1
        self.counters.bytes_in += len(datagram)
        if len(datagram) > LARGEST_DATAGRAM:
            self.counters.refuse(Refusal.OVERSIZE)
        else:
            self._receive_by(address, datagram, now)

    def _receive_by(self, route: Route, datagram: bytes, now: float) -> None:
        """Process a datagram that arrived by a route."""
        if datagram[:1] == _SEALED:
            self._receive_sealed(route, datagram, now)
        elif datagram.startswith(self._prefixes) and len(datagram) > PREFIX_BYTES:
            self.membership.receive(route, datagram, now)
        else:
            self.counters.refuse(Refusal.WRONG_GROUP if is_handshake(datagram) else Refusal.MALFORMED)

    def _receive_sealed(self, route: Route, datagram: bytes, now: float) -> None:
        session_id = session_id_of(datagram)
        owner = self.membership.sessions.get(session_id)
        session = owner.session_from(route, session_id) if owner is not None else None
        if owner is None or session is None:
            self.counters.refuse(Refusal.UNKNOWN_SESSION)
            return
        cost = max(len(datagram), CHEAPEST)
        if isinstance(owner, Link) and not owner.budget.take_bytes(cost, self._shared, now):
            self.counters.refuse(Refusal.OVER_BUDGET)
            return
        opened = session.open(datagram)
        if isinstance(owner, Link) and isinstance(opened, bytes) and opened[:1] == _PEERS:
            opened = opened if owner.budget.take_gossip(now) else opened[:_KEEPALIVE_HEADER] + _NO_ADDRESSES
        message = opened if isinstance(opened, Refusal) else messages.decode(opened)
        if isinstance(message, Refusal):
            self.counters.refuse(message)
            return
        link = self.membership.confirm(owner, message, now) if isinstance(owner, Guest) else owner
        if link is not None:
            link.last_heard = now
            self._act(link, message, len(datagram), now)

    def _act(self, link: Link, message: Message, size: int, now: float) -> None:
        worth = NOTHING
        match message:
            case Piece():
                worth = self.inbox.on_piece(link, message, size, now)
            case Acknowledgement():
                worth = self.outbox.acknowledged(link, message, now)
                self.gossip.serve(link, now)
            case SignedManifest():
                worth = self.inbox.on_manifest(link, message, size, now)
            case Have() | Want() | SignedRenewal() | EquivocationProof():
                worth = self.gossip.receive(link, message, now)
            case Peers():
                self.outbox.advance(message.seen)
                self.membership.learn(message, link.key_id, link.address, now)
            case Leave():
                self.membership.drop(link, now)
                return
            case Meet() | Forward():
                worth = self.introducer.receive(link, message, now)
            case CallRequest():
                worth = self.membership.meetings.on_call(link, message, now)
            case Probe() | RosterIds() | Records():
                worth = self._on_group(link, message, now)
            case Forwarded():
                worth = self._on_forwarded(link, message, now)
        if worth > 0:
            link.budget.useful_message(worth)
        elif link.budget.useless_message(-worth, self._shared, now):
            self.membership.ban(link, now)

    def _on_group(self, link: Link, message: Probe | RosterIds | Records, now: float) -> float:
        """Process a message about features or membership of a group; return its worth."""
        if isinstance(message, Probe):
            return self.features.on_probe(link, message, now)
        return NOTHING if self.roster is None else self.roster.receive(link, message, now)

    def _on_forwarded(self, link: Link, message: Forwarded, now: float) -> float:
        """Process a forwarded datagram; return its worth, whatever is in it: its sender answers for that."""
        if not message.datagram:
            self.membership.close(link, message.circuit, now)
            return LATE
        via = self.membership.meetings.via(link, message.circuit)
        if via is None:
            return LATE  # On its way when the circuit was closed.
        self._receive_by(via, message.datagram, now)
        return PROMISED

    def tick(self, now: float) -> float:
        """Handle timeouts; return when to call again."""
        if now - self._housekept >= HOUSEKEEPING or now < self._housekept:
            self._housekept = now
            self.introducer.tick(now)
            self.membership.tick(now)
            self.features.tick(now)
            if self.roster is not None:
                self.roster.tick(now)
        links = list(self.membership.links.values())
        self.gossip.tick(links, now)
        due = self.inbox.tick(links, now)
        if self.outbox.tick(links, now):
            due = now
        return max(now + SHORTEST_WAIT, min(due, self._housekept + HOUSEKEEPING))
