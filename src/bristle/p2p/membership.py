"""Membership: handshakes, sessions, keep-alive messages and passing on addresses. No sockets, no clock."""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import Callable

from bristle.p2p.contacts import Contacts, NeighbourSlots
from bristle.p2p.flood_filter import AllowedTraffic
from bristle.p2p.limits import HandshakeLimits, Limits, NeighbourBudget, TokenBucket
from bristle.p2p.neighbour import Counters, Guest, Link, PendingHandshake
from bristle.p2p.transfer import Path
from bristle.wire import handshake
from bristle.wire.group import Group
from bristle.wire.handshake import Caller, Cookie, CookieJar, Hello, Join, OtherVersion, Welcome
from bristle.wire.identity import Identity, key_id_of
from bristle.wire.messages import MOST_PEERS, Address, Leave, Peers, encode, may_hand_on
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
        Sends a datagram to an address.
    rng : Random
        For sampling and jitter; nothing secret.
    entropy : callable
        Returns n unpredictable bytes.
    seen : callable
        Returns the newest sequence number received from a key id.
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
        send: Callable[[Address, bytes], None],
        rng: random.Random,
        entropy: Callable[[int], bytes],
        seen: Callable[[bytes], int],
        joined: Callable[[Link, float], None],
        left: Callable[[Link], None],
    ) -> None:
        self.identity, self._group, self._limits, self._counters = identity, group, limits, counters
        self._send, self._rng, self._entropy = send, rng, entropy
        self._seen, self._joined, self._left = seen, joined, left
        self.contacts = Contacts(limits, rng)
        self.links: dict[bytes, Link] = {}
        self.slots = NeighbourSlots(limits, self.links, self.contacts, rng)
        self._handshake_limits = HandshakeLimits(limits.handshake_rate)
        self.sessions: dict[bytes, Link | Guest] = {}
        self._guests: OrderedDict[bytes, Guest] = OrderedDict()
        self.pending: dict[bytes, PendingHandshake] = {}
        self._cookies = CookieJar(entropy(32))
        self._warnings = TokenBucket(_WARNINGS, _MOST_WARNINGS)
        self._warned: OrderedDict[tuple[Address, int], None] = OrderedDict()

    def allowed(self) -> AllowedTraffic:
        """Return what the flood filter accepts: open sessions, and handshakes of known and called hosts."""
        known = [link.address for link in self.links.values()] + [call.address for call in self.pending.values()]
        hosts = {address[0] for address in (*known, *self.contacts.named)}
        return AllowedTraffic(handshake.prefix_of(self._group), tuple(self.sessions), tuple(hosts)[:MOST_HOSTS])

    # Calls and handshakes

    def call(self, address: Address, now: float) -> None:
        """Start a handshake, unless one is under way."""
        if any(call.address == address for call in self.pending.values()):
            return
        nonce = self._entropy(handshake.NONCE_BYTES)
        caller = Caller(self.identity, self._group, nonce=nonce, session_id=self._new_session_id())
        call = self.pending[nonce] = PendingHandshake(caller, address, now)
        self._say(call, caller.hello(), now)

    def _say(self, call: PendingHandshake, datagram: bytes, now: float) -> None:
        """Send a datagram that is repeated until answered."""
        call.said, call.again = datagram, now + _AGAIN
        self._send(call.address, datagram)

    def receive(self, address: Address, datagram: bytes, now: float) -> None:
        """Process a handshake datagram of the group. Joins cost the most, and need a valid cookie first."""
        if handshake.is_request(datagram) and not self._handshake_limits.admit(address, now):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return
        cookie = handshake.cookie_of(datagram, self._group)
        if cookie is not None and not self._cookies.accepts(cookie, address, now):
            self._counters.refuse(Refusal.STALE_COOKIE)
            return
        message = handshake.decode(datagram, self._group)
        match message:
            case Refusal():
                self._counters.refuse(message)
            case Hello():
                cookie = self._cookies.make(address, now)
                self._send(address, handshake.encode_cookie(self._group, message.nonce, cookie))
            case Cookie():
                call = self.pending.get(message.nonce)
                if call is None or call.address != address:
                    self._counters.refuse(Refusal.UNKNOWN_SESSION)
                else:
                    call.joined = now
                    self._say(call, call.caller.join(message.cookie, alone=not self.links), now)
            case Join():
                self._on_join(message, address, now)
            case Welcome():
                self._on_welcome(message, address, now)
            case OtherVersion():
                self._on_other_version(message, address, now)

    def _on_other_version(self, message: OtherVersion, address: Address, now: float) -> None:
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
            *address,
            message.version,
            handshake.VERSION,
        )

    def _on_join(self, join: Join, address: Address, now: float) -> None:
        full = not self.slots.room_for(key_id_of(join.key), address)
        if not self._handshake_limits.may_join(address, now, full=full):
            self._counters.refuse(Refusal.OVER_BUDGET)
            return
        if join.key == self.identity.key:  # We called ourselves.
            self.contacts.forget(address)
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
        self._send(address, welcome)

    def _on_welcome(self, welcome: Welcome, address: Address, now: float) -> None:
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
        elif self.slots.banned(key_id_of(welcome.key), now):
            self._counters.refuse(Refusal.BANNED)
        elif welcome.full or not self.slots.room_for(key_id_of(welcome.key), address):
            self.contacts.full(address, now)
            self._admit(Guest(session, welcome.key, address, True, caller=True, began=now))
            self._send(address, session.seal(encode(self._word(key_id_of(welcome.key), address, MOST_PEERS))))
        else:
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

    def _establish(self, session: Session, key: bytes, address: Address, now: float, delay: float) -> Link:
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
            link.previous, link.session = link.session, session
            if link.address != address:
                self.contacts.lost(link.address, now)
        link.address, link.last_heard, link.next_word = address, now, now + _AGAIN
        self.sessions[session.local] = link
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
        """Drop a neighbour; its address is called again later."""
        del self.links[link.key_id]
        for session in (link.session, link.previous):
            if session is not None:
                self.sessions.pop(session.local, None)
        self.contacts.lost(link.address, now)
        self._left(link)

    # Keep-alive messages

    def _word(self, key_id: bytes, address: Address, most: int) -> Peers:
        others = [
            (other.key_id, other.address)
            for other in self.links.values()
            if other.key_id != key_id and may_hand_on(other.address, address)
        ]
        return Peers(self._seen(key_id), tuple(self._rng.sample(others, min(most, len(others)))))

    def learn(self, peers: Peers, source: bytes, where: Address, now: float) -> None:
        """Add the addresses that a member at `where` passed on."""
        for key_id, address in peers.others:
            if key_id == self.identity.key_id or key_id in self.links:
                continue
            if not may_hand_on(address, where):
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
        for call in self.pending.values():
            if now >= call.again:
                self._say(call, call.said, now)
        for guest in list(self._guests.values()):
            if now > guest.began + ANSWER_WITHIN:
                self._dismiss(guest)
        for address in self.contacts.due(now, named_only=self.slots.full, linked=self.links):
            self.call(address, now)
