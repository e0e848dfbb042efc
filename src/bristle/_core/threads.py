"""Threads for work on large NumPy arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache
from threading import Thread

# More would wait for memory.
MOST = 4
# Parts of the work for each thread.
PARTS = 4


@lru_cache(maxsize=1)
def threads() -> int:
    """Return the number of worker threads: OMP_NUM_THREADS where that is set, as other libraries do; else the cores."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdecimal() and int(named):
        return min(MOST, int(named))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST, cores or 1)


def in_threads(work: Callable[[int, int], None], count: int) -> None:
    """Call work(start, stop) for parts of range(count), side by side; what one raises is raised once all have ended.

    The work should be a few long calls that leave the interpreter's lock alone. There are more parts than threads, so
    that one whose core is busy otherwise does fewer of them. Threads are started anew each time: an idle pool would not
    survive a fork, and starting one takes a tenth or two of a millisecond.
    """
    workers = max(1, min(threads(), count))
    parts = min(PARTS * workers, count) if workers > 1 else 1
    bounds = iter([(count * part // parts, count * (part + 1) // parts) for part in range(parts)] or [(0, 0)])
    failures: list[BaseException] = []

    def worker() -> None:
        try:
            for start, stop in bounds:  # Each pair goes to one thread alone.
                work(start, stop)
        except BaseException as failure:  # Raised again below, in the caller's thread.
            failures.append(failure)

    # What the caller has set for its thread, such as which warnings of NumPy are ignored, holds for the others too.
    helpers = [Thread(target=copy_context().run, args=(worker,)) for _ in range(workers - 1)]
    for thread in helpers:
        thread.start()
    worker()
    for thread in helpers:
        thread.join()
    if failures:
        raise failures[0]
