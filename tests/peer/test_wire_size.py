from __future__ import annotations

from bristle.simulation.wire_size import OVERHEAD, PAYLOAD, head_bytes


def test_a_head_is_its_floats_and_what_goes_around_them() -> None:
    assert head_bytes(10, 800) == 32_000 + 27 * OVERHEAD
    assert head_bytes(1, PAYLOAD // 4) == PAYLOAD + OVERHEAD
    assert head_bytes(1, PAYLOAD // 4 + 1) == PAYLOAD + 4 + 2 * OVERHEAD
