"""`bristle simulate`: run an experiment with progress on stderr and rows in a file."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from bristle.commands.dashboard import dashboard, stay
from bristle.commands.dashboard.simulate import SimulationBoard
from bristle.commands.jsonl import row_writer
from bristle.commands.progress import patient_bar, progress_line, terminal
from bristle.report.snapshot import RunState
from bristle.simulation import Watch
from bristle.simulation.experiment import Experiment, prepare_experiment
from bristle.simulation.results import Row


def prepare(
    file: Path, overrides: Iterable[str] = (), *, checkpoint: bool = False, decisions: bool = False
) -> Experiment:
    """Read a configuration and extract the features of its data, with a progress bar where that takes long."""
    with patient_bar("Extracting features (once)", console=terminal(stderr=True)) as progress:
        return prepare_experiment(file, overrides, checkpoint=checkpoint, decisions=decisions, progress=progress)


def show(
    experiment: Experiment,
    *,
    json: Path | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    decisions: bool = False,
    page: tuple[str, int] | None = None,
) -> None:
    """Run an experiment with progress on stderr and rows in a file, then say how it ended.

    With `decisions` the last row holds what everybody made of everybody in the end. `page` is where to serve a live
    page.
    """
    if resume and checkpoint is None:
        raise ValueError("to resume, say from which checkpoint: --checkpoint FILE")
    if decisions and json is None:
        raise ValueError("--decisions are kept in the file of rows: add --json FILE")
    with nullcontext() if page is None else dashboard(page) as feed:
        watched = decisions or feed is not None
        board = SimulationBoard(experiment.scenario, experiment.data, feed) if watched else None
        rows, seconds = _run(experiment, board, json=json, checkpoint=checkpoint, resume=resume, decisions=decisions)
        _say_end(rows[-1], seconds, json)
        if feed is not None:
            stay(feed)


def _run(
    experiment: Experiment,
    board: SimulationBoard | None,
    *,
    json: Path | None,
    checkpoint: Path | None,
    resume: bool,
    decisions: bool,
) -> tuple[list[Row], float]:
    """Run it to the end, or to Ctrl-C; return all rows, and the seconds that it took."""
    rows: list[Row] = []
    total, began = experiment.scenario.iterations, time.monotonic()
    with (
        _stopping() as stop,
        row_writer(json, fresh=not resume) as write,
        _iterations(total) as shown,
    ):

        def row(latest: Row) -> None:
            rows.append(latest)
            if board is not None:
                board.row(latest)
            # The last one waits for the decisions of its iteration.
            if not (decisions and latest["iteration"] == total):
                write(latest)

        def iteration(done: int) -> None:
            shown(done, rows)
            if board is not None:
                board.iterated(done)

        watch = Watch(row=row, iteration=iteration, stop=stop, note=_say)
        if board is not None:
            watch = replace(watch, decisions=board.decided, weigh=board.wants_weights, measurement=board.measured)
        try:
            experiment.run(checkpoint=checkpoint, resume=resume, watch=watch)
        except BaseException:
            if board is not None:
                board.show(RunState.INTERRUPTED)
            raise
        if board is not None:
            board.show(RunState.ENDED)
        if decisions and board is not None:
            write({**rows[-1], "snapshot": board.snapshot(RunState.ENDED).to_dict()})
    return rows, time.monotonic() - began


def _say(note: str) -> None:
    print(f"bristle: {note}", file=sys.stderr)


def _say_end(last: Row, seconds: float, json: Path | None) -> None:
    print(
        f"{last['rule']}, attack: {last['attack']}, {last['peers']} peers and {last['attackers']} attackers: "
        f"accuracy {last['accuracy_mean']:.2%}, worst peer {last['accuracy_min']:.2%} after {last['iteration']} "
        f"iterations ({seconds:.1f} s)"
    )
    if json is not None:
        print(f"Rows: {json}")


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Yield what tells whether Ctrl-C was pressed: the run then ends between two iterations, with all in order.

    A second Ctrl-C ends it at once.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def press(*_: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _iterations(total: int) -> Iterator[Callable[[int, list[Row]], None]]:
    """Yield what shows an iteration that is done, and the accuracy of the latest row."""
    began: list[tuple[int, float]] = []
    with progress_line("iterations", total=total) as update:

        def show(done: int, rows: list[Row]) -> None:
            now = time.monotonic()
            began[:] = began or [(done - 1, started)]
            rate = (done - began[0][0]) / max(now - began[0][1], 1e-9)
            result = f"accuracy {rows[-1]['accuracy_mean']:.1%}" if rows else "iterations"
            line = f"iteration {done} of {total}: {result}, {rate:.3g}/s, {(total - done) / rate:.0f} s left"
            update(line, last=done == total, completed=done, description=result, rate=f"{rate:.0f}/s")

        started = time.monotonic()
        yield show
