"""Times are the shortest of several runs; long runs are repeated less."""

from __future__ import annotations

import time

from bristle.paper.work import LEAST_REPEATS, REPEATS, _milliseconds


def test_long_work_is_repeated_less() -> None:
    calls: list[float] = []

    def long() -> None:
        calls.append(0.0)
        time.sleep(0.05)

    assert _milliseconds(lambda: calls.append(0.0)) < 10
    assert len(calls) == REPEATS
    calls.clear()
    assert _milliseconds(long) >= 49
    assert len(calls) == LEAST_REPEATS
