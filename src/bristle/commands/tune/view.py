"""`bristle tune`: progress, best trial so far, result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bristle._core.files import write_atomically
from bristle.commands.jsonl import json_line
from bristle.commands.progress import progress_line
from bristle.commands.tune import Search, Trial, Tuned, TuningProgress, best_of, row_of, tune
from bristle.commands.tune.space import spelled_out, values_of
from bristle.simulation.config import toml_of


def show(search: Search, *, out: Path, name: str, json: Path | None = None) -> None:
    """Search with progress on stderr, keep the best so far as TOML and the trials as rows, then print the result."""
    result = out / f"tuned-{name}.toml"

    def keep(trials: list[Trial]) -> None:
        if json is not None:
            rows = [json_line(row_of(trial, search.parameters)) for trial in trials]
            write_atomically(json, ["".join(rows).encode()])
        if trials:
            _write(result, search, best_of(trials), trials[0], trials=len(trials))

    with progress_line("trials", total=search.trials) as update:
        view = _View(search, update, keep)
        progress = TuningProgress(begin=view.begin, iteration=view.iteration, trial=view.trial)
        tuned = tune(search, out, progress=progress)
    _write(result, search, tuned.best, tuned.given, trials=len(tuned.trials), checked=tuned.checked)
    for line in _said(search, tuned):
        print(line)
    print(f"{result}: try it with `bristle simulate {result}`")


def _write(
    path: Path, search: Search, best: Trial, given: Trial, *, trials: int, checked: tuple[float, float] | None = None
) -> None:
    about = (
        f"Found by bristle tune: the best of {trials} trials.\n"
        f"Mean accuracy over {search.seeds} seeds: {best.accuracy:.2%}, as given {given.accuracy:.2%}.\n"
    )
    if checked is not None:
        about += f"With as many new seeds: {checked[1]:.2%}, as given {checked[0]:.2%}.\n"
    write_atomically(path, [toml_of(spelled_out(best.config, search.parameters), about=about).encode()])


def _said(search: Search, tuned: Tuned) -> Iterator[str]:
    pruned = sum(trial.pruned for trial in tuned.trials)
    yield f"{len(tuned.trials)} trials, {pruned} of them pruned; mean accuracy over {search.seeds} seeds:"
    rows = [("as given", tuned.given, tuned.checked[0]), ("best", tuned.best, tuned.checked[1])]
    for label, trial, checked in rows[: 1 if tuned.best == tuned.given else 2]:
        values = ", ".join(f"{name} = {value}" for name, value in values_of(trial.config, search.parameters).items())
        yield f"  {label:<9} {trial.accuracy:.2%}, with new seeds {checked:.2%}: {values}"
    if tuned.best == tuned.given:
        yield "No trial was better than the file."
    elif tuned.checked[1] <= tuned.checked[0]:
        yield "With new seeds it is no better: keep the file, or search with more seeds."


class _View:
    """Shows the progress of the search, and passes all finished trials to `keep` after each."""

    def __init__(self, search: Search, update: Callable[..., None], keep: Callable[[list[Trial]], None]) -> None:
        self._trials: list[Trial] = []
        self._search, self._update, self._keep = search, update, keep
        self._before = self._iterations = 0
        self._began = time.monotonic()

    def begin(self, trials: list[Trial]) -> None:
        self._trials = list(trials)
        self._before = self._iterations_of(trials)
        self._began = time.monotonic()
        if trials:
            print(f"continuing after {len(trials)} finished trials", file=sys.stderr)
        self._update(completed=len(trials))
        self._keep(self._trials)

    def iteration(self) -> None:
        self._iterations += 1
        self._tell()

    def trial(self, latest: Trial) -> None:
        self._trials.append(latest)
        self._keep(self._trials)
        self._tell(finished=len(self._trials) == self._search.trials)

    def _iterations_of(self, trials: list[Trial]) -> int:
        return sum(len(trial.accuracies) for trial in trials) * self._search.config.world.iterations

    def _tell(self, *, finished: bool = False) -> None:
        passed = max(time.monotonic() - self._began, 1e-9)
        rate = self._iterations / passed
        best = f"best {best_of(self._trials).accuracy:.2%}" if self._trials else "first trial"
        speed = f"{rate:.0f} iterations/s, {_duration(self._expected() / rate)} left" if rate else ""
        line = f"trial {len(self._trials)} of {self._search.trials}: {best}, {speed}"
        self._update(line, last=finished, completed=len(self._trials), description=best, rate=speed)

    def _expected(self) -> float:
        """Return the expected number of iterations left, if trials are pruned as often as so far."""
        search = self._search
        whole = search.seeds * search.config.world.iterations
        done = self._iterations_of(self._trials)
        per_trial = done / len(self._trials) if self._trials else whole
        begun = self._before + self._iterations - done
        to_come = (search.trials - len(self._trials)) * per_trial + 2 * whole
        return max(0.0, to_come - begun)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
