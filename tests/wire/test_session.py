from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.wire import Refusal
from bristle.wire.session import _WINDOW, Session, session_id_of
from bristle.wire.sizes import SEAL


def sessions(secret: bytes = bytes(32)) -> tuple[Session, Session]:
    back = secret[::-1] if secret[0] else b"back" * 8
    one = Session(secret, back, initiator=True, local=b"aaaa", remote=b"bbbb")
    return one, Session(back, secret, initiator=False, local=b"bbbb", remote=b"aaaa")


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_what_is_sealed_is_opened_both_ways(messages: list[bytes]) -> None:
    one, other = sessions()
    for message in messages:
        for sender, receiver in ((one, other), (other, one)):
            datagram = sender.seal(message)
            assert len(datagram) == len(message) + SEAL
            assert session_id_of(datagram) == receiver.local
            assert receiver.open(datagram) == message


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_nothing_opens_that_was_changed(place: int, bit: int) -> None:
    one, other = sessions()
    datagram = bytearray(one.seal(b"a message of some length"))
    place %= len(datagram)
    datagram[place] ^= 1 << bit
    assert isinstance(other.open(bytes(datagram)), Refusal)


def test_nobody_else_opens_it_nor_does_the_sender() -> None:
    one, other = sessions()
    stranger = sessions(b"x" * 32)[1]
    datagram = one.seal(b"message")
    assert stranger.open(datagram) is Refusal.NOT_SEALED
    assert one.open(datagram) is Refusal.NOT_SEALED
    assert not stranger.heard
    assert other.open(datagram) == b"message"
    assert other.heard


@given(st.permutations(range(12)), st.lists(st.integers(0, 11), max_size=10))
def test_each_counts_once_in_any_order(order: list[int], again: list[int]) -> None:
    one, other = sessions()
    datagrams = [one.seal(bytes([index])) for index in range(12)]
    for index in order:
        assert other.open(datagrams[index]) == bytes([index])
    for index in again:
        assert other.open(datagrams[index]) is Refusal.REPLAY


def test_what_comes_far_too_late_counts_as_a_replay() -> None:
    one, other = sessions()
    datagrams = [one.seal(b"x") for _ in range(_WINDOW + 2)]
    assert other.open(datagrams[-1]) == b"x"
    assert other.open(datagrams[2]) == b"x"
    assert other.open(datagrams[1]) is Refusal.REPLAY
    assert other.open(datagrams[0]) is Refusal.REPLAY


def test_a_forged_number_does_not_move_the_window() -> None:
    one, other = sessions()
    datagram = one.seal(b"x")
    forged = datagram[:5] + b"\xff" * 8 + datagram[13:]
    assert other.open(forged) is Refusal.NOT_SEALED
    assert other.open(datagram) == b"x"


@pytest.mark.parametrize("size", [0, 5, 13, 28])
def test_what_is_too_short_is_refused(size: int) -> None:
    assert sessions()[1].open(os.urandom(size)) is Refusal.MALFORMED
