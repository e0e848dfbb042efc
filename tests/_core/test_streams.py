from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bristle._core.rng import Stream, draw, draw_many, pick_distinct


def test_streams_do_not_repeat_each_other() -> None:
    drawn = [draw(0, stream, np.arange(4), t, 3).tobytes() for stream in Stream for t in range(1, 6)]
    many = [
        draw_many(seed, stream, np.arange(4), t, 3).tobytes() for seed in (0, 1) for stream in Stream for t in (1, 2)
    ]
    assert len({*drawn, *many}) == len(drawn) + len(many)


def test_many_draws_of_a_row_depend_on_nothing_but_its_key() -> None:
    together = draw_many(7, Stream.ATTACK, [3, 5, 9], 4, 2_000)
    np.testing.assert_array_equal(together[1:2], draw_many(7, Stream.ATTACK, [5], 4, 2_000))
    assert ((together >= 0) & (together < 1)).all()
    assert abs(together.mean() - 0.5) < 0.02


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 9))
def test_picks_are_distinct_and_in_range(among: int, more: int, seed: int) -> None:
    count = max(0, among - more)
    picked = pick_distinct(draw(seed, Stream.TOPOLOGY, np.arange(50), 0, count), among)
    assert picked.shape == (50, count)
    assert all(len(set(row)) == count for row in picked)
    assert ((picked >= 0) & (picked < among)).all()


def test_every_subset_is_as_likely_as_any_other() -> None:
    picked = pick_distinct(draw(0, Stream.TOPOLOGY, np.arange(30_000), 0, 2), 4)
    _, counts = np.unique(picked, axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts / 5000 - 1).max() < 0.05
