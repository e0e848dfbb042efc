from __future__ import annotations

import hmac
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from bristle.wire import Group
from bristle.wire.group import _digest


@pytest.mark.parametrize(
    "change",
    [
        {"application": "other"},
        {"backbone": "other"},
        {"classes": ("b", "a")},
        {"classes": ("ab",)},
        {"features": 9},
        {"secret": b"sixteen bytes or more"},
        {"founders": frozenset([bytes(20)])},
    ],
)
def test_whatever_makes_heads_unlike_makes_another_group(change: dict[str, Any]) -> None:
    group = Group(application="a", backbone="b", classes=("a", "b"), features=8)
    assert replace(group, **change).id != group.id
    assert replace(group).id == group.id


def test_members_are_no_part_of_the_id() -> None:
    group = Group(application="a", backbone="b", classes=("a",), features=8)
    listed = replace(group, members=frozenset([bytes(20)]))
    assert listed.id == group.id
    assert (group.closed, listed.closed, replace(group, secret=bytes(16)).closed) == (False, True, True)
    assert listed.admits(bytes(20))
    assert not listed.admits(b"x" * 20)
    assert group.admits(b"x" * 20)


def test_founders_close_a_group_and_are_a_part_of_its_id() -> None:
    group = Group(application="a", backbone="b", classes=("a",), features=8, founders=frozenset([bytes(20)]))
    assert group.closed
    assert replace(group, founders=frozenset([bytes(20), b"x" * 20])).id != group.id


def test_parts_do_not_run_into_each_other() -> None:
    assert _digest(b"ab", b"c") != _digest(b"a", b"bc")
    one = Group(application="ab", backbone="c", classes=("d",), features=1)
    other = Group(application="a", backbone="bc", classes=("d",), features=1)
    assert one.id != other.id


def test_only_those_with_the_secret_can_prove_that_they_belong() -> None:
    group = Group(application="a", backbone="b", classes=("a",), features=8, secret=b"sixteen bytes or more")
    guess = replace(group, secret=b"sixteen bytes or less")
    proof = group.prove(b"join", b"challenge")
    assert group.proven(proof, b"join", b"challenge")
    assert not group.proven(proof, b"welcome", b"challenge")
    assert not group.proven(proof, b"join", b"another challenge")
    assert not group.proven(guess.prove(b"join", b"challenge"), b"join", b"challenge")


def test_keys_depend_on_the_secret_the_agreement_the_transcript_and_their_label() -> None:
    group = Group(application="a", backbone="b", classes=("a",), features=8, secret=b"sixteen bytes or more")
    guess = replace(group, secret=b"sixteen bytes or less")
    key = group.derive(b"shared", transcript=b"said", label=b"one")
    others = [
        guess.derive(b"shared", transcript=b"said", label=b"one"),
        group.derive(b"another", transcript=b"said", label=b"one"),
        group.derive(b"shared", transcript=b"unsaid", label=b"one"),
        group.derive(b"shared", transcript=b"said", label=b"other"),
    ]
    assert len({key, *others}) == 5
    # RFC 5869 by hand: extract, then one block of expand.
    extracted = hmac.digest(sha256(b"said").digest(), b"shared" + group._proof_key, "sha256")
    assert key == hmac.digest(extracted, b"one\x01", "sha256")


def test_the_secret_is_never_shown() -> None:
    group = Group(application="a", backbone="b", classes=("a",), features=8, secret=b"sixteen bytes or more")
    assert "sixteen" not in repr(group)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"classes": ()}, "at least one class"),
        ({"features": 0}, "features"),
        ({"secret": b"short"}, "token_hex"),
        ({"members": frozenset([b"abc"])}, "616263"),
        ({"founders": frozenset()}, "1 to 16 founders, not 0"),
        ({"founders": frozenset([b"short"])}, "is no key id"),
        ({"founders": frozenset([bytes(20)]), "members": frozenset([bytes(20)])}, "members or founders .*, not both"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Group(**{"application": "a", "backbone": "b", "classes": ("a",), "features": 8, **options})
