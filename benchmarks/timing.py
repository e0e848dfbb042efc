"""Fair timing on a noisy machine: contenders take turns, and the median of many calls counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

CALLS = 5
SLOW = 0.1  # seconds after which one call a turn is enough
# Worker threads of one library spin for a while after a call, and would slow down whoever comes next.
REST = 0.02


def take_turns(
    contenders: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 1.0,
    least: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median time of each contender in milliseconds.

    In a turn a contender rests, makes one call that does not count, and then a few that do. There are turns for
    about `seconds` for each, and at least `least`. With `clock=time.process_time` it is processor time, which other
    work on the machine disturbs less; for work in one thread that is what a free machine takes.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    started, turns = time.perf_counter(), 0
    while turns < least or time.perf_counter() - started < seconds * len(contenders):
        for name, call in contenders.items():
            time.sleep(REST)
            begin = time.perf_counter()
            call()
            slow = time.perf_counter() - begin > SLOW
            for _ in range(1 if slow else CALLS):
                begin = clock()
                call()
                times[name].append(clock() - begin)
        turns += 1
    return {name: 1e3 * float(np.median(measured)) for name, measured in times.items()}
