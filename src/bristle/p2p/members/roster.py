"""The roster of a founded group: who is a member, and by whose invitation. No sockets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bristle.wire.admission import (
    MOST_GENERATIONS,
    MOST_SEATS,
    Admission,
    Invitation,
    Offer,
    Record,
    Revocation,
    decode_record,
    record_id,
)
from bristle.wire.group import Group
from bristle.wire.identity import Identity
from bristle.wire.refusal import Refusal

GRACE = 30 * 86_400.0
"""Seconds for which records are kept after they expired: what hangs on them comes back when they are renewed."""


_SLOTS_A_RECORD = 50
"""To replace a record takes looking at all slots of its inviter: as long as for a new record, for so many of them."""


@dataclass(frozen=True)
class FoundedGroup:
    """What a roster needs of a group: its id, and the key ids of its founders."""

    id: bytes
    founders: frozenset[bytes]


@dataclass(frozen=True)
class RosterEntry:
    """A member of a founded group.

    Parameters
    ----------
    key_id : bytes
        Who.
    inviter : bytes, optional
        Key id of the member who invited it; None for a founder.
    generation : int
        Number of invitations between a founder and this member; 0 for a founder.
    seats : int
        How many others may be invited through it.
    expires : int
        When the membership ends, in seconds since 1970; 0: never.
    slot : int
        The inviter's slot that it takes.
    """

    key_id: bytes
    inviter: bytes | None
    generation: int
    seats: int
    expires: int
    slot: int


@dataclass
class _Slot:
    """The records of a slot: memberships by the newest offer, more than one only if a code was used twice."""

    memberships: list[Admission] = field(default_factory=list)
    revocation: Revocation | None = None

    def entries(self) -> Iterator[tuple[bytes, tuple[bytes, ...]]]:
        """Yield id and records of what it holds."""
        if self.revocation is not None:
            yield self.revocation.id, (self.revocation.data,)
        if self.memberships:
            used = len(self.memberships) > 1
            identifier = record_id(self.memberships[0].offer.data) if used else self.memberships[0].id
            yield identifier, tuple(one.data for one in self.memberships)


@dataclass
class _View:
    """What a set of records says at a time."""

    members: dict[bytes, RosterEntry]
    proofs: dict[bytes, Admission]
    counted: set[tuple[bytes, int]]
    changes: float
    """When something expires next."""

    def admit(self, proof: Admission, host: RosterEntry) -> RosterEntry:
        """Add a member by its membership, and return it."""
        offer = proof.offer
        ends = [end for end in (host.expires, offer.expires) if end]
        member = RosterEntry(
            proof.key_id, host.key_id, host.generation + 1, offer.seats, min(ends, default=0), offer.slot
        )
        self.members[member.key_id], self.proofs[member.key_id] = member, proof
        self.counted.add((host.key_id, offer.slot))
        self.changes = min(self.changes, offer.expires or math.inf)
        return member


class Roster:
    """The set of records that make the members of a founded group.

    What it says depends on the records alone, not on the order in which they came: peers with the same records have
    the same members. Members are found from the founders on, generation by generation. The slots of a member count in
    their order where they fit its seats, each for one and for the seats that it gives; what does not fit does not
    count. So at most `MOST_SEATS` members are below all founders, whatever members sign.

    Parameters
    ----------
    group : Group or FoundedGroup
        The group; with founders.
    clock : callable
        Returns the seconds since 1970.
    """

    def __init__(self, group: Group | FoundedGroup, *, clock: Callable[[], float] = time.time) -> None:
        if group.founders is None:
            raise ValueError("only a group with founders has a roster")
        self.group = group
        self.revision = 0
        self.held = False
        """Whether only `refresh` recomputes who is a member, which takes time for thousands of members."""

        self._founders = group.founders
        self._clock = clock
        self._slots: dict[bytes, dict[int, _Slot]] = {}
        self._ids: set[bytes] = set()
        self._taken: dict[bytes, int] = {}
        self._stale = False
        self._view, self._kept = self._walk(clock()), self._walk(clock() - GRACE)

    # What it says

    def refresh(self) -> int:
        """Take note of what has expired, or was revoked or renewed; return the revision: it grows with every change."""
        held, self.held = self.held, False
        self._current()
        self.held = held
        return self.revision

    def price(self, record: Record) -> float:
        """Return what it costs to add a record, as a multiple of one for a free slot."""
        inviter, number = _place_of(record)
        slots = self._slots.get(inviter, {})
        return 1 + len(slots) / _SLOTS_A_RECORD if number in slots else 1.0

    def knows(self, record: Record) -> bool:
        """Return whether a record is there."""
        return record.id in self._ids

    def admits(self, key_id: bytes) -> bool:
        """Return whether a key id is a member's now."""
        return key_id in self._current().members

    def members(self) -> dict[bytes, RosterEntry]:
        """Return the members by key id, inviters before those whom they invited."""
        return dict(self._current().members)

    def chain(self, key_id: bytes) -> tuple[bytes, ...]:
        """Return the memberships that lead from a founder to a member, the founder's invitation first."""
        view, chain = self._current(), list[bytes]()
        while (proof := view.proofs.get(key_id)) is not None:
            chain.append(proof.data)
            key_id = proof.offer.inviter_id
        return tuple(reversed(chain))

    def voices(self, *, generation: int = 1) -> dict[bytes, bytes]:
        """Return the voice of every member: the key id of its ancestor in a generation, or its own before that.

        Generation 0 counts all that came in by one founder as one voice, generation 1 all that came in by one member
        whom a founder invited.
        """
        members, voices = self._current().members, dict[bytes, bytes]()
        for key_id, member in members.items():  # Inviters come first.
            above = member.inviter if member.generation > generation else None
            voices[key_id] = key_id if above is None else voices[above]
        return voices

    def entries(self) -> list[tuple[bytes, tuple[bytes, ...]]]:
        """Return an id and the records of every entry, inviters before those whom they invited.

        An entry is a record, or all memberships by one code: peers may know different ones, but all know enough.
        """
        self._current()
        order = [*self._kept.members, *(name for name in self._slots if name not in self._kept.members)]
        slots = [slot for name in order for _, slot in sorted(self._slots.get(name, {}).items())]
        return [entry for slot in slots for entry in slot.entries()]

    def records(self) -> list[bytes]:
        """Return all records that count or may count again, inviters before those whom they invited."""
        return [record for _, records in self.entries() for record in records]

    # What is added

    def add(self, record: Record | bytes) -> bool | Refusal:
        """Add a record: True if it is new, False if it or a newer one is there, or why it is refused.

        Signatures are checked last, so that only what a member may have signed costs that.
        """
        if isinstance(record, bytes):
            decoded = decode_record(record)
            if isinstance(decoded, Refusal):
                return decoded
            record = decoded
        if record.id in self._ids:
            return False
        inviter, number = _place_of(record)
        hosts = self._hosts(inviter)
        if not hosts:
            return Refusal.UNKNOWN_INVITER
        if all(number > host.seats for host, _ in hosts):
            return Refusal.OVER_ALLOWANCE
        slot = self._slots.get(inviter, {}).get(number) or _Slot()
        if isinstance(record, Admission):
            answer = self._add_membership(hosts, slot, record)
        else:
            answer = self._add_revocation(inviter, slot, record)
        if answer is True:
            self._slots.setdefault(inviter, {})[number] = slot
            self._ids.add(record.id)
        return answer

    def add_all(self, records: Iterable[Record | bytes]) -> int:
        """Add records in any order, as often as needed; return how many were new."""
        left, new = list(records), 0
        while True:
            answers = [(record, self.add(record)) for record in left]
            added = sum(answer is True for _, answer in answers)
            new += added
            left = [record for record, answer in answers if answer is Refusal.UNKNOWN_INVITER]
            if not added or not left:
                return new

    def _views(self) -> tuple[tuple[_View, float], tuple[_View, float]]:
        """Return what the records say now, what they said before those expired that are kept, and the times."""
        now = self._clock()
        return (self._view, now), (self._kept, now - GRACE)

    def _hosts(self, inviter: bytes) -> list[tuple[RosterEntry, float]]:
        """Return an inviter as a member now and before, with the times."""
        if self._stale and inviter not in self._view.members and inviter not in self._kept.members:
            self._current()
        return [(view.members[inviter], at) for view, at in self._views() if inviter in view.members]

    def _add_membership(
        self, hosts: list[tuple[RosterEntry, float]], slot: _Slot, membership: Admission
    ) -> bool | Refusal:
        offer = membership.offer
        if 0 < offer.expires <= self._clock() - GRACE:
            return Refusal.EXPIRED
        if slot.revocation is not None and offer.number <= slot.revocation.number:
            return Refusal.REVOKED
        if not any(self._fits(host, offer, at) for host, at in hosts):
            return Refusal.OVER_ALLOWANCE
        newest = slot.memberships[0] if slot.memberships else None
        twice = newest is not None and newest.offer.data == offer.data and newest.key != membership.key
        if newest is not None and not (twice and offer.by_code) and _rank(membership) <= _rank(newest):
            return False
        if len(slot.memberships) > 1 and newest is not None and newest.offer.data == offer.data:
            return False  # A code that was used twice: more is not of use.
        if not membership.is_signed(self.group.id):
            return Refusal.BAD_SIGNATURE
        if not twice:
            self._ids.difference_update(one.id for one in slot.memberships)
            slot.memberships = []
        slot.memberships.append(membership)
        self._taken[offer.inviter_id] += 1 + offer.seats
        if newest is not None or not self._extends(hosts, membership):
            self._stale = True
            return True
        # The usual case: what followed from the records before still does.
        for view, at in self._views():
            if (host := view.members.get(offer.inviter_id)) is not None and not 0 < offer.expires <= at:
                view.admit(membership, host)
        self.revision += 1
        return True

    def _extends(self, hosts: list[tuple[RosterEntry, float]], membership: Admission) -> bool:
        """Return whether all that follows from a membership in a free slot is one more member."""
        known = any(membership.key_id in view.members for view, _ in self._views())
        roomy = all(self._taken[host.key_id] <= host.seats and host.generation < MOST_GENERATIONS for host, _ in hosts)
        return roomy and not known and not self._stale

    def _fits(self, host: RosterEntry, offer: Offer, now: float) -> bool:
        """Return whether a member may invite, and its seats suffice for a slot after the lower ones."""
        taken = self._taken.get(host.key_id)
        if taken is None:
            memberships = [slot.memberships for slot in self._slots.get(host.key_id, {}).values()]
            taken = self._taken[host.key_id] = sum(1 + some[0].offer.seats for some in memberships if some)
        if host.generation >= MOST_GENERATIONS:
            return False
        if taken + 1 + offer.seats <= host.seats:
            return True
        lower = sum(1 + one.offer.seats for number, one in self._counting(host, now) if number < offer.slot)
        return lower + 1 + offer.seats <= host.seats

    def _counting(self, host: RosterEntry, now: float) -> Iterator[tuple[int, Admission]]:
        """Yield the slots of a member that fit its seats, with their memberships; expired ones take no seats."""
        spent = 0
        for number, slot in sorted(self._slots.get(host.key_id, {}).items()):
            if number > host.seats:
                return
            if not _is_live(slot, now) or spent + 1 + slot.memberships[0].offer.seats > host.seats:
                continue
            spent += 1 + slot.memberships[0].offer.seats
            yield number, slot.memberships[0]

    def _add_revocation(self, inviter: bytes, slot: _Slot, revocation: Revocation) -> bool | Refusal:
        held = slot.revocation
        if held is not None and (held.number, held.id) >= (revocation.number, revocation.id):
            return False
        if not self._is_authorised(revocation.revoker_id, inviter):
            return Refusal.UNKNOWN_INVITER
        if not revocation.is_signed(self.group.id):
            return Refusal.BAD_SIGNATURE
        if held is not None:
            self._ids.discard(held.id)
        slot.revocation = revocation
        gone = [one for one in slot.memberships if one.offer.number <= revocation.number]
        self._ids.difference_update(one.id for one in gone)
        slot.memberships = [one for one in slot.memberships if one not in gone]
        self._stale = True
        return True

    def _is_authorised(self, revoker: bytes, inviter: bytes) -> bool:
        """Return whether a revoker is a founder, the inviter, or between the inviter and its founder."""
        return revoker in self._founders or any(
            revoker in _line(inviter, view.members) for view, _ in self._views() if inviter in view.members
        )

    # What follows from the records

    def _current(self) -> _View:
        now = self._clock()
        if not self.held and (self._stale or now >= min(self._view.changes, self._kept.changes + GRACE)):
            before = self._view.members
            self._view, self._kept = self._walk(now), self._walk(now - GRACE)
            self._prune()
            if self._stale or before != self._view.members:
                self.revision += 1
            self._stale, self._taken = False, {}
        return self._view

    def _walk(self, now: float) -> _View:
        """Find the members from the founders on."""
        share = MOST_SEATS // len(self._founders)
        level = [RosterEntry(founder, None, 0, share, 0, 0) for founder in sorted(self._founders)]
        view = _View({member.key_id: member for member in level}, {}, set(), math.inf)
        for _ in range(MOST_GENERATIONS):
            found: dict[bytes, Admission] = {}
            for host in level:
                self._count(host, now, view, found)
            level = [view.admit(proof, view.members[proof.offer.inviter_id]) for _, proof in sorted(found.items())]
        return view

    def _count(self, host: RosterEntry, now: float, view: _View, found: dict[bytes, Admission]) -> None:
        """Note the members of the next generation whom a member invited."""
        for number, membership in self._counting(host, now):
            if membership.offer.expires:
                view.changes = min(view.changes, membership.offer.expires)
            view.counted.add((host.key_id, number))
            if len(self._slots[host.key_id][number].memberships) > 1 or membership.key_id in view.members:
                continue  # A code that was used twice is nobody's.
            other = found.get(membership.key_id)
            if other is None or _preference(membership) > _preference(other):
                found[membership.key_id] = membership

    def _prune(self) -> None:
        """Drop records that do not count: nothing follows from them."""
        counted = self._view.counted | self._kept.counted
        for name, slots in list(self._slots.items()):
            seats = max((view.members[name].seats for view, _ in self._views() if name in view.members), default=0)
            for number, slot in list(slots.items()):
                if slot.memberships and (name, number) not in counted:
                    self._ids.difference_update(one.id for one in slot.memberships)
                    slot.memberships = []
                if slot.revocation is not None and not (
                    number <= seats and self._is_authorised(slot.revocation.revoker_id, name)
                ):
                    self._ids.discard(slot.revocation.id)
                    slot.revocation = None
                if not slot.memberships and slot.revocation is None:
                    del slots[number]
            if not slots:
                del self._slots[name]

    # What this peer signs

    def invite(
        self,
        identity: Identity,
        invitee: bytes | None = None,
        *,
        seats: int = 0,
        expires: int = 0,
        outstanding: Iterable[Offer] = (),
    ) -> Invitation:
        """Return an invitation in the first free slot; nothing is added to the roster before it is accepted.

        Parameters
        ----------
        identity : Identity
            A member's.
        invitee : bytes, optional
            Key id of the invitee; without one, a one-time code is made.
        seats : int
            Number of others that the invitee may invite.
        expires : int
            When the membership ends, in seconds since 1970; 0: never.
        outstanding : iterable of Offer
            What this member has offered before; what may still be accepted keeps its seats.

        Raises
        ------
        ValueError
            If the inviter is no member, or has not so many seats left.
        """
        host = self._current().members.get(identity.key_id)
        if host is None:
            raise ValueError(f"{identity.key_id.hex()} is not in the roster: only a member may invite others")
        if host.generation >= MOST_GENERATIONS:
            raise ValueError(
                f"there are {MOST_GENERATIONS} invitations between a founder and this member: no more may follow"
            )
        now, slots = self._clock(), self._slots.get(identity.key_id, {})
        held = {number: one.offer for number, one in self._counting(host, now)}
        for offer in outstanding:
            if not 0 < offer.expires <= now and offer.number > _largest_number(slots.get(offer.slot)):
                held[offer.slot] = offer
        left = host.seats - sum(1 + offer.seats for offer in held.values())
        if seats < 0 or left < 1 + seats:
            raise ValueError(
                f"an invitation with {seats} seats takes {1 + seats}, and {left} of {host.seats} are left; give "
                "fewer, or revoke another invitation"
            )
        number = next(number for number in range(1, host.seats + 2) if number not in held)
        once = None if invitee is not None else Identity.generate()
        offer = Offer.sign(
            identity,
            self.group.id,
            slot=number,
            number=max(int(now * 1000), 1 + _largest_number(slots.get(number))),
            invitee=once.key_id if once is not None else invitee or b"",
            by_code=once is not None,
            seats=seats,
            expires=expires,
        )
        return Invitation(
            group=self.group.id,
            founders=self._founders,
            offer=offer,
            code=None if once is None else once.secret,
            chain=self.chain(identity.key_id),
        )

    def seats_left(self, key_id: bytes) -> int:
        """Return how many more peers may be invited through a member."""
        host = self._current().members.get(key_id)
        if host is None:
            return 0
        return host.seats - sum(1 + one.offer.seats for _, one in self._counting(host, self._clock()))

    def accept(self, identity: Identity, invitation: Invitation) -> None:
        """Add the chain of an invitation, and the own membership.

        Raises
        ------
        ValueError
            If it is for another group or peer, has expired, or was revoked.
        """
        if invitation.group != self.group.id:
            raise ValueError(
                "the invitation is for another group: application, backbone, classes, features, founders and secret "
                "must be the same"
            )
        self.add_all(invitation.chain)
        offer = invitation.offer
        if any(one.offer.data == offer.data for one in self._of_slot(offer) if one.key == identity.key):
            return
        membership = offer.accept(identity, self.group.id, number=int(self._clock() * 1000), code=invitation.code)
        answer = self.add(membership)
        if isinstance(answer, Refusal):
            raise ValueError(f"the invitation does not count: {answer.value}; ask {offer.inviter_id.hex()} for another")
        if not answer:
            raise ValueError(f"the invitation was used or replaced; ask {offer.inviter_id.hex()} for another")

    def _of_slot(self, offer: Offer) -> list[Admission]:
        slot = self._slots.get(offer.inviter_id, {}).get(offer.slot)
        return [] if slot is None else slot.memberships

    def revoke(self, identity: Identity, key_id: bytes) -> list[Revocation]:
        """Return and add the revocations that remove a member and all that it invited, directly or not.

        Raises
        ------
        ValueError
            If it is no member, or none of its memberships is below the revoker.
        """
        if key_id in self._founders:
            raise ValueError(f"{key_id.hex()} is a founder, who cannot be put out: found a new group")
        if not self.admits(key_id):
            raise ValueError(f"{key_id.hex()} is not in the roster")
        signed = []
        for inviter, slots in list(self._slots.items()):
            for number, slot in list(slots.items()):
                if any(one.key_id == key_id for one in slot.memberships) and self._is_authorised(
                    identity.key_id, inviter
                ):
                    newest = _largest_number(slot)
                    signed.append(Revocation.sign(identity, self.group.id, inviter=inviter, slot=number, number=newest))
        if not signed:
            raise ValueError(
                f"{key_id.hex()} did not come in by this member's invitation: ask its inviter, or a founder"
            )
        for revocation in signed:
            self.add(revocation)
        return signed


def _place_of(record: Record) -> tuple[bytes, int]:
    """Return the key id of the inviter, and the slot, that a record is about."""
    if isinstance(record, Admission):
        return record.offer.inviter_id, record.offer.slot
    return record.inviter, record.slot


def _line(key_id: bytes | None, members: dict[bytes, RosterEntry]) -> Iterator[bytes]:
    """Yield a member, its inviter, and so on up to a founder."""
    while key_id is not None and key_id in members:
        yield key_id
        key_id = members[key_id].inviter


def _is_live(slot: _Slot, now: float) -> bool:
    """Return whether a slot has a membership that has not expired."""
    return bool(slot.memberships) and not 0 < slot.memberships[0].offer.expires <= now


def _largest_number(slot: _Slot | None) -> int:
    """Return the largest number that was used for a slot; 0 for none."""
    if slot is None:
        return 0
    numbers = [one.offer.number for one in slot.memberships]
    return max(numbers + ([slot.revocation.number] if slot.revocation is not None else []), default=0)


def _rank(membership: Admission) -> tuple[int, bytes, int, bytes]:
    """Return what orders the memberships of one slot: the newest offer, and its newest acceptance."""
    return membership.offer.number, membership.offer.data, membership.number, membership.id


def _preference(membership: Admission) -> tuple[int, bytes]:
    """Return what orders the memberships of one member in one generation: the newest acceptance."""
    return membership.number, membership.id
