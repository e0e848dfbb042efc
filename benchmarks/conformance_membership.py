"""What Bristle makes of hostile records of membership: one member of a founded group sends them to its founder.

`python benchmarks/conformance_membership.py [--out docs/conformance.md]` writes a section of that page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import repository  # noqa: F401
from bristle.p2p import Overlay
from bristle.p2p.members.roster import Roster
from bristle.wire import Group, Identity
from bristle.wire import messages as wire
from bristle.wire.admission import Offer, Revocation
from sections import run_as_script, table_of

SECTION = "conformance_membership"
SEATS = 2
HOUR = 3600


class World:
    """A founder, a member with two seats that says what it likes, another member, and somebody who is none."""

    def __init__(self) -> None:
        self.founder, self.liar, self.member, self.stranger = (Identity.generate() for _ in range(4))
        self.group = Group(
            application="conformance", backbone="none", classes=tuple("0123456789"), features=80,
            founders=frozenset([self.founder.key_id]),
        )  # fmt: skip
        self.roster = Roster(self.group)
        for invitee, seats in ((self.liar, SEATS), (self.member, 0)):
            self.roster.accept(invitee, self.roster.invite(self.founder, invitee.key_id, seats=seats))

    def invited(self, inviter: Identity, slot: int = 1, *, seats: int = 0, expires: int = 0) -> bytes:
        """Return a membership of the stranger."""
        now = int(time.time())
        offer = Offer.sign(
            inviter, self.group.id, slot=slot, number=now, invitee=self.stranger.key_id, seats=seats, expires=expires
        )
        return offer.accept(self.stranger, self.group.id, number=now).data

    def revoked(self, inviter: Identity, slot: int) -> bytes:
        """Return a revocation by the liar."""
        return Revocation.sign(
            self.liar, self.group.id, inviter=inviter.key_id, slot=slot, number=2 * int(time.time())
        ).data


def _changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


CASES: dict[str, tuple[Callable[[World], list[bytes]], str]] = {
    "right": (lambda world: [world.invited(world.liar)], "nothing: an invitation by a member with seats, accepted"),
    "changed": (lambda world: [_changed(world.invited(world.liar))], "one bit of the signature differs"),
    "by a stranger": (lambda world: [world.invited(world.stranger)], "whoever invites is no member"),
    "in the founder's name": (
        lambda world: [_in_anothers_name(world)], "the founder's key, signed with another one",
    ),
    "beyond the seats": (lambda world: [world.invited(world.liar, SEATS + 1)], "a third invitation, for two seats"),
    "too many seats": (lambda world: [world.invited(world.liar, seats=SEATS)], "it gives away more than there are"),
    "expired": (
        lambda world: [world.invited(world.liar, expires=int(time.time()) - 365 * 24 * HOUR)], "a year ago",
    ),
    "false revocation": (
        lambda world: [world.revoked(world.founder, 2)], "of a member that somebody else brought in",
    ),
    "cut off": (lambda world: [world.invited(world.liar)[:-1]], "one byte is missing"),
    "a thousand bytes": (lambda world: [bytes([1]) * 1000], "no record at all"),
}  # fmt: skip


def _in_anothers_name(world: World) -> bytes:
    data = world.invited(world.liar, 3)
    return data.replace(world.liar.key, world.founder.key)


async def observe(case: str) -> str:
    """Return what became of a hostile record."""
    world = World()
    known = Roster(world.group)
    known.add_all(world.roster.records())
    async with AsyncExitStack() as exits:
        victim = Overlay(identity=world.founder, group=world.group, roster=known)
        await victim.start()
        exits.push_async_callback(victim.stop)
        liar = Overlay(identity=world.liar, group=world.group, roster=world.roster, known=[victim.address])
        await liar.start()
        exits.push_async_callback(liar.stop)
        await _until(lambda: bool(victim.neighbours() and liar.neighbours()))
        records = tuple(CASES[case][0](world))
        (link,) = liar.node.membership.links.values()
        before = known.revision
        liar.node.send_message(link, wire.encode(wire.Records(records)))
        await _until(lambda: bool(victim.counters.refused) or known.revision != before)
        refused = ", ".join(sorted(victim.counters.refused))
        joined = "the invitee is a member" if known.admits(world.stranger.key_id) else "nobody joins"
        stays = "" if known.admits(world.member.key_id) else "; another member is out"
        return (f"refused: {refused}; " if refused else "") + joined + stays


async def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 3.0
    while not condition() and time.monotonic() < end:
        await asyncio.sleep(0.01)


def section() -> str:
    """Return the section of the page."""
    rows = [f"| {case} | {what} | {asyncio.run(observe(case))} |" for case, (_, what) in CASES.items()]
    words = [
        "What a member of a founded group may send to its founder: two peers on loopback, as above. The member may",
        "invite two others. Made by `python benchmarks/conformance_membership.py`.",
    ]
    return table_of("Hostile records of membership", words, ["record", "what is wrong with it", "Bristle"], rows)


if __name__ == "__main__":
    run_as_script(__doc__, SECTION, section)
