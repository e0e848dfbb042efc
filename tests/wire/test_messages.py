from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.wire import Refusal
from bristle.wire.kinds import Kind
from bristle.wire.messages import (
    MOST_PEERS,
    Acknowledgement,
    Leave,
    Message,
    Peers,
    Piece,
    SignedManifest,
    decode,
    decode_address,
    encode,
    encode_address,
    is_loopback,
    may_hand_on,
)
from bristle.wire.sizes import ACKNOWLEDGEMENT, ENVELOPE, PIECE_HEADER

u64, u32, u16 = (st.integers(0, 2**bits - 1) for bits in (64, 32, 16))
addresses = st.tuples(st.ip_addresses().map(str), u16)
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
        st.lists(st.tuples(st.binary(min_size=20, max_size=20), addresses), max_size=MOST_PEERS).map(tuple),
    ),
    st.just(Leave()),
)


@given(messages)
def test_what_is_encoded_is_decoded(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages, st.integers(1, 40))
def test_what_is_cut_off_is_refused_or_shorter(message: Message, cut: int) -> None:
    heard = decode(encode(message)[:-cut])
    assert isinstance(heard, Refusal) or not isinstance(heard, Peers)


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
        b"\x06",
        b"\x05x",
        encode(Piece(1, 1, 2, b"")),
        encode(SignedManifest(1, 511, b"x")),
        encode(SignedManifest(1, 8193, b"x")),
        encode(SignedManifest(1, 1000, b"x"))[:-1],
        encode(SignedManifest(1, 1000, b"x", size=1, start=b"xy")),
        encode(Acknowledgement(1, 1, 2)) + bytes(129),
        encode(Peers(1)) + b"x",
        encode(Peers(1, ((bytes(20), ("127.0.0.1", 5)),) * (MOST_PEERS + 1))),
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
    ],
)
def test_which_addresses_mean_something_to_a_neighbour(
    address: tuple[str, int], to: tuple[str, int], fit: bool
) -> None:
    assert may_hand_on(address, to) is fit


def test_loopback() -> None:
    assert is_loopback(("127.3.2.1", 1))
    assert is_loopback(("::1", 1))
    assert not is_loopback(("192.0.2.1", 1))
