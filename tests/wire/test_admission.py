from __future__ import annotations

import pytest

from bristle.wire.admission import (
    MOST_SEATS,
    Admission,
    Invitation,
    Offer,
    Revocation,
    decode_record,
    split_records,
)
from bristle.wire.refusal import Refusal
from tests.support.rosters import founded, identity

GROUP = founded("ann")
ANN, BEN, EVE = identity("ann"), identity("ben"), identity("eve")


def an_offer(**changes: object) -> Offer:
    options = {"slot": 1, "number": 7, "invitee": BEN.key_id, "seats": 3, "expires": 2_000_000_000, **changes}
    return Offer.sign(ANN, GROUP.id, **options)  # type: ignore[arg-type]


def a_membership() -> Admission:
    return an_offer().accept(BEN, GROUP.id, number=8)


def a_membership_by_code() -> Admission:
    code = identity("code")
    return an_offer(invitee=code.key_id, by_code=True).accept(BEN, GROUP.id, number=8, code=code.secret)


def a_revocation() -> Revocation:
    return Revocation.sign(ANN, GROUP.id, inviter=ANN.key_id, slot=1, number=7)


RECORDS: list[Admission | Revocation] = [a_membership(), a_membership_by_code(), a_revocation()]


@pytest.mark.parametrize("record", RECORDS, ids=["membership", "by code", "revocation"])
def test_records_decode_to_what_was_signed(record: Admission | Revocation) -> None:
    decoded = decode_record(record.data)
    assert decoded == record
    assert decoded.is_signed(GROUP.id)
    assert not decoded.is_signed(founded("eve").id)


@pytest.mark.parametrize("record", RECORDS, ids=["membership", "by code", "revocation"])
def test_signatures_cover_every_bit(record: Admission | Revocation) -> None:
    for bit in range(8 * len(record.data)):
        changed = bytearray(record.data)
        changed[bit // 8] ^= 1 << bit % 8
        decoded = decode_record(bytes(changed))
        assert isinstance(decoded, Refusal) or not decoded.is_signed(GROUP.id), bit


def test_a_membership_says_who_invited_whom() -> None:
    membership = a_membership_by_code()
    assert (membership.offer.inviter_id, membership.key_id) == (ANN.key_id, BEN.key_id)
    assert (membership.offer.slot, membership.offer.seats, membership.offer.by_code) == (1, 3, True)


@pytest.mark.parametrize(
    "record",
    [
        an_offer(slot=0).accept(BEN, GROUP.id, number=8).data,
        an_offer(number=2**63).accept(BEN, GROUP.id, number=8).data,
        an_offer(seats=MOST_SEATS).accept(BEN, GROUP.id, number=8).data,
        an_offer().accept(BEN, GROUP.id, number=2**63).data,
        Revocation.sign(ANN, GROUP.id, inviter=ANN.key_id, slot=0, number=7).data,
        b"",
        b"\x00",
        b"\x09" + bytes(237),
        a_membership().data[:-1],
        a_membership().data + b"\x00",
    ],
)
def test_what_is_no_record_is_malformed(record: bytes) -> None:
    assert decode_record(record) is Refusal.MALFORMED


def test_records_follow_one_another() -> None:
    data = b"".join(record.data for record in RECORDS)
    assert split_records(data) == RECORDS
    assert split_records(b"") == []
    assert split_records(data[:-1]) is Refusal.MALFORMED
    assert split_records(data + b"\x00") is Refusal.MALFORMED


def test_nobody_else_can_accept() -> None:
    with pytest.raises(ValueError, match=f"is for the peer {BEN.key_id.hex()}, not for this one"):
        an_offer().accept(EVE, GROUP.id, number=8)
    code = identity("code")
    with pytest.raises(ValueError, match="code does not fit"):
        an_offer(invitee=code.key_id, by_code=True).accept(EVE, GROUP.id, number=8, code=EVE.secret)


def test_an_invitation_is_one_line_of_text() -> None:
    code = identity("code")
    for by_code in (False, True):
        offer = an_offer(invitee=code.key_id if by_code else BEN.key_id, by_code=by_code)
        invitation = Invitation(
            group=GROUP.id,
            founders=GROUP.founders or frozenset(),
            offer=offer,
            code=code.secret if by_code else None,
            chain=(a_membership().data, a_membership_by_code().data),
        )
        text = invitation.to_text()
        assert "\n" not in text
        assert Invitation.from_text(f" {text}\n") == invitation
        for damaged in (
            text[:-4],
            text[:-1],
            text + "AAAA",
            text.replace(text[60], "_" if text[60] != "_" else "A", 1),
        ):
            with pytest.raises(ValueError, match="invitation"):
                Invitation.from_text(damaged)


def test_what_is_no_invitation_is_said() -> None:
    with pytest.raises(ValueError, match="an invitation begins with"):
        Invitation.from_text("hello")
    for text in ("bristle-invitation-1:", "bristle-invitation-1:!!!", "bristle-invitation-1:AAAA"):
        with pytest.raises(ValueError, match="damaged: copy all of its text"):
            Invitation.from_text(text)
