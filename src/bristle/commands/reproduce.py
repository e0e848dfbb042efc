"""`bristle reproduce`: list of figures, progress of all workers, summary."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rich.table import Table

from bristle._core.extras import to_install
from bristle.commands.progress import progress_line, terminal
from bristle.paper import RunTask, Wanted, entries, tasks
from bristle.paper.reproduce import Reproduction, ReproductionProgress, reproduce, write_rows


def list_figures(wanted: Wanted) -> None:
    """Print the figures, and how many runs each needs; a run that two figures share is counted with the first."""
    table = Table(box=None, pad_edge=False)
    for column in ("figure", "number in the paper", "runs", "of them new", "what it shows"):
        table.add_column(column, justify="right" if column in ("runs", "of them new") else "left")
    seen: set[str] = set()
    lines = entries(wanted)
    for figure in wanted.figures:
        texts = {line.task.text for line in lines if line.figure == figure}
        mark = {"always": "", "full": " (full set)", "named": " (by name)"}[figure.when]
        table.add_row(figure.name + mark, figure.in_paper, str(len(texts)), str(len(texts - seen)), figure.title)
        seen |= texts
    console = terminal()
    console.print(table)
    console.print(f"{len(tasks(lines))} runs in all, with {wanted.seeds} seeds of {wanted.size.iterations} iterations")


def show(
    wanted: Wanted,
    out: Path,
    *,
    engine: Literal["local", "ray"],
    address: str | None,
    json_file: Path | None,
) -> None:
    """Run what is missing, with progress on stderr, and write rows, figures and the report."""
    began = time.monotonic()
    with progress_line("preparing", total=None, percent=True, seconds=10.0) as update:
        state = _State(update)
        progress = ReproductionProgress(features=state.features, begin=state.begin, tick=state.tick, done=state.done)
        made = reproduce(wanted, out, engine=engine, address=address, progress=progress)
    files = write_rows(made, out, json_file=json_file)
    files += _report(made, out, time.monotonic() - began)
    print(f"{len(made.worlds())} rows in {time.monotonic() - began:.0f} s")
    for path in files:
        if path.suffix not in (".png", ".svg"):
            print(path)
    pictures = sum(path.suffix == ".png" for path in files)
    if pictures:
        print(f"{pictures} figures as PNG and SVG in {out}")


def _report(made: Reproduction, out: Path, seconds: float) -> list[Path]:
    from bristle.paper.report import findings_of, report_of, said  # noqa: PLC0415
    from bristle.report import write  # noqa: PLC0415

    for line in said(findings_of(made)):
        print(line)
    try:
        return write(report_of(made, seconds=seconds), out, processes=os.cpu_count() or 1)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(f"No figures and no report, which need matplotlib: {to_install('plots')}", file=sys.stderr)
        return []


class _State:
    """Progress of all workers, measured by cost, not runs: a world of 100 peers counts for many."""

    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._tasks: list[RunTask] = []
        self._runs = self._iterations = 0
        self._cost = self._worked = 0.0
        self._reached: dict[int, int] = {}
        self._began = time.monotonic()

    def features(self, done: int, total: int) -> None:
        self._update(description="extracting features (once)", completed=done, total=total)

    def begin(self, missing: list[RunTask], finished: int) -> None:
        self._tasks = missing
        self._cost = sum(task.cost for task in missing)
        kept = f"; {finished} done before" if finished else ""
        print(f"{len(missing)} runs to do{kept}", file=sys.stderr)

    def tick(self, number: int, iteration: int) -> None:
        # Running sums: adding up all runs at every tick would take processor time from the workers.
        task, before = self._tasks[number], self._reached.get(number, 0)
        reached = max(before, min(iteration, self._length(number)))
        self._reached[number] = reached
        self._iterations += reached - before
        self._worked += task.cost * (reached - before) / self._length(number)
        self._tell()

    def done(self, number: int) -> None:
        self._runs += 1
        self.tick(number, self._length(number))

    def _length(self, number: int) -> int:
        return int(self._tasks[number].config["world"]["iterations"])

    def _tell(self) -> None:
        total, done = self._cost, self._worked
        passed = max(time.monotonic() - self._began, 1e-9)
        rate = f"{self._iterations / passed:.0f} iterations/s"
        runs = f"{self._runs} of {len(self._tasks)} runs"
        left = passed * (total - done) / max(done, 1e-9)
        line = f"{runs}, {done / total:.0%}, {rate}, {max(left, 0):.0f} s left"
        finished = self._runs == len(self._tasks)
        self._update(line, last=finished, description=runs, completed=done, total=total, rate=rate)
