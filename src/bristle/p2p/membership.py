"""Membership: handshakes, sessions, keep-alive messages and passing on addresses. No sockets, no clock."""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import Callable

from bristle.p2p.contacts import Contacts, NeighbourSlots
from bristle.p2p.flood_filter import AllowedTraffic
from bristle.p2p.limits import HandshakeLimits, Limits, NeighbourBudget, TokenBucket
from bristle.p2p.meetings import LOWEST_PORT, Meetings
from bristle.p2p.members.roster import Roster
from bristle.p2p.neighbour import Counters, Guest, Link, PendingHandshake
from bristle.p2p.route import Route, Via, may_tell, next_hop, place_of
from bristle.p2p.transfer import Path
from bristle.wire import handshake
from bristle.wire.group import Group
from bristle.wire.handshake import Caller, Cookie, CookieJar, Credentials, Hello, Join, OtherVersion, Welcome
from bristle.wire.identity import Identity, key_id_of
from bristle.wire.messages import (
    MOST_PEERS,
    Address,
    Leave,
    Message,
    Peers,
    Scope,
    encode,
    is_loopback,
    scope_of,
)
from bristle.wire.refusal import Refusal
from bristle.wire.session import SESSION_ID_BYTES, Session

LOG = logging.getLogger("bristle.p2p")

ANSWER_WITHIN = 2.5
"""Timeout of a handshake in seconds."""

MOST_GUESTS = 64
MOST_HOSTS = 512
FEW_PEERS = 4
"""Addresses in each keep-alive message; the first of a session has up to MOST_PEERS."""

_AGAIN = 0.5
"""Seconds after which an unanswered message is sent again."""

_CROSSING = 0.1
"""Seconds between a hello that only opens the own router, and the one that is to arrive."""

_SETTLED = 5.0
"""Seconds for which a new direct session is not replaced by a forwarded one that was begun at the same time."""

_WARNINGS, _MOST_WARNINGS = 1 / 60, 8.0
"""Warnings about peers of other versions, per second and at once: anybody can cause them, from any address."""

_WARNED = 256
"""Addresses remembered that were warned about, each once."""


class Membership:
    """The neighbours of this peer, and how others become one.

    Parameters
    ----------
    identity, group, limits, counters
        Own identity and group, limits, and counters to update.
    send : callable
        Sends a datagram by a route.
    send_near : callable
        Sends a datagram towards an address that passes this peer's router and no other one.
    rng : Random
        For sampling and jitter; nothing secret.
    entropy : callable
        Returns n unpredictable bytes.
    seen : callable
        Returns the newest sequence number received from a key id.
    roster : Roster, optional
        Of a founded group.
    joined : callable
        Called for every new or reconnected neighbour.
    left : callable
        Called for every neighbour that is dropped.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        group: Group,
        limits: Limits,
        counters: Counters,
        send: Callable[[Route, bytes], None],
        send_near: Callable[[Address, bytes], None],
        rng: random.Random,
        entropy: Callable[[int], bytes],
        seen: Callable[[bytes], int],
        roster: Roster | None,
        joined: Callable[[Link, float], None],
        left: Callable[[Link], None],
    ) -> None:
        self.identity, self._group, self._limits, self._counters = identity, group, limits, counters
        self._send, self._send_near, self._rng, self._entropy = send, send_near, rng, entropy
        self._seen, self._joined, self._left = seen, joined, left
        self.contacts = Contacts(limits, rng)
        self.links: dict[bytes, Link] = {}
        self.slots = NeighbourSlots(limits, self.links, self.contacts, rng)
        self.meetings = Meetings(
            key_id=identity.key_id,
            limits=limits,
            counters=counters,
            links=self.links,
            slots=self.slots,
            send=self._tell,
            call=self.call,
        )
        self._roster = roster
        self._handshake_limits = HandshakeLimits(limits.handshake_rate)
        self.sessions: dict[bytes, Link | Guest] = {}
        self._guests: OrderedDict[bytes, Guest] = OrderedDict()
        self.pending: dict[bytes, PendingHandshake] = {}
        self.cookies = CookieJar(entropy(32))
        self._warnings = TokenBucket(_WARNINGS, _MOST_WARNINGS)
        self._warned: OrderedDict[tuple[Route, int], None] = OrderedDict()

    def allowed(self) -> AllowedTraffic:
        """Return what the flood filter accepts: open sessions, and handshakes of known and called hosts."""
        # What is forwarded comes in the forwarder's session.
        known = [link.address for link in self.links.values()] + [call.address for call in self.pending.values()]
        hosts = {address[0] for address in (*known, *self.contacts.named) if not isinstance(address, Via)}
        sessions = [name for name, owner in self.sessions.items() if not isinstance(owner.address, Via)]
        return AllowedTraffic(handshake.prefix_of(self._group), tuple(sessions), tuple(hosts)[:MOST_HOSTS])

    # Calls and handshakes

    def call(
        self, address: Route, now: float, *, key_id: bytes = b"", yields: bool = False, crosses: bool = False
    ) -> None:
        """Start a handshake, unless one is under way.

        Parameters
        ----------
        address, now
            Where, and when.
        key_id : bytes
            The peer expected there.
        yields : bool
            Whether to let the other one join first, since it calls at the same time.
        crosses : bool
            Whether the two calls are to cross: both routers should have seen their own side's before the other one's.
        """
        if any(call.address == address for call in self.pending.values()):
            return
        nonce = self._entropy(handshake.NONCE_BYTES)
        caller = Caller(self.identity, self._group, nonce=nonce, session_id=self._new_session_id())
        call = self.pending[nonce] = PendingHandshake(caller, address, now, key_id, yields)
        if crosses and not isinstance(address, Via):
            call.said, call.again = caller.hello(), now + _CROSSING
            self._send_near(address, call.said)
        else:
            self._say(call, caller.hello(), now)

    def _say(self, call: PendingHandshake, datagram: bytes, now: float) -> None:
        """Send a datagram that is repeated until answered."""
        call.said, call.again = datagram, now + _AGAIN
        for credentials in call.credentials:
            self._send(call.address, credentials)
        self._send(call.address, datagram)

    def receive(self, address: Route, datagram: bytes, now: float) -> None:
        """Process a handshake datagram of the group. Joins cost the most, and need a valid cookie first."""
        if handshake.is_request(datagram) and not self._handshake_limits.admit(address, now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return
        cookie = handshake.cookie_of(datagram, self._group)
        if cookie is not None and not self.cookies.accepts(cookie, place_of(address), now):
            self._counters.refuse(Refusal.STALE_COOKIE)
            return
        message = handshake.decode(datagram, self._group)
        match message:
            case Refusal():
                self._counters.refuse(message)
            case Hello():
                cookie = self.cookies.make(place_of(address), now)
                self._send(address, handshake.encode_cookie(self._group, message.nonce, cookie))
            case Cookie():
                call = self.pending.get(message.nonce)
                if call is None or call.address != address:
                    self._counters.refuse(Refusal.UNKNOWN_SESSION)
                else:
                    self._join(call, message, now)
            case Join():
                self._on_join(message, address, now)
            case Welcome():
                self._on_welcome(message, address, now)
            case Credentials():
                self._on_credentials(message, address, now)
            case OtherVersion():
                self._on_other_version(message, address, now)

    def _on_credentials(self, message: Credentials, address: Route, now: float) -> None:
        """Take the memberships that come before a join or a welcome."""
        call = self.pending.get(message.nonce) if message.called else None
        if message.called and (call is None or call.address != address):
            self._counters.refuse(Refusal.UNKNOWN_SESSION)
            return
        unknown = [record for record in message.records if self._roster is not None and not self._roster.knows(record)]
        if not unknown or self._roster is None:
            return
        if call is None and not self._handshake_limits.may_join(address, now, full=False):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return
        for record in unknown:
            answer = self._roster.add(record)
            if isinstance(answer, Refusal):
                self._counters.refuse(answer)

    def _credentials(self, nonce: bytes, cookie: bytes | None = None) -> tuple[bytes, ...]:
        """Return the own memberships as datagrams; nothing in a group without founders."""
        if self._roster is None:
            return ()
        chain = self._roster.chain(self.identity.key_id)
        return tuple(handshake.encode_credentials(self._group, nonce, chain, cookie=cookie))

    def _on_other_version(self, message: OtherVersion, address: Route, now: float) -> None:
        """Note that a peer speaks another version; if it called, answer that this one does, too."""
        if message.asks:
            self._send(address, handshake.encode_other_version(self._group, message))
        else:
            call = self.pending.get(message.nonce)
            if call is None or call.address != address:
                self._counters.refuse(Refusal.UNKNOWN_SESSION)
                return
            del self.pending[message.nonce]
        self._counters.refuse(Refusal.VERSION)
        if (address, message.version) in self._warned or not self._warnings.take(1, now):
            return
        self._warned[address, message.version] = None
        if len(self._warned) > _WARNED:
            self._warned.popitem(last=False)
        LOG.warning(
            "the peer at %s port %d speaks version %d of the wire format, this one version %d; "
            "install the same release of Bristle on both",
            *next_hop(address),
            message.version,
            handshake.VERSION,
        )

    def _join(self, call: PendingHandshake, answer: Cookie, now: float) -> None:
        """Join, at once or after the other one had its chance."""
        join = call.caller.join(answer.cookie, alone=not self.links)
        call.credentials = self._credentials(answer.nonce, answer.cookie)
        if call.yields and not call.joined:
            call.said, call.again = join, now + _AGAIN
        else:
            self._say(call, join, now)
        call.joined = now

    def _is_settled(self, key_id: bytes, address: Route, now: float) -> bool:
        """Return whether a peer has just been reached in a way that is as good as this one, or better."""
        link = self.links.get(key_id)
        return (
            link is not None
            and now - link.since < _SETTLED
            and (isinstance(address, Via) or not isinstance(link.address, Via))
        )

    def _on_join(self, join: Join, address: Route, now: float) -> None:
        full = not self.slots.room_for(key_id_of(join.key), address)
        if not self._handshake_limits.may_join(address, now, full=full):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return
        if join.key == self.identity.key:  # We called ourselves.
            self.contacts.forget(address)
            return
        if isinstance(address, Via) and key_id_of(join.key) != address.peer:
            self._counters.refuse(Refusal.FORGED_SENDER)
            return
        if self.slots.banned(key_id_of(join.key), now):
            self._counters.refuse(Refusal.BANNED)
            return
        refusal = handshake.check_join(join, self._group)
        if refusal is not None:
            self._counters.refuse(refusal)
            return
        if full and join.alone and (other := self.slots.evict_for_isolated(address, now)) is not None:
            self.send_away(other, now)
            full = False
        answer = handshake.answer_join(join, self.identity, self._group, session_id=self._new_session_id(), full=full)
        if isinstance(answer, Refusal):
            self._counters.refuse(answer)
            return
        session, welcome = answer
        self._admit(Guest(session, join.key, address, full, caller=False, began=now))
        for datagram in (*self._credentials(join.nonce), welcome):
            self._send(address, datagram)

    def _on_welcome(self, welcome: Welcome, address: Route, now: float) -> None:
        call = self.pending.get(welcome.nonce)
        if call is None or call.address != address:
            self._counters.refuse(Refusal.UNKNOWN_SESSION)
            return
        del self.pending[welcome.nonce]  # One signature is checked for each call, and no more.
        session = call.caller.finish(welcome)
        if isinstance(session, Refusal):
            self._counters.refuse(session)
        elif welcome.key == self.identity.key:
            self.contacts.forget(address)
        elif isinstance(address, Via) and key_id_of(welcome.key) != address.peer:
            self._counters.refuse(Refusal.FORGED_SENDER)
        elif self.slots.banned(key_id_of(welcome.key), now):
            self._counters.refuse(Refusal.BANNED)
        elif welcome.full or not self.slots.room_for(key_id_of(welcome.key), address):
            self.contacts.full(address, now)
            self._admit(Guest(session, welcome.key, address, True, caller=True, began=now))
            self._send(address, session.seal(encode(self._word(key_id_of(welcome.key), address, MOST_PEERS))))
        elif not (isinstance(address, Via) and self._is_settled(address.peer, address, now)):
            self._establish(session, welcome.key, address, now, now - call.joined)

    def _admit(self, guest: Guest) -> None:
        self._guests[guest.session.local] = guest
        self.sessions[guest.session.local] = guest
        if len(self._guests) > MOST_GUESTS:
            self._dismiss(next(iter(self._guests.values())))

    def _dismiss(self, guest: Guest) -> None:
        self._guests.pop(guest.session.local, None)
        if self.sessions.get(guest.session.local) is guest:
            del self.sessions[guest.session.local]

    def _new_session_id(self) -> bytes:
        while (session_id := self._entropy(SESSION_ID_BYTES)) in self.sessions:
            pass
        return session_id

    # Neighbours

    def confirm(self, guest: Guest, message: object, now: float) -> Link | None:
        """Make a guest that has proved to hold the session's keys a neighbour, if there is a slot."""
        self._dismiss(guest)
        key_id = key_id_of(guest.key)
        if isinstance(guest.address, Via) and self._is_settled(key_id, guest.address, now):
            return None
        room = not guest.full and self.slots.room_for(key_id, guest.address)
        if room and (key_id in self.links or self.slots.admits(guest.address, now)):
            return self._establish(guest.session, guest.key, guest.address, now, now - guest.began)
        if isinstance(message, Peers):
            self.learn(message, key_id, guest.address, now)
        if not guest.caller:
            self._counters.refuse(Refusal.FULL)
            word = self._word(key_id, guest.address, MOST_PEERS)
            self._send(guest.address, guest.session.seal(encode(word)))
        return None

    def _establish(self, session: Session, key: bytes, address: Route, now: float, delay: float) -> Link:
        key_id = key_id_of(key)
        link = self.links.get(key_id)
        if link is None:
            if self.slots.full and (other := self.slots.evict_for(address)) is not None:
                self.send_away(other, now)
            link = self.links[key_id] = Link(
                key, key_id, address, session, NeighbourBudget(self._limits), now, now, path=Path(delay)
            )
        else:
            # The last session stays open for what is still under way in it.
            if link.previous is not None:
                self.sessions.pop(link.previous.local, None)
            link.previous, link.previous_address, link.session = link.session, link.address, session
            if link.address != address:
                self.contacts.lost(link.address, now)
        link.address, link.last_heard, link.next_word, link.since = address, now, now + _AGAIN, now
        self.sessions[session.local] = link
        if not isinstance(address, Via):
            self.contacts.connected(address, key_id, now)
        self._send(address, session.seal(encode(self._word(key_id, address, MOST_PEERS))))
        self._joined(link, now)
        return link

    def send_away(self, link: Link, now: float) -> None:
        """Drop a neighbour after sending it a leave message."""
        self._send(link.address, link.session.seal(encode(Leave())))
        self.drop(link, now)

    def ban(self, link: Link, now: float) -> None:
        """Drop and ban a neighbour that sent too many useless messages."""
        self._counters.refuse(Refusal.USELESS)
        self.slots.ban(link.key_id, now)
        self.send_away(link, now)
        if not self.contacts.is_named(link.address):
            self.contacts.forget(link.address)

    def drop(self, link: Link, now: float) -> None:
        """Drop a neighbour, and those that it forwarded; they are called again later."""
        if self.links.pop(link.key_id, None) is None:
            return
        for session in (link.session, link.previous):
            if session is not None:
                self.sessions.pop(session.local, None)
        self.contacts.lost(link.address, now)
        self._left(link)
        for other in self.meetings.left(link):
            self.drop(other, now)
        if isinstance(link.address, Via):
            self.meetings.ask(link.key_id, now)  # Somebody else may forward.

    def close(self, link: Link, circuit: bytes, now: float) -> None:
        """Drop the peers that a neighbour has ceased to forward to."""
        via = self.meetings.closed(link, circuit)
        if via is None:
            return
        self.pending = {nonce: call for nonce, call in self.pending.items() if call.address != via}
        other = self.links.get(via.peer)
        if other is not None and other.address == via:
            self.drop(other, now)

    def _tell(self, link: Link, message: Message) -> None:
        """Seal a message and send it to a neighbour."""
        self._send(link.address, link.session.seal(encode(message)))

    def drop_strangers(self, now: float) -> None:
        """Drop guests and neighbours that are not in the roster any more."""
        for guest in list(self._guests.values()):
            if not self._group.admits(key_id_of(guest.key)):
                self._dismiss(guest)
        for link in list(self.links.values()):
            if not self._group.admits(link.key_id):
                self._counters.refuse(Refusal.NOT_A_MEMBER)
                self.send_away(link, now)

    # Keep-alive messages

    def _word(self, key_id: bytes, address: Route, most: int) -> Peers:
        others = [
            (other.key_id, other.address)
            for other in self.links.values()
            if other.key_id != key_id and not isinstance(other.address, Via) and may_tell(other.address, address)
        ]
        chosen = tuple(self._rng.sample(others, min(most, len(others))))
        on_one_machine = not isinstance(address, Via) and is_loopback(address)
        return Peers(self._seen(key_id), chosen, () if on_one_machine else self.meetings.local)

    def learn(self, peers: Peers, source: bytes, where: Route, now: float) -> None:
        """Add the addresses that a member reached by `where` passed on, and its own behind its router."""
        link = self.links.get(source)
        if link is not None and peers.local:
            link.local = tuple(one for one in peers.local if scope_of(one) is Scope.SITE and one[1] >= LOWEST_PORT)
        for key_id, address in peers.others:
            if key_id == self.identity.key_id:
                continue
            self.meetings.knows(key_id, source)
            if key_id in self.links:
                continue
            if not may_tell(address, where):
                self._counters.refuse(Refusal.BAD_ADDRESS)
            elif not self.contacts.hand_on(address, source, now, key_id=key_id):
                self._counters.refuse(Refusal.OVER_BUDGET)

    def tick(self, now: float) -> None:
        """Call contacts that are due, send keep-alive messages, and drop silent neighbours."""
        for link in list(self.links.values()):
            if now - link.last_heard > self._limits.silence:
                self.drop(link, now)
        for link in self.links.values():
            if now >= link.next_word:
                wait = self._limits.keepalive * self._rng.uniform(0.75, 1.0) if link.session.heard else _AGAIN
                link.next_word = now + wait
                self._send(link.address, link.session.seal(encode(self._word(link.key_id, link.address, FEW_PEERS))))
        self.pending = {nonce: call for nonce, call in self.pending.items() if now <= call.began + ANSWER_WITHIN}
        self.pending = {
            nonce: call
            for nonce, call in self.pending.items()
            if not (call.key_id and self._is_settled(call.key_id, call.address, now))
        }
        for call in self.pending.values():
            if now >= call.again:
                call.joined = now if call.yields and call.joined else call.joined
                self._say(call, call.said, now)
        for guest in list(self._guests.values()):
            if now > guest.began + ANSWER_WITHIN:
                self._dismiss(guest)
        self.meetings.tick(now)
        for address in self.contacts.due(now, taken=len(self.links), linked=self.links):
            contact = self.contacts.get(address)
            # A router that sees a stranger's call before its own side's may take that amiss: call at the same time.
            if not (contact.key_id and self.meetings.ask(contact.key_id, now)) or contact.named or contact.tries > 1:
                self.call(address, now)
