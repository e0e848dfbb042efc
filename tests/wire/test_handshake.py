from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.wire import Group, Identity, Refusal
from bristle.wire.handshake import (
    PREFIX_BYTES,
    Caller,
    Cookie,
    CookieJar,
    Hello,
    Join,
    OtherVersion,
    Welcome,
    answer_join,
    check_join,
    decode,
    encode_cookie,
    encode_other_version,
    is_handshake,
    prefix_of,
)
from bristle.wire.session import Session

GROUP = Group(application="a", backbone="b", classes=("0", "1"), features=8)
HERE = ("192.0.2.1", 5)


def call(group: Group = GROUP, identity: Identity | None = None) -> Caller:
    return Caller(identity or Identity.generate(), group, nonce=os.urandom(16), session_id=b"aaaa")


def join_of(caller: Caller, cookie: bytes = bytes(16), *, alone: bool = False) -> Join:
    message = decode(caller.join(cookie, alone=alone), GROUP)
    assert isinstance(message, Join)
    return message


def welcome_to(join: Join, group: Group = GROUP, identity: Identity | None = None) -> tuple[Session, Welcome]:
    answer = answer_join(join, identity or Identity.generate(), group, session_id=b"bbbb", full=False)
    assert isinstance(answer, tuple)
    message = decode(answer[1], GROUP)
    assert isinstance(message, Welcome)
    return answer[0], message


def test_two_peers_that_do_as_they_should_share_a_session() -> None:
    caller = call()
    hello = decode(caller.hello(), GROUP)
    assert hello == Hello(caller.nonce)
    jar = CookieJar(os.urandom(32))
    answer = decode(encode_cookie(GROUP, caller.nonce, jar.make(HERE, 100.0)), GROUP)
    assert isinstance(answer, Cookie)
    join = join_of(caller, answer.cookie, alone=True)
    assert join.alone
    assert jar.accepts(join.cookie, HERE, 120.0)
    assert check_join(join, GROUP) is None
    theirs, welcome = welcome_to(join)
    ours = caller.finish(welcome)
    assert isinstance(ours, Session)
    assert theirs.open(ours.seal(b"hi")) == b"hi"
    assert ours.open(theirs.seal(b"ho")) == b"ho"


def test_an_answer_is_never_longer_than_what_asked_for_it() -> None:
    assert len(encode_cookie(GROUP, bytes(16), bytes(16))) <= len(call().hello())
    caller = call()
    join = join_of(caller)
    assert len(welcome_to(join)[1].datagram) <= len(join.datagram)


def test_cookies_are_for_one_address_and_a_while() -> None:
    jar = CookieJar(os.urandom(32))
    cookie = jar.make(HERE, 100.0)
    assert not jar.accepts(cookie, ("192.0.2.1", 6), 100.0)
    assert not jar.accepts(cookie, ("192.0.2.2", 5), 100.0)
    assert not jar.accepts(cookie, HERE, 200.0)
    assert not jar.accepts(bytes(16), HERE, 100.0)
    assert not CookieJar(os.urandom(32)).accepts(cookie, HERE, 100.0)


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_join_holds_for_every_bit(place: int, bit: int) -> None:
    caller = call(identity=_IDENTITY)
    datagram = bytearray(caller.join(bytes(16), alone=False))
    datagram[place % len(datagram)] ^= 1 << bit
    message = decode(bytes(datagram), GROUP)
    assert isinstance(message, Refusal) or not isinstance(message, Join) or check_join(message, GROUP) is not None


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_welcome_holds_for_every_bit(place: int, bit: int) -> None:
    caller = call(identity=_IDENTITY)
    datagram = bytearray(welcome_to(join_of(caller), identity=_OTHER)[1].datagram)
    datagram[place % len(datagram)] ^= 1 << bit
    message = decode(bytes(datagram), GROUP)
    assert (
        isinstance(message, Refusal) or not isinstance(message, Welcome) or isinstance(caller.finish(message), Refusal)
    )


_IDENTITY, _OTHER = Identity.generate(), Identity.generate()


def test_a_welcome_is_for_one_join() -> None:
    caller, other = call(), call()
    _, welcome = welcome_to(join_of(other))
    join_of(caller)
    assert caller.finish(welcome) is Refusal.MALFORMED
    assert caller.finish(replace(welcome, nonce=caller.nonce)) is Refusal.NOT_A_MEMBER
    assert call().finish(welcome) is Refusal.MALFORMED


def test_a_secret_is_needed_on_both_sides() -> None:
    closed = replace(GROUP, secret=b"sixteen bytes or more")
    guess = replace(GROUP, secret=b"sixteen bytes or less")
    object.__setattr__(guess, "id", closed.id)
    outsider = call(guess)
    message = decode(outsider.join(bytes(16), alone=True), closed)
    assert isinstance(message, Join)
    assert check_join(message, closed) is Refusal.NOT_A_MEMBER
    insider = call(closed)
    insider_join = decode(insider.join(bytes(16), alone=True), closed)
    assert isinstance(insider_join, Join)
    answer = answer_join(insider_join, Identity.generate(), guess, session_id=b"bbbb", full=False)
    assert isinstance(answer, tuple)
    welcome = decode(answer[1], closed)
    assert isinstance(welcome, Welcome)
    assert insider.finish(welcome) is Refusal.NOT_A_MEMBER


def test_a_list_of_members_holds_on_both_sides() -> None:
    inside, outside = Identity.generate(), Identity.generate()
    listed = replace(GROUP, members=frozenset([inside.key_id]))
    assert check_join(join_of(call(listed, inside)), listed) is None
    assert check_join(join_of(call(GROUP, outside)), listed) is Refusal.NOT_A_MEMBER
    caller = call(listed, inside)
    assert caller.finish(welcome_to(join_of(caller), identity=outside)[1]) is Refusal.NOT_A_MEMBER


def test_a_key_that_makes_every_agreement_alike_is_refused() -> None:
    identity = Identity.generate()
    caller = call(identity=identity)
    join = replace(join_of(caller), ephemeral=bytes(32))
    assert answer_join(join, identity, GROUP, session_id=b"bbbb", full=False) is Refusal.MALFORMED


def test_a_full_peer_says_so() -> None:
    join = join_of(call())
    answer = answer_join(join, Identity.generate(), GROUP, session_id=b"bbbb", full=True)
    assert isinstance(answer, tuple)
    welcome = decode(answer[1], GROUP)
    assert isinstance(welcome, Welcome)
    assert welcome.full


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_other_versions_are_told_apart(version: int) -> None:
    caller = call()
    changed = bytearray(caller.hello())
    changed[PREFIX_BYTES + 1] = version
    heard = decode(bytes(changed) + b"whatever that version has more", GROUP)
    assert heard == OtherVersion(version, caller.nonce, asks=True)
    assert heard == decode(bytes(changed), GROUP)
    assert decode(bytes(changed[:-1]), GROUP) is Refusal.VERSION, "an answer would be longer than what asked for it"
    joined = bytearray(caller.join(bytes(16), alone=False))
    joined[PREFIX_BYTES + 1] = version
    assert decode(bytes(joined), GROUP) is Refusal.VERSION


def test_an_answer_to_another_version_is_for_the_one_that_called() -> None:
    caller = call()
    answer = encode_other_version(GROUP, OtherVersion(3, caller.nonce, asks=True))
    assert len(answer) <= len(caller.hello())
    assert decode(answer, GROUP) is Refusal.MALFORMED, "it is of our own version"
    theirs = bytearray(answer)
    theirs[PREFIX_BYTES + 1] = 3
    assert decode(bytes(theirs), GROUP) == OtherVersion(3, caller.nonce, asks=False)
    assert decode(bytes(theirs) + b"x", GROUP) is Refusal.VERSION


def test_version_1_is_answered_with_a_message_that_it_counts() -> None:
    hello = bytes.fromhex("0002") + GROUP.id + bytes([1, 1]) + bytes(range(16)) + bytes(24)
    heard = decode(hello, GROUP)
    assert heard == OtherVersion(1, bytes(range(16)), asks=True)
    # As long as its own hello, and with a version that it does not know: "unknown version".
    answer = encode_other_version(GROUP, heard)
    assert answer == bytes.fromhex("0002") + GROUP.id + bytes([1, 2]) + bytes(range(16)) + bytes(24)
    assert decode(hello[:-1], GROUP) is Refusal.VERSION
    assert decode(answer, GROUP) is Refusal.VERSION, "and it is never answered"


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_a_message_or_a_reason(data: bytes, prefixed: bool) -> None:
    message = decode(prefix_of(GROUP) + data if prefixed else data, GROUP)
    assert isinstance(message, Refusal | Hello | Cookie | Join | Welcome | OtherVersion)
    assert not is_handshake(b"br")
