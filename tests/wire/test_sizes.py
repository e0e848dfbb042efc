from __future__ import annotations

import pytest

from bristle.wire.sizes import (
    DATAGRAM,
    LARGEST_DATAGRAM,
    Encoding,
    chunk_bytes,
    chunk_count,
    claims_bytes,
    head_bytes,
    manifest_bytes,
    piece_bytes,
    raw_bytes,
)


def test_a_head_is_its_floats_and_what_goes_around_them() -> None:
    pieces = -(-32_000 // 1188)
    assert head_bytes(10, 800) == 32_000 + 44 * pieces + (152 + 8 * 16 + 36) + 44 * 2
    # A body that fills its pieces, and one value more.
    full = piece_bytes() // 4
    assert head_bytes(1, full + 1) == head_bytes(1, full) + 4 + 44


def test_a_head_compressed_as_heads_are_is_within_the_budget() -> None:
    assert head_bytes(10, 800, body=27_600) <= 33_000
    assert head_bytes(10, 800, encoding="int8") <= 9_000


@pytest.mark.parametrize(("encoding", "size"), [("float32", 32_000), ("float16", 16_000), ("int8", 8_040)])
def test_bytes_before_compression(encoding: Encoding, size: int) -> None:
    assert raw_bytes(10, 800, encoding) == size


@pytest.mark.parametrize("body", [1, 4096, 4097, 32_000, 32 * 4096, 32 * 4096 + 1, 10_000_000])
def test_chunks_cover_a_body_and_are_never_too_many_for_a_manifest(body: int) -> None:
    assert 1 <= chunk_count(body) <= 32
    assert (chunk_count(body) - 1) * chunk_bytes(body) < body <= chunk_count(body) * chunk_bytes(body)
    assert manifest_bytes(body, claims_bytes(1000)) < DATAGRAM


def test_larger_datagrams_take_fewer_bytes() -> None:
    assert head_bytes(10, 800, datagram=LARGEST_DATAGRAM) < head_bytes(10, 800)
    assert head_bytes(10, 800, claims=True) == head_bytes(10, 800) + 4 + 2
