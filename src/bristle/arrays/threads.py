"""Work on large NumPy arrays by as many threads as the process may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache
from itertools import pairwise
from threading import Thread

# More would wait for memory.
MOST = 4


@lru_cache(maxsize=1)
def threads() -> int:
    """Return how many threads to work by: OMP_NUM_THREADS where that is set, as other libraries do; else the cores."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdecimal() and int(named):
        return min(MOST, int(named))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST, cores or 1)


def in_threads(work: Callable[[int, int], None], count: int) -> None:
    """Call work(start, stop) for parts of range(count) side by side; what one raises is raised once all have ended.

    The work should be a few long calls that leave the interpreter's lock alone. Threads are started anew each time: an
    idle pool would not survive a fork, and starting one takes less than a tenth of a millisecond.
    """
    parts = max(1, min(threads(), count))
    bounds = [count * part // parts for part in range(parts + 1)]
    failures: list[BaseException] = []

    def helper(start: int, stop: int) -> None:
        try:
            work(start, stop)
        except BaseException as failure:  # Raised again below, in the caller's thread.
            failures.append(failure)

    # What the caller has set for its thread, such as which warnings of NumPy are ignored, holds for the others too.
    helpers = [Thread(target=copy_context().run, args=(helper, *pair)) for pair in pairwise(bounds[1:])]
    for thread in helpers:
        thread.start()
    helper(bounds[0], bounds[1])
    for thread in helpers:
        thread.join()
    if failures:
        raise failures[0]
