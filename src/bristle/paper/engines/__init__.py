"""The interface of engines: tasks in, results out, progress reported meanwhile."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bristle.simulation import FeatureData

ATTEMPTS = 3
"""Attempts before a task counts as failed."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""One thread per process is faster for small heads, and makes sums the same to the bit in every process."""

Tick = Callable[[int], None]
Work = Callable[[str, FeatureData, Tick], str]
"""Runs a task: (its text, the data, a callback for iterations) -> the result as text."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Callbacks: `done(task number, result)` once per task, `tick(task number, iteration)` as it runs."""

    done: Callable[[int, str], None]
    tick: Callable[[int, int], None]


class Engine(Protocol):
    """Something that runs tasks."""

    name: str

    def run(self, tasks: Sequence[str], listener: Listener) -> None:
        """Run all tasks, started in the order given; raise `TaskError` at the end for tasks that keep failing."""


class TaskError(RuntimeError):
    """A task failed in all attempts; results of the others were delivered."""


def failed(tasks: Sequence[str], reasons: dict[int, str]) -> TaskError:
    """Return an error that names the failed tasks and the first reason."""
    number, reason = next(iter(sorted(reasons.items())))
    more = f" (and {len(reasons) - 1} more tasks)" if len(reasons) > 1 else ""
    return TaskError(f"a task failed {ATTEMPTS} times{more}; {reason}; the task: {tasks[number]}")


def find_work(path: str) -> Work:
    """Return the function that `module:function` names: names can be passed to other processes."""
    module, _, function = path.partition(":")
    work: Work = vars(importlib.import_module(module))[function]
    return work


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables for processes started within the block."""
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
