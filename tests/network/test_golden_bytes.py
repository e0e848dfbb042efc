"""What goes over the wire, byte for byte: a peer of another release, or in another language, must find just these."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from bristle.p2p import Limits
from bristle.wire import Group, Identity, Refusal
from bristle.wire.encoding import PLAIN, ZLIB, decode_head, encode_head, largest_body
from bristle.wire.identity import verify
from bristle.wire.manifest import Extension, Manifest, claims_extension, decode_manifest, encode_manifest, is_signed
from bristle.wire.messages import (
    MOST_UNITS,
    STOP,
    Acknowledgement,
    Leave,
    Message,
    Peers,
    Piece,
    SignedManifest,
    decode,
    encode,
)
from bristle.wire.sizes import Encoding

IDENTITY = Identity.generate()
GROUP = Group(application="a", backbone="b", classes=tuple("0123456789"), features=80)
BODY = bytes(3200)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (SignedManifest(1, 1000, b"signed"), "01 00000001 03e8" + b"signed".hex()),
        (Piece(0x0102030405060708, 9, 10, b"data"), "02 0102030405060708 00000009 000a" + b"data".hex()),
        (Acknowledgement(1, 2, 3), "03 0000000000000001 00000002 0003"),
        (Acknowledgement(1, 2, 3, 0b10_0000_0001), "03 0000000000000001 00000002 0003 01 02"),
        (Peers(7), "04 0000000000000007 00"),
        (
            Peers(7, ((b"\x55" * 20, ("192.0.2.1", 7700)), (b"\x66" * 20, ("::1", 1)))),
            f"04 0000000000000007 02 {'55' * 20} 04 c0000201 1e14 {'66' * 20} 06 {'00' * 15}01 0001",
        ),
        (Leave(), "05"),
    ],
)
def test_messages(message: Message, expected: str) -> None:
    assert encode(message) == bytes.fromhex(expected)
    assert decode(bytes.fromhex(expected)) == message


def test_a_bitmap_has_128_bytes_at_most_and_what_is_beyond_is_left_out() -> None:
    whole = encode(Acknowledgement(1, 2, 3, (1 << 1032) - 1))
    assert whole == encode(Acknowledgement(1, 2, 3, (1 << 1024) - 1))
    assert len(whole) == 15 + 128
    assert decode(whole) == Acknowledgement(1, 2, 3, (1 << 1024) - 1)
    assert (STOP, MOST_UNITS) == (65_535, 65_534)


@pytest.mark.parametrize(
    ("encoding", "head", "expected"),
    [
        ("float32", [[1, 2], [3, 4]], "00000000 00000000 80004080 3f404040"),
        ("float16", [[1, 2], [3, 4]], "00000000 3c404244"),
        ("int8", [[127, -127], [0, 254]], "0000803f 00000040 7f81 007f"),
    ],
)
def test_heads(encoding: Encoding, head: list[list[float]], expected: str) -> None:
    values = np.array(head, np.float32)
    body = bytes.fromhex(expected)
    assert encode_head(values, encoding=encoding, compress=False) == body
    decoded = decode_head(body, shape=(2, 2), encoding=encoding, compression=PLAIN)
    np.testing.assert_array_equal(decoded, values)


def test_how_much_a_body_may_be_longer_for_compression() -> None:
    assert largest_body((2, 2), "float32", PLAIN) == 16
    assert largest_body((2, 2), "float32", ZLIB) == 16 + 64
    assert largest_body((10, 800), "float32", ZLIB) == 32_000 + 31 + 64


def manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "group": GROUP.id, "sender": IDENTITY.key_id, "sequence": 5, "iteration": 7, "encoding": "float32",
        "compression": 0, "classes": 10, "features": 80, "body": len(BODY),
        "digests": (blake2b(BODY, digest_size=16).digest(),),
    }  # fmt: skip
    return Manifest(**values | changes)


def test_a_manifest_and_what_is_signed_of_it() -> None:
    claims = np.array([True, False, False, False, True, False, False, False, False, True])
    said = manifest(extensions=(claims_extension(claims), Extension(300, b"xyz")))
    data = encode_manifest(said, IDENTITY)
    content = (
        bytes([1, 1, 0, 0])
        + GROUP.id
        + IDENTITY.key_id
        + struct.pack(">QIIIIIHH", 5, 7, 10, 80, 3200, 4096, 1, 6 + 7)
        + blake2b(BODY, digest_size=16).digest()
        + bytes.fromhex("0001 0002 11 02")
        + bytes.fromhex("012c 0003")
        + b"xyz"
    )
    assert data[:-64] == content
    assert verify(IDENTITY.key, data[-64:], b"bristle manifest\x00" + content)
    assert decode_manifest(data, GROUP) == said
    assert said.shape == (10, 80)
    for code, encoding in ((1, "float32"), (2, "float16"), (3, "int8")):
        smaller = manifest(encoding=encoding, body=100, digests=(bytes(16),))
        assert encode_manifest(smaller, IDENTITY)[1] == code


def test_a_manifest_has_1150_bytes_at_most() -> None:
    room = 1150 - len(encode_manifest(manifest(), IDENTITY)) - 4
    largest = manifest(extensions=(Extension(9, bytes(room)),))
    data = encode_manifest(largest, IDENTITY)
    assert len(data) == 1150
    assert decode_manifest(data, GROUP) == largest
    with pytest.raises(ValueError, match="at most 1150 bytes, not 1151"):
        encode_manifest(manifest(extensions=(Extension(9, bytes(room + 1)),)), IDENTITY)
    assert decode_manifest(data + b"x", GROUP) is Refusal.MALFORMED


def test_the_smallest_body_and_empty_extensions_are_fine() -> None:
    said = manifest(compression=1, body=1, digests=(bytes(16),), extensions=(Extension(2, b""), Extension(3, b"")))
    assert decode_manifest(encode_manifest(said, IDENTITY), GROUP) == said


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_extensions_that_end_too_early_are_refused(cut: int) -> None:
    data = bytearray(encode_manifest(manifest(extensions=(Extension(9, b""), Extension(9, b"abc"))), IDENTITY))
    extended = struct.unpack_from(">H", data, 74)[0]
    shorter = bytes(data[:74]) + struct.pack(">H", extended - cut) + bytes(data[76 : -64 - cut]) + bytes(64)
    assert decode_manifest(shorter, GROUP) is Refusal.MALFORMED


def test_chunks_are_32_at_most() -> None:
    wide = Group(application="a", backbone="b", classes=("0", "1"), features=20_000)
    body = bytes(160_000)
    said = manifest(group=wide.id, classes=2, features=20_000, body=len(body), digests=(bytes(16),) * 32)
    data = encode_manifest(said, IDENTITY)
    assert struct.unpack_from(">IH", data, 68) == (5000, 32)
    assert decode_manifest(data, wide) == said


@pytest.mark.parametrize(("name", "value"), [("iteration", 2**32), ("iteration", -1), ("body", 2**32), ("body", -1)])
def test_numbers_that_do_not_fit_their_field_are_named(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be from 0 to 4294967295, not {value}"):
        encode_manifest(manifest(**{name: value}), IDENTITY)
    for fits in (0, 2**32 - 1):
        assert encode_manifest(manifest(iteration=fits), IDENTITY)


def test_a_signature_by_another_key_or_for_another_sender_is_none() -> None:
    data = encode_manifest(manifest(), IDENTITY)
    assert is_signed(data, manifest(), IDENTITY.key)
    assert not is_signed(data, manifest(sender=bytes(20)), IDENTITY.key)
    assert not is_signed(data[:-1] + bytes([data[-1] ^ 1]), manifest(), IDENTITY.key)


@pytest.mark.parametrize("size", [1200, 8192])
def test_the_smallest_and_the_largest_datagram_are_fine(size: int) -> None:
    assert Limits(datagram=size, loopback_datagram=size).datagram == size
    for wrong in (1199, 8193):
        with pytest.raises(ValueError, match="from 1200 to 8192"):
            Limits(loopback_datagram=wrong)
