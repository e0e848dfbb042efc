"""What goes over the wire, byte for byte: a peer of another release, or in another language, must find just these."""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bristle.p2p import Limits
from bristle.p2p.beacon import decode_beacon, encode_beacon
from bristle.wire import Group, Identity, Refusal, handshake
from bristle.wire.encoding import PLAIN
from bristle.wire.grid import GridHead, decode_grid, encode_grid, largest_grid_body, on_grid
from bristle.wire.handshake import Caller, Cookie, CookieJar, Hello, Join, Welcome, answer_join, check_join
from bristle.wire.identity import verify
from bristle.wire.manifest import (
    Manifest,
    ManifestExtension,
    claims_extension,
    decode_manifest,
    digests_of,
    encode_manifest,
    is_signed,
)
from bristle.wire.messages import (
    FULL,
    KEPT,
    MOST_UNITS,
    STOP,
    Acknowledgement,
    CallRequest,
    Forward,
    Forwarded,
    Leave,
    Meet,
    Message,
    Peers,
    Piece,
    SignedManifest,
    decode,
    encode,
    transfer_of,
)
from bristle.wire.session import Session

IDENTITY = Identity.generate()
GROUP = Group(application="a", backbone="b", classes=tuple("0123456789"), features=80)
BODY = bytes(1610)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            SignedManifest(1, 1000, b"signed", 5, 9, b"body"),
            f"01 00000001 03e8 0000000000000005 00000009 0006 {b'signedbody'.hex()}",
        ),
        (Piece(0x0102030405060708, 9, 10, b"data"), "02 0102030405060708 00000009 000a" + b"data".hex()),
        (Acknowledgement(1, 2, 3), "03 0000000000000001 00000002 0003"),
        (Acknowledgement(1, 2, 3, 0b10_0000_0001), "03 0000000000000001 00000002 0003 01 02"),
        (Peers(7), "04 0000000000000007 00 00"),
        (
            Peers(7, ((b"\x55" * 20, ("192.0.2.1", 7700)), (b"\x66" * 20, ("::1", 1)))),
            f"04 0000000000000007 00 02 {'55' * 20} 04 c0000201 1e14 {'66' * 20} 06 {'00' * 15}01 0001",
        ),
        (
            Peers(7, ((b"\x55" * 20, ("192.0.2.1", 7700)),), (("192.168.1.2", 7700),)),
            f"04 0000000000000007 01 01 04 c0a80102 1e14 {'55' * 20} 04 c0000201 1e14",
        ),
        (Leave(), "05"),
        (Meet(b"\x55" * 20), f"06 {'55' * 20} {'00' * 174}"),
        (CallRequest(b"\x55" * 20), f"07 {'55' * 20} 00000000 00"),
        (
            CallRequest(b"\x55" * 20, b"\x01\x02\x03\x04", (("192.0.2.1", 7700), ("192.168.1.2", 7700))),
            f"07 {'55' * 20} 01020304 02 04 c0000201 1e14 04 c0a80102 1e14",
        ),
        (Forward(b"\x01\x02\x03\x04", b"data"), "08 01020304" + b"data".hex()),
        (Forwarded(b"\x01\x02\x03\x04", b"data"), "09 01020304" + b"data".hex()),
        (Forwarded(b"\x01\x02\x03\x04"), "09 01020304"),
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
    assert (STOP, KEPT, FULL, MOST_UNITS) == (65_535, 65_534, 65_533, 65_532)
    assert (transfer_of(5, 3), transfer_of(5, 0)) == (10, 11)


def test_a_head_in_full_and_a_difference_from_it() -> None:
    first = on_grid(np.array([[1, -2, 0, 4], [0.5, 0, 0, 100]]))
    # Steps of 2^-3 and 2.
    assert first.content() == bytes.fromhex("fd 01 0800 f0ff 0000 2000 0000 0000 0000 3200")
    full = bytes.fromhex("01 7d 81 87 6f 7f 9f 7f 7f 7f b1")
    assert zlib.decompress(encode_grid(first, None), wbits=-15) == full
    second = on_grid(np.array([[1.125, -2, 0.125, 3.5], [0.5, 0, 0, 100]]), first)
    # Steps of 2^-3 and 2^-2: the second row, whose 0.5 was rounded away, is foreseen as 0, 0, 0, 400.
    assert second.content() == bytes.fromhex("fd fe 0900 f0ff 0100 1c00 0200 0000 0000 9001")
    difference = bytes.fromhex("02 7d 7e 7f 7b 8e 70")
    assert zlib.decompress(encode_grid(second, first), wbits=-15) == difference
    for body, base, expected in ((full, None, first), (difference, first, second)):
        deflater = zlib.compressobj(wbits=-15)
        decoded = decode_grid(deflater.compress(body) + deflater.flush(), shape=(2, 4), base=base)
        assert isinstance(decoded, GridHead)
        assert decoded.content() == expected.content()


def test_how_long_a_head_may_be() -> None:
    assert largest_grid_body((2, 2)) == 1 + 2 + 12 + 64
    assert largest_grid_body((10, 800)) == 24_011 + 23 + 64


def manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "group": GROUP.id, "author": IDENTITY.key, "sequence": 5, "iteration": 7, "encoding": "grid",
        "compression": 0, "classes": 10, "features": 80, "body": len(BODY),
        "digests": (blake2b(BODY, digest_size=16).digest(),),
    }  # fmt: skip
    return Manifest(**values | changes)


def test_a_manifest_and_what_is_signed_of_it() -> None:
    claims = np.array([True, False, False, False, True, False, False, False, False, True])
    said = manifest(extensions=(claims_extension(claims), ManifestExtension(300, b"xyz")))
    data = encode_manifest(said, IDENTITY)
    content = (
        bytes([2, 0, 3, 0])
        + GROUP.id
        + IDENTITY.key
        + struct.pack(">QIIIIHIH", 5, 0, 7, 10, 80, 0, 1610, 6 + 7)
        + blake2b(BODY, digest_size=16).digest()
        + bytes.fromhex("0001 0002 11 02")
        + bytes.fromhex("012c 0003")
        + b"xyz"
    )
    assert data[:-64] == content
    assert verify(IDENTITY.key, data[-64:], b"bristle 2 manifest\x00" + content)
    assert decode_manifest(data, GROUP) == said
    assert said.shape == (10, 80)
    for code, encoding in ((1, "float32"), (2, "float16"), (3, "grid"), (4, "int8")):
        smaller = manifest(encoding=encoding, body=100, digests=(bytes(16),))
        assert encode_manifest(smaller, IDENTITY)[2] == code


def test_a_manifest_has_1150_bytes_at_most() -> None:
    room = 1150 - len(encode_manifest(manifest(), IDENTITY)) - 4
    largest = manifest(extensions=(ManifestExtension(9, bytes(room)),))
    data = encode_manifest(largest, IDENTITY)
    assert len(data) == 1150
    assert decode_manifest(data, GROUP) == largest
    with pytest.raises(ValueError, match="at most 1150 bytes, not 1151"):
        encode_manifest(manifest(extensions=(ManifestExtension(9, bytes(room + 1)),)), IDENTITY)
    assert decode_manifest(data + b"x", GROUP) is Refusal.MALFORMED


def test_the_smallest_body_and_empty_extensions_are_fine() -> None:
    said = manifest(body=1, digests=(bytes(16),), extensions=(ManifestExtension(2, b""), ManifestExtension(3, b"")))
    assert decode_manifest(encode_manifest(said, IDENTITY), GROUP) == said


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_extensions_that_end_too_early_are_refused(cut: int) -> None:
    data = bytearray(
        encode_manifest(manifest(extensions=(ManifestExtension(9, b""), ManifestExtension(9, b"abc"))), IDENTITY)
    )
    extended = struct.unpack_from(">H", data, 86)[0]
    shorter = bytes(data[:86]) + struct.pack(">H", extended - cut) + bytes(data[88 : -64 - cut]) + bytes(64)
    assert decode_manifest(shorter, GROUP) is Refusal.MALFORMED


def test_chunks_are_16_at_most() -> None:
    wide = Group(application="a", backbone="b", classes=("0", "1"), features=40_000)
    body = bytes(160_000)
    said = manifest(group=wide.id, classes=2, features=40_000, body=len(body), digests=(bytes(16),) * 16)
    data = encode_manifest(said, IDENTITY)
    assert len(data) == 88 + 16 * 16 + 64
    assert decode_manifest(data, wide) == said


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in ("expires", "iteration", "body") for value in (2**32, -1)]
)
def test_numbers_that_do_not_fit_their_field_are_named(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be from 0 to 4294967295, not {value}"):
        encode_manifest(manifest(**{name: value}), IDENTITY)
    for fits in (0, 2**32 - 1):
        assert encode_manifest(manifest(iteration=fits), IDENTITY)


def test_a_signature_by_another_key_or_for_another_sender_is_none() -> None:
    data = encode_manifest(manifest(), IDENTITY)
    assert is_signed(data, manifest())
    assert not is_signed(data, manifest(author=Identity.generate().key))
    assert not is_signed(data[:-1] + bytes([data[-1] ^ 1]), manifest())


@pytest.mark.parametrize("size", [1220, 8192])
def test_the_smallest_and_the_largest_datagram_are_fine(size: int) -> None:
    assert Limits(datagram=size, loopback_datagram=size).datagram == size
    for wrong in (1219, 8193):
        with pytest.raises(ValueError, match="from 1220 to 8192"):
            Limits(loopback_datagram=wrong)


# From here on all keys, nonces and secrets are fixed, so that whole datagrams can be compared, signatures included.


def secret_of(first: int) -> bytes:
    return bytes(range(first, first + 32))


CALLER, CALLED = Identity(secret_of(0)), Identity(secret_of(64))
OPEN = Group(application="digits", backbone="b", classes=("zero", "one"), features=8)
CLOSED = Group(application="digits", backbone="b", classes=("zero", "one"), features=8, secret=b"sixteen bytes or more")
PREFIX = "6272" + "dae32bf9841aa1838abd1143021fb6863186380f"
NONCE = "000102030405060708090a0b0c0d0e0f"
COOKIE = "b6d1e072b146550718bc51563fbaca85"
CALLER_KEY = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
CALLED_KEY = "2543b92ff1095511476adc8369db6ddc933665a11978dda1404ee1066ca9559d"
JOIN = (
    f"{PREFIX} 03 02 01 {COOKIE} {NONCE} {CALLER_KEY}"
    "7d9c24316539825c1896e57f28197746793ce60cbee3ad47da9d07b85fa55e2a"
    f"{b'anne'.hex()} 0b364d3d7fd1a60e5c1cf2a3641e7791"
    "c24eeec5f929da978c825d6054b497c423a640479cd621908f6763e0dd8d7aa2"
    "f71cd3ef7e870c975c4b2626beb93919a8cd7d0c1cc466ce64555310a4544d0e"
)
WELCOME = (
    f"{PREFIX} 04 02 00 {NONCE} {CALLED_KEY}"
    "08264ae690b411d8e3ede40f87192585ea114a082744a776105aac05eab1052e"
    f"{b'bert'.hex()} e72d59941936964c957601cb2d81de96"
    "88d737a2d5f0de57060fde8ddfd517c3d132d47111269a0e802f03e844d9932a"
    "4415e6b693b21c54f6f762882b5b5472f7ba9277e92fbe5d9d7837e276fb1902"
)


def test_an_identity_and_its_signature() -> None:
    assert CALLER.key.hex() == CALLER_KEY
    assert CALLED.key.hex() == CALLED_KEY
    assert CALLER.key_id.hex() == "56475aa75463474c0285df5dbf2bcab73da65135"
    signature = (
        "7bc0ea578290c8dcf6fc8a6e134a7f3e794ddd7e8922108bccd6202f95de532b"
        "92c2298dc8e161ac2b5e3653f92c5b0e12adf26b3d46e7bd2057715f25d3e205"
    )
    assert CALLER.sign(b"message").hex() == signature


def test_group_ids() -> None:
    assert OPEN.id.hex() == "23b8007f1ca57cd5312b96c2f42f5be804bef3fb"
    assert CLOSED.id.hex() == PREFIX[4:]


def test_hello_cookie_join_welcome_and_the_session_they_make(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = [X25519PrivateKey.from_private_bytes(secret_of(first)) for first in (100, 150)]

    class Prepared:
        @staticmethod
        def generate() -> X25519PrivateKey:
            return fresh.pop(0)

    monkeypatch.setattr(handshake, "X25519PrivateKey", Prepared)
    caller = Caller(CALLER, CLOSED, nonce=bytes.fromhex(NONCE), session_id=b"anne")
    hello = caller.hello()
    assert hello == bytes.fromhex(f"{PREFIX} 01 02 {NONCE} {'00' * 24}")
    assert handshake.decode(hello, CLOSED) == Hello(bytes.fromhex(NONCE))

    cookie = CookieJar(bytes(32)).make(("192.0.2.1", 7700), 100.0)
    answer = handshake.encode_cookie(CLOSED, caller.nonce, cookie)
    assert answer == bytes.fromhex(f"{PREFIX} 02 02 {NONCE} {COOKIE}")
    assert handshake.decode(answer, CLOSED) == Cookie(caller.nonce, cookie)

    assert caller.join(cookie, alone=True) == bytes.fromhex(JOIN)
    join = handshake.decode(bytes.fromhex(JOIN), CLOSED)
    assert isinstance(join, Join)
    assert check_join(join, CLOSED) is None

    answered = answer_join(join, CALLED, CLOSED, session_id=b"bert", full=False)
    assert isinstance(answered, tuple)
    theirs, welcome = answered
    assert welcome == bytes.fromhex(WELCOME)
    decoded = handshake.decode(welcome, CLOSED)
    assert isinstance(decoded, Welcome)
    ours = caller.finish(decoded)
    assert isinstance(ours, Session)

    for sender, receiver, message, expected in (
        (ours, theirs, b"hello", f"b5 {b'bert'.hex()} 0000000000000000 ae0d70bdb4552cf57a3bc8a7b7280c27a0db0c6209"),
        (ours, theirs, b"again", f"b5 {b'bert'.hex()} 0000000000000001 223544ca136d00d13735169c61df53f16a6d7370e9"),
        (theirs, ours, b"hello", f"b5 {b'anne'.hex()} 0000000000000000 205210c8fd29cefefea561df475f6bc4b469e728f9"),
    ):
        assert sender.seal(message) == bytes.fromhex(expected)
        assert receiver.open(bytes.fromhex(expected)) == message


def test_a_beacon() -> None:
    beacon = encode_beacon(CLOSED, b"8 bytes.", 7700)
    expected = f"{b'bristle beacon 2'.hex()} {PREFIX[4:]} {b'8 bytes.'.hex()} 1e14 90467a5f6fbec65ceb717cb569d7b70c"
    assert beacon == bytes.fromhex(expected)
    assert decode_beacon(beacon, CLOSED) == (b"8 bytes.", 7700)


def test_a_whole_manifest_with_its_signature() -> None:
    body = bytes(range(34))
    said = Manifest(
        group=CLOSED.id, author=CALLER.key, sequence=1_700_000_000_000, iteration=7, encoding="grid",
        compression=PLAIN, classes=2, features=8, body=len(body), digests=digests_of(body),
        extensions=(claims_extension(np.array([True, False])),),
    )  # fmt: skip
    data = encode_manifest(said, CALLER)
    expected = (
        f"02 00 03 00 {PREFIX[4:]} {CALLER_KEY} 0000018bcfe56800 00000000 00000007 00000002 00000008 0000"
        "00000022 0005 748b1d8443cdcb401ebe56292802ad37 0001 0001 01"
        "921d50ab1075f8e892dbf5ab8a46d94bf76da4caec1bd2aab0de9546ea4f8ab4"
        "ee9caf08f78d44438a8695aebad64be993c17bf1fa0f91b293f2cb980bafd50f"
    )
    assert data == bytes.fromhex(expected)
    assert decode_manifest(data, CLOSED) == said
    assert is_signed(data, said)
