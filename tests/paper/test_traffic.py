"""Bytes by the wire's own size function."""

from __future__ import annotations

from bristle.paper.measured import HEAD, WHOLE, bytes_per_iteration
from bristle.wire.sizes import head_bytes


def test_head_and_network_have_the_sizes_of_the_paper() -> None:
    assert HEAD == (10, 800)
    assert WHOLE == (1, 20_750)
    assert bytes_per_iteration(HEAD, 1) == head_bytes(10, 800)


def test_every_neighbour_gets_a_copy() -> None:
    assert bytes_per_iteration(WHOLE, 14) == 14 * bytes_per_iteration(WHOLE, 1)
