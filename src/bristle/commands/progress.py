"""Terminal output: plain text and progress bars."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from bristle.backbones.pretrain import EpochProgress


def terminal(*, stderr: bool = False) -> Console:
    """Return a console that prints brackets in paths, names and `.[plots]` literally, not as markup."""
    return Console(stderr=stderr, markup=False, highlight=False)


PATIENCE = 2.0  # seconds before a bar is shown


@contextmanager
def patient_bar(
    description: str, *, console: Console | None = None, patience: float = PATIENCE
) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for (done, total) that shows a bar after `patience` seconds, if stderr is a terminal."""
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


@contextmanager
def progress_line(
    description: str, *, total: float | None, percent: bool = False, seconds: float = 5.0
) -> Iterator[Callable[..., None]]:
    """Yield `update(line, last=False, completed=, description=, rate=)`: a bar in a terminal, otherwise lines.

    If stderr is not a terminal, `line` is printed at most once in `seconds`, and always when it is the `last`.
    """
    console = terminal(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %") if percent else MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(description, total=total, rate="")
    printed = time.monotonic()

    def update(line: str = "", *, last: bool = False, **shown: Any) -> None:
        nonlocal printed
        bar.update(task, **shown)
        now = time.monotonic()
        if line and not console.is_terminal and (last or now - printed > seconds):
            printed = now
            print(line, file=sys.stderr)

    with bar:
        yield update


@contextmanager
def pretraining_progress(*, console: Console | None = None) -> Iterator[Callable[[EpochProgress], None]]:
    """Yield the `progress` callback of `pretrain`: a line per epoch and, in a terminal, a bar."""
    screen = console or terminal(stderr=True)
    with patient_bar("Pre-training", console=screen, patience=0.0) as bar:

        def watch(at: EpochProgress) -> None:
            bar((at.epoch - 1) * at.batches + at.batch, at.epochs * at.batches)
            if at.finished is not None:
                screen.print(
                    f"epoch {at.epoch}/{at.epochs}: loss {at.finished.loss:.4f}, "
                    f"validation accuracy {at.finished.validation:.2%}"
                )

        yield watch
