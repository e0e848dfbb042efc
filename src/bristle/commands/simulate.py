"""`bristle simulate`: run an experiment with progress on stderr and rows in a file."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from bristle.commands.dashboard import dashboard, stay
from bristle.commands.dashboard.simulate import SimulationBoard
from bristle.commands.jsonl import row_writer
from bristle.commands.progress import patient_bar, progress_line, terminal
from bristle.report.snapshot import RunState
from bristle.simulation import Watch
from bristle.simulation.experiment import Experiment, prepare_experiment
from bristle.simulation.results import Results, Row


def prepare(
    file: Path, overrides: Iterable[str] = (), *, checkpoint: bool = False, decisions: bool = False
) -> Experiment:
    """Read a configuration and extract the features of its data, with a progress bar if that takes long."""
    with patient_bar("Extracting features (once)", console=terminal(stderr=True)) as progress:
        return prepare_experiment(file, overrides, checkpoint=checkpoint, decisions=decisions, progress=progress)


def show(
    experiment: Experiment,
    *,
    seeds: int = 1,
    baselines: bool = False,
    json: Path | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    decisions: bool = False,
    page: tuple[str, int] | None = None,
) -> None:
    """Run an experiment with progress on stderr and rows in a file, then print the result.

    With `decisions` the last row holds the last decisions of all peers. `page` is where to serve a live page. With
    several seeds their means and confidence intervals are the last rows of the file.
    """
    if seeds < 1:
        raise ValueError(f"--seeds must be 1 or more, not {seeds}")
    if resume and checkpoint is None:
        raise ValueError("--resume needs the checkpoint to continue from: add --checkpoint FILE")
    if decisions and json is None:
        raise ValueError("--decisions are kept in the file of rows: add --json FILE")
    one_run = {"--checkpoint": checkpoint is not None, "--decisions": decisions, "--dashboard": page is not None}
    if seeds > 1 and (option := next((option for option, given in one_run.items() if given), None)):
        raise ValueError(f"{option} is for one run: leave it out, or run seeds one by one with --set world.seed=NUMBER")
    with nullcontext() if page is None else dashboard(page) as feed:
        watched = decisions or feed is not None
        board = SimulationBoard(experiment.scenario, experiment.data, feed) if watched else None
        shown = _Shown(experiment, board, seeds=seeds, baselines=baselines, decisions=decisions)
        results, seconds = shown.run(json=json, checkpoint=checkpoint, resume=resume)
        _say_end(results, seconds, json)
        if feed is not None:
            stay(feed)


class _Shown:
    """Runs an experiment, shows progress and writes rows.

    Parameters
    ----------
    experiment, seeds, baselines, decisions
        As `show` takes them.
    board : SimulationBoard, optional
        Collects decisions for the live page or the last row.
    """

    def __init__(
        self, experiment: Experiment, board: SimulationBoard | None, *, seeds: int, baselines: bool, decisions: bool
    ) -> None:
        self._experiment, self._board = experiment, board
        self._seeds, self._baselines, self._decisions = seeds, baselines, decisions
        self._noted: set[str] = set()

    def run(self, *, json: Path | None, checkpoint: Path | None, resume: bool) -> tuple[Results, float]:
        """Run to the end, or to Ctrl-C; return all rows and the seconds taken."""
        rows: list[Row] = []
        per_run, began = self._experiment.scenario.iterations, time.monotonic()
        with (
            _stopping() as stop,
            row_writer(json, fresh=not resume) as write,
            _iterations(per_run * self._seeds) as shown,
        ):
            watch = Watch(stop=stop, note=self._note)
            for number, one in enumerate(self._experiment.with_seeds(self._seeds)):
                if self._baselines:
                    rows += one.run_baselines(replace(watch, row=write)).rows
                iteration = partial(shown, before=number * per_run)
                rows += self._one(one, watch, write, iteration, checkpoint=checkpoint, resume=resume)
            results = Results(rows)
            for row in results.over_seeds():
                write(row)
        return results, time.monotonic() - began

    def _one(
        self,
        experiment: Experiment,
        watch: Watch,
        write: Callable[[Row], None],
        shown: Callable[[int, list[Row]], None],
        *,
        checkpoint: Path | None,
        resume: bool,
    ) -> list[Row]:
        """Run one seed and return its rows."""
        rows: list[Row] = []
        board, total = self._board, experiment.scenario.iterations

        def row(latest: Row) -> None:
            rows.append(latest)
            if board is not None:
                board.row(latest)
            # The last one waits for the decisions of its iteration.
            if not (self._decisions and latest["iteration"] == total):
                write(latest)

        def iteration(done: int) -> None:
            shown(done, rows)
            if board is not None:
                board.iterated(done)

        watch = replace(watch, row=row, iteration=iteration)
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
        if self._decisions and board is not None:
            write({**rows[-1], "snapshot": board.snapshot(RunState.ENDED).to_dict()})
        return rows

    def _note(self, note: str) -> None:
        """Print a note, once for all seeds."""
        if note not in self._noted:
            self._noted.add(note)
            print(f"bristle: {note}", file=sys.stderr)


def _say_end(results: Results, seconds: float, json: Path | None) -> None:
    last = results.last()
    several = f" (95 % interval {last['accuracy_low']:.2%} to {last['accuracy_high']:.2%})" if "seeds" in last else ""
    seeds = f", seeds {', '.join(map(str, last['seeds']))}" if "seeds" in last else ""
    print(
        f"{last['rule']}, attack: {last['attack']}, {last['peers']} peers and {last['attackers']} attackers: "
        f"accuracy {last['accuracy_mean']:.2%}{several}, worst peer {last['accuracy_min']:.2%} "
        f"after {last['iteration']} iterations{seeds} ({seconds:.1f} s)"
    )
    for name in ("local", "oracle"):
        found = [row for row in results.rows if (row["rule"], row["iteration"]) == (name, last["iteration"])]
        if found and name != last["rule"]:
            print(f"{name}: accuracy {fmean(row['accuracy_mean'] for row in found):.2%}")
    if json is not None:
        print(f"Rows: {json}")


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed, so that the run ends between two iterations.

    A second Ctrl-C interrupts at once.
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
def _iterations(total: int) -> Iterator[Callable[..., None]]:
    """Yield a function that shows the iterations done, with `before` of earlier runs, and the latest accuracy."""
    began: list[tuple[int, float]] = []
    with progress_line("iterations", total=total) as update:

        def show(done: int, rows: list[Row], *, before: int = 0) -> None:
            done += before
            now = time.monotonic()
            began[:] = began or [(done - 1, started)]
            rate = (done - began[0][0]) / max(now - began[0][1], 1e-9)
            result = f"accuracy {rows[-1]['accuracy_mean']:.1%}" if rows else "iterations"
            line = f"iteration {done} of {total}: {result}, {rate:.3g}/s, {(total - done) / rate:.0f} s left"
            update(line, last=done == total, completed=done, description=result, rate=f"{rate:.0f}/s")

        started = time.monotonic()
        yield show
