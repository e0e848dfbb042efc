from __future__ import annotations

import pytest

from bristle.wire.sizes import (
    DATAGRAM,
    LARGEST_DATAGRAM,
    chunk_bytes,
    chunk_count,
    claims_bytes,
    grid_bytes,
    head_bytes,
    manifest_bytes,
    piece_bytes,
)


def test_a_head_is_its_floats_and_what_goes_around_them() -> None:
    manifest = 152 + 4 * 16
    pieces = -(-(32_000 - (1232 - 29 - 21 - manifest)) // 1188)
    assert head_bytes(10, 800) == 32_000 + 44 * pieces + (manifest + 29 + 21) + 44 * 2
    # A body that fits beside its manifest, and a byte more.
    beside = 1232 - 29 - 21 - manifest
    assert head_bytes(10, 800, body=beside) == 1232 + 44
    assert head_bytes(10, 800, body=beside + 1) == 1232 + 44 + 1 + 44
    assert head_bytes(10, 800, body=beside + piece_bytes() + 1) == 2 * 1232 + 44 + 1 + 44


def test_a_head_compressed_as_heads_are_is_within_the_budget() -> None:
    assert head_bytes(10, 800, body=1_600) <= 2_000
    assert head_bytes(10, 800, body=6_600) <= 7_500
    assert grid_bytes(10, 800) == 16_010


@pytest.mark.parametrize("body", [1, 4096, 4097, 32_000, 32 * 4096, 32 * 4096 + 1, 10_000_000])
def test_chunks_cover_a_body_and_are_never_too_many_for_a_manifest(body: int) -> None:
    assert 1 <= chunk_count(body) <= 32
    assert (chunk_count(body) - 1) * chunk_bytes(body) < body <= chunk_count(body) * chunk_bytes(body)
    assert manifest_bytes(body, claims_bytes(1000)) < DATAGRAM


def test_larger_datagrams_take_fewer_bytes() -> None:
    assert head_bytes(10, 800, datagram=LARGEST_DATAGRAM) < head_bytes(10, 800)
    assert head_bytes(10, 800, claims=True) == head_bytes(10, 800) + 4 + 2
