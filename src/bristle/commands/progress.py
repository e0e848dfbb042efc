"""The terminal: plain text as it is, and progress bars where the wait is long enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def terminal(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is: brackets in paths, names and `bristle[plots]` are no markup."""
    return Console(stderr=stderr, markup=False, highlight=False)


PATIENCE = 2.0  # seconds without a bar: what takes less needs none


@contextmanager
def patient_bar(
    description: str, *, console: Console | None = None, patience: float = PATIENCE
) -> Iterator[Callable[[int, int], None]]:
    """Yield what is called with (done, all); a bar comes up once that has gone on for `patience` seconds.

    Where stderr is not a terminal, nothing is shown.
    """
    screen = console or terminal(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
    )
    task = bar.add_task(description)
    began = time.monotonic()

    def watch(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if screen.is_terminal and not bar.live.is_started and time.monotonic() - began > patience:
            bar.start()

    try:
        yield watch
    finally:
        if bar.live.is_started:
            bar.stop()
