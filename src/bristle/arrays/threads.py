"""The processor's other cores, for NumPy work in blocks: it lets go of the interpreter while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_parallel(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Return `[function(item) for item in items]`, computed on as many threads as BLAS would use.

    The blocks are the same on any number of threads, and so are the results, to the bit.
    """
    if len(items) < 2 or workers() == 1:
        return [function(item) for item in items]
    return list(_executor().map(function, items))


def workers() -> int:
    """Return the number of threads: OMP_NUM_THREADS where it is set, like BLAS, else one a core."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() and int(wanted) else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers(), thread_name_prefix="bristle")


# Threads do not survive a fork; a child process that inherited the pool would wait for them for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)
