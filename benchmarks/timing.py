"""Fair timing on a noisy machine: contenders take turns, and the median of many turns counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np


def take_turns(
    contenders: Mapping[str, Callable[[], object]], *, seconds: float = 1.0, least: int = 5
) -> dict[str, float]:
    """Return the median time of each contender in milliseconds, called in turn for about `seconds` each."""
    for call in contenders.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    started = time.perf_counter()
    while len(next(iter(times.values()))) < least or time.perf_counter() - started < seconds * len(contenders):
        for name, call in contenders.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: 1e3 * float(np.median(measured)) for name, measured in times.items()}
