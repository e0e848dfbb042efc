from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.wire import Group, Identity, Refusal
from bristle.wire.manifest import (
    Manifest,
    ManifestExtension,
    claims_extension,
    decode_manifest,
    digests_of,
    encode_manifest,
    is_signed,
    sequence_of,
)
from bristle.wire.sizes import claims_bytes, manifest_bytes

IDENTITY = Identity.generate()
GROUP = Group(application="a", backbone="b", classes=tuple("0123456789"), features=80)
BODY = bytes(range(256)) * 12 + bytes(128)


def manifest(**changes: Any) -> Manifest:
    plain = Manifest(
        group=GROUP.id,
        author=IDENTITY.key,
        sequence=2**50,
        iteration=7,
        encoding="float32",
        compression=0,
        classes=10,
        features=80,
        body=len(BODY),
        digests=digests_of(BODY),
    )
    return replace(plain, **changes)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.builds(ManifestExtension, st.integers(2, 65_535), st.binary(max_size=60)), max_size=4),
    st.none() | st.lists(st.booleans(), min_size=10, max_size=10),
)
def test_what_is_encoded_is_decoded(
    sequence: int, iteration: int, extensions: list[ManifestExtension], claims: list[bool] | None
) -> None:
    if claims is not None:
        extensions.append(claims_extension(np.array(claims)))
    said = manifest(sequence=sequence, iteration=iteration, extensions=tuple(extensions))
    data = encode_manifest(said, IDENTITY)
    heard = decode_manifest(data, GROUP)
    assert heard == said
    assert is_signed(data, said)
    assert sequence_of(data) == sequence
    found = said.claims()
    assert (None if found is None else found.tolist()) == claims


def test_its_size_is_what_the_size_function_says() -> None:
    plain = encode_manifest(manifest(), IDENTITY)
    assert len(plain) == manifest_bytes(len(BODY))
    claiming = encode_manifest(manifest(extensions=(claims_extension(np.ones(10, np.bool_)),)), IDENTITY)
    assert len(claiming) == manifest_bytes(len(BODY), claims_bytes(10))


@settings(max_examples=300)
@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_signature_covers_every_bit(place: int, bit: int) -> None:
    data = bytearray(encode_manifest(manifest(extensions=(ManifestExtension(99, b"unknown"),)), IDENTITY))
    data[place % len(data)] ^= 1 << bit
    heard = decode_manifest(bytes(data), GROUP)
    assert isinstance(heard, Refusal) or not is_signed(bytes(data), heard)


@given(st.binary(max_size=1300))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(decode_manifest(data, GROUP), Refusal)


@given(st.binary(max_size=300))
def test_any_bytes_after_an_honest_beginning_are_refused_or_read(tail: bytes) -> None:
    heard = decode_manifest(encode_manifest(manifest(), IDENTITY)[:92] + tail, GROUP)
    assert heard is Refusal.MALFORMED or isinstance(heard, Manifest)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"group": bytes(20)}, Refusal.WRONG_GROUP),
        ({"classes": 11}, Refusal.WRONG_SHAPE),
        ({"features": 2**32 - 1}, Refusal.WRONG_SHAPE),
        ({"compression": 2}, Refusal.MALFORMED),
        ({"body": 3201}, Refusal.OVERSIZE),
        ({"body": 2**32 - 1}, Refusal.OVERSIZE),
        ({"body": 0}, Refusal.MALFORMED),
        ({"digests": ()}, Refusal.MALFORMED),
        ({"digests": (bytes(16),) * 2}, Refusal.MALFORMED),
        ({"extensions": (ManifestExtension(1, b"\xff"),)}, Refusal.MALFORMED),
        ({"extensions": (ManifestExtension(1, b"\xff\xff"),)}, Refusal.MALFORMED),
        ({"extensions": (ManifestExtension(1, b"\xff\x03"),) * 2}, Refusal.MALFORMED),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], refusal: Refusal) -> None:
    assert decode_manifest(encode_manifest(manifest(**changes), IDENTITY), GROUP) is refusal


@pytest.mark.parametrize(("place", "value"), [(1, 2), (2, 0), (2, 4), (3, 2), (87, 1), (87, 3)])
def test_fields_with_no_meaning_are_refused(place: int, value: int) -> None:
    data = bytearray(encode_manifest(manifest(), IDENTITY))
    data[place] = value
    assert decode_manifest(bytes(data), GROUP) is Refusal.MALFORMED


def test_a_signature_is_its_senders() -> None:
    other = Identity.generate()
    data = encode_manifest(manifest(), other)
    heard = decode_manifest(data, GROUP)
    assert isinstance(heard, Manifest)
    assert not is_signed(data, heard)
    assert is_signed(data, replace(heard, author=other.key))


def test_a_body_is_checked_chunk_by_chunk() -> None:
    body = bytes(10_000)
    assert len(digests_of(body)) == 3
    assert manifest(body=10_000, digests=digests_of(body)).matches(body)
    assert not manifest(body=10_000, digests=digests_of(body)).matches(body[:-1] + b"x")
    assert not manifest(body=10_000, digests=digests_of(body)).matches(body[:-1])


def test_too_many_classes_for_claims_are_named() -> None:
    with pytest.raises(ValueError, match="too many for claims"):
        encode_manifest(manifest(classes=10_000, extensions=(claims_extension(np.ones(10_000, np.bool_)),)), IDENTITY)
