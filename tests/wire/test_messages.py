from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.wire import Refusal
from bristle.wire.kinds import Kind
from bristle.wire.messages import (
    MOST_CALLED,
    MOST_LOCAL,
    MOST_PEERS,
    Acknowledgement,
    CallRequest,
    Forward,
    Forwarded,
    Leave,
    Meet,
    Message,
    Peers,
    Piece,
    Scope,
    SignedManifest,
    decode,
    decode_address,
    encode,
    encode_address,
    is_loopback,
    may_hand_on,
    scope_of,
)
from bristle.wire.sizes import ACKNOWLEDGEMENT, ENVELOPE, PIECE_HEADER, SEAL

u64, u32, u16 = (st.integers(0, 2**bits - 1) for bits in (64, 32, 16))
addresses = st.tuples(st.ip_addresses().map(str), u16)
key_ids, circuits = st.binary(min_size=20, max_size=20), st.binary(min_size=4, max_size=4)
messages = st.one_of(
    st.builds(Piece, u64, u32, u16, st.binary(min_size=1, max_size=100)),
    st.builds(Acknowledgement, u64, u32, u16, st.integers(0, 2**1024 - 1)),
    st.builds(
        SignedManifest,
        st.integers(0, 2**32 - 1),
        st.integers(512, 8192),
        st.binary(min_size=1, max_size=100),
        u64,
        st.integers(50, 2**32 - 1),
        st.binary(max_size=50),
        st.sampled_from(Kind),
    ),
    st.builds(
        Peers,
        u64,
        st.lists(st.tuples(key_ids, addresses), max_size=MOST_PEERS).map(tuple),
        st.lists(addresses, max_size=MOST_LOCAL).map(tuple),
    ),
    st.just(Leave()),
    st.builds(Meet, key_ids),
    st.builds(CallRequest, key_ids, circuits, st.lists(addresses, max_size=MOST_CALLED).map(tuple)),
    st.builds(Forward, circuits, st.binary(min_size=1, max_size=100)),
    st.builds(Forwarded, circuits, st.binary(max_size=100)),
)


@given(messages)
def test_what_is_encoded_is_decoded(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages, st.integers(1, 40))
def test_what_is_cut_off_is_refused_or_shorter(message: Message, cut: int) -> None:
    heard = decode(encode(message)[:-cut])
    assert isinstance(heard, Refusal) or not isinstance(heard, Peers | Meet | CallRequest)


@given(st.binary(max_size=1300))
def test_any_bytes_are_a_message_or_a_reason(data: bytes) -> None:
    heard = decode(data)
    assert heard is Refusal.MALFORMED or (not isinstance(heard, Refusal) and decode(encode(heard)) == heard)


def test_sizes_are_what_the_size_function_says() -> None:
    assert len(encode(Piece(1, 1, 2, b"x"))) == PIECE_HEADER + 1
    assert len(encode(Acknowledgement(1, 1, 2))) == ACKNOWLEDGEMENT
    assert len(encode(SignedManifest(1, 1000, b"x"))) == ENVELOPE + 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x0a",
        b"\x05x",
        encode(Piece(1, 1, 2, b"")),
        encode(SignedManifest(1, 511, b"x")),
        encode(SignedManifest(1, 8193, b"x")),
        encode(SignedManifest(1, 1000, b"x"))[:-1],
        encode(SignedManifest(1, 1000, b"x", size=1, start=b"xy")),
        encode(Acknowledgement(1, 1, 2)) + bytes(129),
        encode(Peers(1)) + b"x",
        encode(Peers(1, ((bytes(20), ("127.0.0.1", 5)),) * (MOST_PEERS + 1))),
        encode(Peers(1, local=(("10.0.0.1", 5),) * (MOST_LOCAL + 1))),
        encode(Peers(1, local=(("10.0.0.1", 5),)))[:-1],
        encode(Meet(bytes(20)))[:-1],
        encode(Meet(bytes(20))) + b"x",
        encode(CallRequest(bytes(20)))[:-1],
        encode(CallRequest(bytes(20))) + b"x",
        encode(CallRequest(bytes(20), addresses=(("10.0.0.1", 5),)))[:-1],
        encode(CallRequest(bytes(20), addresses=(("10.0.0.1", 5),) * (MOST_CALLED + 1))),
        encode(Forward(bytes(4), b"")),
        encode(Forwarded(bytes(4)))[:-1],
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    assert decode(data) is Refusal.MALFORMED


@given(addresses)
def test_addresses_as_bytes(address: tuple[str, int]) -> None:
    data = encode_address(address)
    assert decode_address(b"xx" + data + b"y", 2) == (address, 2 + len(data))
    assert decode_address(data[:-1], 0) is None
    assert decode_address(b"\x05" + data, 0) is None
    assert decode_address(b"", 0) is None


@pytest.mark.parametrize(
    ("address", "to", "fit"),
    [
        (("192.0.2.1", 5), ("192.0.2.2", 5), True),
        (("127.0.0.1", 5), ("127.0.0.1", 6), True),
        (("192.0.2.1", 5), ("127.0.0.1", 6), True),
        (("127.0.0.1", 5), ("192.0.2.2", 5), False),
        (("::1", 5), ("2001:db8::1", 5), False),
        (("2001:db8::2", 5), ("2001:db8::1", 5), True),
        (("2001:db8::2", 5), ("192.0.2.2", 5), False),
        (("224.0.0.1", 5), ("192.0.2.2", 5), False),
        (("ff02::1", 5), ("2001:db8::1", 5), False),
        (("0.0.0.0", 5), ("192.0.2.2", 5), False),
        (("255.255.255.255", 5), ("192.0.2.2", 5), False),
        (("192.0.2.1", 0), ("192.0.2.2", 5), False),
        (("10.0.0.1", 5), ("192.0.2.2", 5), False),
        (("10.0.0.1", 5), ("192.168.0.1", 5), True),
        (("10.0.0.1", 5), ("127.0.0.1", 5), True),
        (("192.0.2.1", 5), ("10.0.0.1", 5), True),
        (("fd00::1", 5), ("2001:db8::1", 5), False),
        (("fe80::1", 5), ("fd00::1", 5), True),
    ],
)
def test_which_addresses_mean_something_to_a_neighbour(
    address: tuple[str, int], to: tuple[str, int], fit: bool
) -> None:
    assert may_hand_on(address, to) is fit


def test_an_answer_to_a_request_to_meet_is_not_longer_than_that() -> None:
    longest = tuple((f"2001:db8::{number}", 7700) for number in range(MOST_CALLED))
    calls = 2 * (SEAL + len(encode(CallRequest(bytes(20), bytes(4), longest))))
    assert SEAL + len(encode(Meet(bytes(20)))) == calls


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("127.0.0.1", Scope.MACHINE),
        ("::1", Scope.MACHINE),
        ("10.9.8.7", Scope.SITE),
        ("172.31.0.1", Scope.SITE),
        ("172.32.0.1", Scope.WORLD),
        ("192.168.1.1", Scope.SITE),
        ("100.64.0.1", Scope.SITE),
        ("169.254.1.1", Scope.SITE),
        ("fe80::1", Scope.SITE),
        ("fd12::1", Scope.SITE),
        ("198.51.100.1", Scope.WORLD),
        ("2001:db8::1", Scope.WORLD),
    ],
)
def test_from_where_an_address_means_the_same(host: str, scope: Scope) -> None:
    assert scope_of((host, 1)) is scope


def test_loopback() -> None:
    assert is_loopback(("127.3.2.1", 1))
    assert is_loopback(("::1", 1))
    assert not is_loopback(("192.0.2.1", 1))
