from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from bristle.p2p.members.roster import GRACE, Roster
from bristle.wire.admission import (
    MOST_GENERATIONS,
    MOST_SEATS,
    Admission,
    Invitation,
    Offer,
    Revocation,
    decode_record,
)
from bristle.wire.refusal import Refusal
from tests.support.rosters import DAY, START, Clock, founded, identity, invite


def ids(*names: str) -> set[bytes]:
    return {identity(name).key_id for name in names}


def members(roster: Roster) -> set[bytes]:
    return set(roster.members())


def membership(
    inviter: str,
    invitee: str,
    *,
    slot: int = 1,
    number: int = 1,
    seats: int = 0,
    expires: int = 0,
    accepted: int = 1,
    founders: Iterable[str] = ("ann",),
) -> Admission:
    """Return what two people signed, whatever the rules say."""
    group = founded(*founders).id
    offer = Offer.sign(
        identity(inviter),
        group,
        slot=slot,
        number=number,
        invitee=identity(invitee).key_id,
        seats=seats,
        expires=expires,
    )
    return offer.accept(identity(invitee), group, number=accepted)


def by_code(inviter: str, code: str, invitee: str, *, slot: int = 1, seats: int = 0, accepted: int = 1) -> Admission:
    once, group = identity(code), founded("ann").id
    offer = Offer.sign(identity(inviter), group, slot=slot, number=1, invitee=once.key_id, by_code=True, seats=seats)
    return offer.accept(identity(invitee), group, number=accepted, code=once.secret)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def roster(clock: Clock) -> Roster:
    return Roster(founded("ann"), clock=clock)


def test_founders_are_members_from_the_start() -> None:
    roster = Roster(founded("ann", "bea"))
    assert members(roster) == ids("ann", "bea")
    assert not roster.admits(identity("ben").key_id)
    assert roster.seats_left(identity("ann").key_id) == MOST_SEATS // 2


def test_a_group_without_founders_has_none() -> None:
    with pytest.raises(ValueError, match="only a group with founders"):
        Roster(founded("ann", founders=None))


def test_who_was_invited_may_invite_as_many_as_it_was_given_seats(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=2)
    invite(roster, "ben", "cat", seats=1)
    invite(roster, "cat", "dan")
    assert members(roster) == ids("ann", "ben", "cat", "dan")
    assert [roster.members()[identity(name).key_id].generation for name in ("ann", "ben", "cat", "dan")] == [0, 1, 2, 3]
    for name in ("ben", "cat", "dan"):
        assert roster.seats_left(identity(name).key_id) == 0
        with pytest.raises(ValueError, match="takes 1, and 0 of"):
            invite(roster, name, "eve")
    with pytest.raises(ValueError, match="is not in the roster: only a member may invite"):
        invite(roster, "eve", "fay")


def test_an_invitation_that_is_not_accepted_keeps_its_seats_for_its_inviter(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=2)
    one = roster.invite(identity("ben"), identity("cat").key_id)
    two = roster.invite(identity("ben"), identity("dan").key_id, outstanding=[one.offer])
    assert (one.offer.slot, two.offer.slot) == (1, 2)
    with pytest.raises(ValueError, match="takes 1, and 0 of 2 are left"):
        roster.invite(identity("ben"), outstanding=[one.offer, two.offer])
    roster.accept(identity("dan"), two)
    roster.accept(identity("cat"), one)
    roster.accept(identity("cat"), one)
    assert members(roster) == ids("ann", "ben", "cat", "dan")


def test_nobody_below_a_member_exceeds_its_seats_however_it_signs(roster: Roster) -> None:
    invite(roster, "ann", "eve", seats=5)
    for slot in range(1, 6):
        roster.add(membership("eve", f"eve {slot}", slot=slot, seats=4))
        for below in range(1, 5):
            roster.add(membership(f"eve {slot}", f"eve {slot} {below}", slot=below, seats=3))
    assert len(members(roster)) <= 2 + 5
    assert roster.add(membership("eve", "eve 6", slot=6)) is Refusal.OVER_ALLOWANCE
    assert roster.add(membership("eve", "eve 7", slot=5, seats=5)) is Refusal.OVER_ALLOWANCE


def test_chains_end(roster: Roster) -> None:
    names = ["ann", *(f"member {number}" for number in range(MOST_GENERATIONS + 1))]
    for number, (inviter, invitee) in enumerate(itertools.pairwise(names[:-1])):
        invite(roster, inviter, invitee, seats=20 - number)
    with pytest.raises(ValueError, match=f"{MOST_GENERATIONS} invitations between"):
        invite(roster, names[-2], names[-1])
    assert roster.add(membership(names[-2], names[-1])) is Refusal.OVER_ALLOWANCE
    assert len(roster.chain(identity(names[-2]).key_id)) == MOST_GENERATIONS


def test_the_chain_of_a_member_is_enough_for_those_who_know_the_founders(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=2)
    invite(roster, "ben", "cat")
    invite(roster, "ben", "dan")
    other = Roster(roster.group)
    chain = roster.chain(identity("cat").key_id)
    assert other.add_all(chain) == 2
    assert members(other) == ids("ann", "ben", "cat")
    assert other.add_all(reversed(chain)) == 0


def test_invitations_expire_and_are_renewed(roster: Roster, clock: Clock) -> None:
    invite(roster, "ann", "ben", seats=2, expires=int(START) + DAY)
    invite(roster, "ben", "cat")
    assert roster.members()[identity("cat").key_id].expires == int(START) + DAY
    clock.now += DAY
    assert members(roster) == ids("ann")
    invite(roster, "ann", "ben", seats=1, expires=int(START) + 3 * DAY)
    assert members(roster) == ids("ann", "ben", "cat")
    assert len(roster.records()) == 2
    clock.now += 2 * DAY + GRACE
    assert members(roster) == ids("ann")
    assert roster.records() == []
    assert roster.add(membership("ann", "ben", expires=int(START))) is Refusal.EXPIRED


def test_a_revocation_takes_all_whom_a_member_brought_in(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=3)
    invite(roster, "ben", "cat", seats=1)
    invite(roster, "cat", "dan")
    invite(roster, "ben", "eve")
    (revoked,) = roster.revoke(identity("ben"), identity("cat").key_id)
    assert members(roster) == ids("ann", "ben", "eve")
    assert roster.seats_left(identity("ben").key_id) == 2
    assert revoked.data in roster.records()
    invite(roster, "ben", "fay")
    assert members(roster) == ids("ann", "ben", "eve", "fay")


def test_what_was_revoked_does_not_come_back(roster: Roster) -> None:
    invite(roster, "ann", "ben")
    chain = roster.chain(identity("ben").key_id)
    (revoked,) = roster.revoke(identity("ann"), identity("ben").key_id)
    assert [roster.add(record) for record in chain] == [Refusal.REVOKED]
    late = Roster(roster.group)
    assert late.add(revoked) is True
    assert [late.add(record) for record in chain] == [Refusal.REVOKED]
    invite(roster, "ann", "ben")
    assert members(roster) == ids("ann", "ben")


@pytest.mark.parametrize(
    ("revoker", "may"),
    [("ann", True), ("bea", True), ("ben", True), ("cat", True), ("dan", False), ("eve", False), ("stranger", False)],
)
def test_the_inviter_those_above_and_founders_may_revoke(revoker: str, may: bool) -> None:
    roster = Roster(founded("ann", "bea"))
    invite(roster, "ann", "ben", seats=9)
    invite(roster, "ben", "cat", seats=3)
    invite(roster, "cat", "dan", seats=1)
    invite(roster, "ben", "eve")
    if may:
        roster.revoke(identity(revoker), identity("dan").key_id)
        assert members(roster) == ids("ann", "bea", "ben", "cat", "eve")
        return
    with pytest.raises(ValueError, match="did not come in by this member's invitation"):
        roster.revoke(identity(revoker), identity("dan").key_id)
    forged = Revocation.sign(identity(revoker), roster.group.id, inviter=identity("cat").key_id, slot=1, number=2**62)
    assert roster.add(forged) is Refusal.UNKNOWN_INVITER
    assert roster.admits(identity("dan").key_id)


def test_founders_cannot_be_put_out(roster: Roster) -> None:
    with pytest.raises(ValueError, match="is a founder, who cannot be put out"):
        roster.revoke(identity("ann"), identity("ann").key_id)
    with pytest.raises(ValueError, match="is not in the roster"):
        roster.revoke(identity("ann"), identity("ben").key_id)


def test_who_was_invited_twice_stays_while_one_invitation_holds(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=3)
    invite(roster, "ann", "cat", seats=3)
    invite(roster, "ben", "dan", seats=1)
    invite(roster, "cat", "dan")
    roster.revoke(identity("ben"), identity("dan").key_id)
    assert roster.admits(identity("dan").key_id)
    assert roster.members()[identity("dan").key_id].inviter == identity("cat").key_id
    roster.revoke(identity("ann"), identity("cat").key_id)
    assert members(roster) == ids("ann", "ben")


def test_nobody_is_drawn_under_another_without_its_word(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=3)
    invite(roster, "ann", "eve", seats=3)
    invite(roster, "ben", "cat", seats=1)
    roster.invite(identity("eve"), identity("cat").key_id)
    forged = Offer.sign(identity("eve"), roster.group.id, slot=1, number=1, invitee=identity("cat").key_id)
    accepted = forged.data + identity("eve").key + bytes(8)
    assert roster.add(b"\x01" + accepted + identity("eve").sign(accepted)) is Refusal.BAD_SIGNATURE
    assert roster.members()[identity("cat").key_id].inviter == identity("ben").key_id


def test_a_code_lets_one_in(roster: Roster) -> None:
    invitation = roster.invite(identity("ann"), seats=1)
    assert invitation.code is not None
    roster.accept(identity("ben"), invitation)
    invite(roster, "ben", "cat")
    assert members(roster) == ids("ann", "ben", "cat")


def test_a_code_that_was_used_twice_is_nobodys() -> None:
    first, second, third = (by_code("ann", "code", name, seats=1) for name in ("ben", "eve", "fay"))
    below = membership("ben", "cat")
    rosters = []
    for records in itertools.permutations([first, second, third]):
        roster = Roster(founded("ann"))
        roster.add_all([*records, below])
        rosters.append(roster)
        assert members(roster) == ids("ann")
        again = by_code("ann", "code", "ben", seats=1, accepted=2)
        assert roster.add(again) is False
    assert len({roster.entries()[0][0] for roster in rosters}) == 1


def test_voices_join_what_came_in_by_one_member() -> None:
    roster = Roster(founded("ann", "bea"))
    for inviter, invitee, seats in [
        ("ann", "ben", 9),
        ("ann", "dan", 9),
        ("ben", "cat", 3),
        ("cat", "eve", 0),
        ("bea", "fay", 1),
        ("fay", "gil", 0),
    ]:
        invite(roster, inviter, invitee, seats=seats)
    names = {identity(name).key_id: name for name in ("ann", "bea", "ben", "cat", "dan", "eve", "fay", "gil")}

    def voices(generation: int) -> dict[str, str]:
        return {names[one]: names[voice] for one, voice in roster.voices(generation=generation).items()}

    assert voices(1) == {
        "ann": "ann", "bea": "bea", "ben": "ben", "dan": "dan", "fay": "fay", "cat": "ben", "eve": "ben", "gil": "fay"
    }  # fmt: skip
    assert set(voices(0).values()) == {"ann", "bea"}
    assert voices(2)["eve"] == "cat"


def test_forged_and_foreign_records_are_refused(roster: Roster) -> None:
    invite(roster, "ann", "ben", seats=1)
    real = membership("ben", "cat")
    changed = bytearray(real.data)
    changed[-1] ^= 1
    assert roster.add(bytes(changed)) is Refusal.BAD_SIGNATURE
    assert roster.add(membership("ben", "cat", founders=["eve"])) is Refusal.BAD_SIGNATURE
    assert roster.add(membership("eve", "cat")) is Refusal.UNKNOWN_INVITER
    assert roster.add(b"rubbish") is Refusal.MALFORMED
    assert roster.add(real) is True
    assert roster.add(real) is False


def test_an_older_offer_does_not_replace_a_newer_one(roster: Roster) -> None:
    assert roster.add(membership("ann", "ben", number=2)) is True
    assert roster.add(membership("ann", "cat", number=1)) is False
    assert roster.add(membership("ann", "cat", number=3)) is True
    assert members(roster) == ids("ann", "cat")


def test_invitations_for_others_say_so(roster: Roster, clock: Clock) -> None:
    other = Roster(founded("eve"), clock=clock)
    with pytest.raises(ValueError, match="is for another group"):
        roster.accept(identity("ben"), other.invite(identity("eve"), identity("ben").key_id))
    invitation = roster.invite(identity("ann"), identity("ben").key_id, expires=int(START) + DAY)
    with pytest.raises(ValueError, match="is for the peer"):
        roster.accept(identity("eve"), invitation)
    code = roster.invite(identity("ann"))
    roster.accept(identity("eve"), code)
    with pytest.raises(ValueError, match="used or replaced; ask"):
        roster.accept(identity("eve"), replaced(roster, code.offer))


def replaced(roster: Roster, offer: Offer) -> Invitation:
    """Return an invitation that a newer one for the same slot has replaced."""
    older = Offer.sign(identity("ann"), roster.group.id, slot=offer.slot, number=1, invitee=identity("eve").key_id)
    return Invitation(
        group=roster.group.id, founders=roster.group.founders or frozenset(), offer=older, code=None, chain=()
    )


def random_records(rng: random.Random) -> list[Admission | Revocation]:
    """Return what a group with liars in it may have signed."""
    names = ["ann", *(f"member {number}" for number in range(12))]
    group = founded("ann").id
    records: list[Admission | Revocation] = []
    for _ in range(40):
        inviter, invitee = rng.sample(names, 2)
        slot, number, seats = rng.randint(1, 4), rng.randint(1, 3), rng.choice([0, 1, 2, 3, 6])
        expires = rng.choice([0, int(START) - DAY, int(START) + DAY, int(START - 2 * GRACE)])
        if rng.random() < 0.15:
            signer = identity(rng.choice([inviter, "ann", rng.choice(names)]))
            of = identity(inviter).key_id
            records.append(Revocation.sign(signer, group, inviter=of, slot=slot, number=number))
        elif rng.random() < 0.2:
            records.append(by_code(inviter, f"code {slot}", invitee, slot=slot, seats=seats))
        else:
            accepted = rng.randint(1, 5)
            records.append(
                membership(inviter, invitee, slot=slot, number=number, seats=seats, expires=expires, accepted=accepted)
            )
    return records


@pytest.mark.parametrize("seed", range(40))
def test_peers_with_the_same_records_have_the_same_members(seed: int) -> None:
    rng = random.Random(seed)
    records = random_records(rng)
    rosters = [Roster(founded("ann"), clock=Clock()) for _ in range(3)]
    for roster in rosters:
        part = rng.sample(records, rng.randint(10, len(records)))
        for record in part:
            roster.add(record)
    for _ in range(12):  # What exchange does, until nothing is new.
        for one, other in itertools.permutations(rosters, 2):
            one.add_all(other.records())
    known = [sorted(identifier for identifier, _ in roster.entries()) for roster in rosters]
    assert known[1:] == [known[0]] * 2
    assert [roster.members() for roster in rosters[1:]] == [rosters[0].members()] * 2
    # Whoever reads what was kept knows as much.
    again = Roster(founded("ann"), clock=Clock())
    again.add_all(rosters[0].records())
    assert again.members() == rosters[0].members()
    assert sorted(again.records()) == sorted(rosters[0].records())
    fresh = Roster(founded("ann"), clock=Clock())
    for data in again.records():
        fresh.add(data)
        # What follows step by step is what follows from scratch.
        from_scratch = fresh._walk(START).members
        assert fresh.members() == from_scratch
    for member in again.members().values():
        below = [one for one in again.members().values() if one.inviter == member.key_id]
        assert sum(1 + one.seats for one in below) <= member.seats


def test_the_revision_tells_of_every_change(roster: Roster, clock: Clock) -> None:
    seen = [roster.revision]
    invite(roster, "ann", "ben", expires=int(START) + DAY)
    seen.append(roster.revision)
    record = decode_record(roster.records()[0])
    assert not isinstance(record, Refusal)
    roster.add(record)
    assert roster.revision == seen[-1]
    clock.now += DAY
    roster.members()
    seen.append(roster.revision)
    invite(roster, "ann", "cat")
    roster.revoke(identity("ann"), identity("cat").key_id)
    roster.members()
    seen.append(roster.revision)
    assert seen == sorted(set(seen))


def test_ten_thousand_records_of_one_liar_change_nothing_for_others() -> None:
    roster = Roster(founded("ann"), clock=Clock())
    invite(roster, "ann", "ben", seats=10)
    invite(roster, "ann", "eve", seats=24)
    invite(roster, "ben", "cat")
    group, eve = roster.group.id, identity("eve")
    one = identity("one of many")
    answers = set()
    for number in range(10_000):
        offer = Offer.sign(eve, group, slot=1 + number % 100, number=1 + number // 100, invitee=one.key_id, seats=0)
        answers.add(roster.add(offer.accept(one, group, number=1)))
    assert answers == {True, Refusal.OVER_ALLOWANCE}
    assert len(roster.records()) == 3 + 24
    assert members(roster) == ids("ann", "ben", "eve", "cat", "one of many")
