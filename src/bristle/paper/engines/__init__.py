"""What engines have in common: tasks in, results out, and word of how far everybody is."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bristle.simulation import FeatureData

ATTEMPTS = 3
"""How often a task is tried before the failure counts."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Heads are small: one thread a process is faster, and sums come out the same to the bit whoever computes them."""

Tick = Callable[[int], None]
Work = Callable[[str, FeatureData, Tick], str]
"""Does a task: (its text, the data, whom to tell the iteration) -> the result as text."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Whom to tell: `done(number of the task, result)` once a task, and `tick(number, iteration)` as it goes."""

    done: Callable[[int, str], None]
    tick: Callable[[int, int], None]


class Engine(Protocol):
    """Something that does tasks."""

    name: str

    def run(self, tasks: Sequence[str], listener: Listener) -> None:
        """Do all tasks, begun in the order given; a task that keeps failing is a `TaskError` at the end."""


class TaskError(RuntimeError):
    """A task failed as often as it may; what others made was handed over."""


def failed(tasks: Sequence[str], reasons: dict[int, str]) -> TaskError:
    """Say which tasks failed, and why."""
    number, reason = next(iter(sorted(reasons.items())))
    more = f" (and {len(reasons) - 1} more tasks)" if len(reasons) > 1 else ""
    return TaskError(f"a task failed {ATTEMPTS} times{more}; {reason}; the task: {tasks[number]}")


def find_work(path: str) -> Work:
    """Return the function that `module:function` names: names travel to other processes, functions do not."""
    module, _, function = path.partition(":")
    work: Work = vars(importlib.import_module(module))[function]
    return work


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
