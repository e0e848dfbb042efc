"""Reproduce the paper's figures: choose tasks, run them, write results."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import bristle
from bristle._core.files import write_atomically
from bristle._core.registry import did_you_mean
from bristle.backbones import bundled
from bristle.paper import Contender, RunTask, Size, Store, Wanted, entries, figures
from bristle.paper import rows as rows_of
from bristle.paper import tasks as tasks_of
from bristle.paper.declaration import full as full_contenders
from bristle.paper.engines import Engine, Listener
from bristle.paper.engines.local import LocalEngine
from bristle.paper.engines.ray import RayEngine
from bristle.paper.plan import TIMED
from bristle.paper.store import versions
from bristle.rules import RULES
from bristle.simulation import prepare
from bristle.simulation.build import make_data, scenario_of
from bristle.simulation.config import DataSection, read

Row = dict[str, Any]
WORK = "bristle.paper.work:work"
QUICK = Size(iterations=50, every=10, train_samples=16_000, test_samples=2_000)
"""A small size with one seed, to check that everything works."""

COLUMNS = (
    "figure", "panel", "rule", "attack", "peers", "attackers", "classes_per_peer", "samples_per_class", "seed",
    "iteration", "accuracy_mean", "accuracy_min", "bytes_sent", "f1_mean", "weight_benign", "weight_malicious",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Results of a reproduction: rows of worlds, other measurements, and the request."""

    wanted: Wanted
    rows: tuple[Row, ...]
    versions: Mapping[str, str]

    def worlds(self) -> list[Row]:
        """Return the rows of worlds, which repeat to the byte."""
        return [row for row in self.rows if "accuracy_mean" in row]

    def others(self) -> list[Row]:
        """Return distances and times; times differ from run to run."""
        return [row for row in self.rows if "accuracy_mean" not in row]


def wanted_of(
    names: Sequence[str] = (),
    *,
    rules: Sequence[str] = (),
    seeds: int | None = None,
    full: bool = False,
    quick: bool = False,
) -> Wanted:
    """Return a checked request, or raise ValueError before anything is run."""
    known = {figure.name: figure for figure in figures()}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no figure {name!r}; {did_you_mean(name, known)}")
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, not {seeds}")
    sets = ("always", "full") if full else ("always",)
    chosen = [known[name] for name in dict.fromkeys(names)] or [f for f in known.values() if f.when in sets]
    wanted = Wanted(
        figures=tuple(chosen),
        rules=tuple(contender(rule) for rule in dict.fromkeys(rules)),
        seeds=seeds or (1 if quick else 3),
        size=QUICK if quick else Size(),
        full=full,
    )
    for entry in entries(wanted):
        scenario_of(read(entry.task.config))  # says what is wrong with a rule of one's own
    return wanted


def contender(name: str) -> Contender:
    """Return a contender by its label, a rule's name or `module:name`."""
    known = {known.label: known for known in full_contenders()}
    if name in known:
        return known[name]
    if name not in RULES and not RULES.is_foreign(name):
        raise ValueError(f"there is no rule {name!r}; {did_you_mean(name, [*known, *RULES.names()])}")
    return Contender(label=name, rule=name)


@dataclass(frozen=True, kw_only=True)
class ReproductionProgress:
    """Callbacks: `features(done, all)`, then `begin(tasks, finished)`, `tick(task, iteration)` and `done(task)`."""

    features: Callable[[int, int], None] | None = None
    begin: Callable[[list[RunTask], int], None] = lambda tasks, finished: None
    tick: Callable[[int, int], None] = lambda task, iteration: None
    done: Callable[[int], None] = lambda task: None


def reproduce(
    wanted: Wanted,
    out: Path,
    *,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    processes: int | None = None,
    progress: ReproductionProgress | None = None,
) -> Reproduction:
    """Run the wanted tasks that are not yet in `out`, and return all results.

    Finished runs are kept in `out/runs`, so that after an interruption the same call goes on.

    Parameters
    ----------
    wanted : Wanted
        Which figures, rules and seeds.
    out : Path
        The folder.
    engine, address, processes
        Processes on this machine, or Ray at an address.
    progress : ReproductionProgress
        Callbacks for progress.
    """
    progress = progress or ReproductionProgress()
    backbone = bundled()
    made_with = versions(release=bristle.__version__, backbone=backbone.digest)
    # Results of rules that are not ours must not outlive an edit either.
    foreign = {chosen.rule for chosen in wanted.rules} - set(RULES)
    made_with |= {f"rule {rule}": RULES.source_digest(rule) for rule in sorted(foreign)}
    store = Store(out / "runs", made_with)
    lines = entries(wanted)
    results: dict[str, list[Row]] = {}
    missing: list[RunTask] = []
    for task in tasks_of(lines):
        kept = store.find(task.text)
        if kept is None:
            missing.append(task)
        else:
            results[task.text] = kept
    # Times are measured last, one after the other, while nothing else runs.
    missing.sort(key=lambda task: task.kind in TIMED)
    progress.begin(missing, len(results))
    if missing:
        # The features that all tasks share: those of MNIST by the bundled backbone.
        dataset, _ = make_data(DataSection(train_samples=wanted.size.train_samples), backbone=backbone)
        data = prepare(dataset, backbone, test_samples=wanted.size.test_samples, progress=progress.features)
        together = [task for task in missing if task.kind not in TIMED]
        alone = missing[len(together) :]
        for some, first, how_many in ((together, 0, processes), (alone, len(together), 1)):
            runner: Engine = LocalEngine(WORK, data, processes=how_many)
            if engine == "ray" and some is together:
                runner = RayEngine(WORK, data, address=address, processes=how_many)
            _run(runner, some, first, store, results, progress)
    return Reproduction(wanted=wanted, rows=tuple(rows_of(lines, results)), versions=made_with)


def _run(
    engine: Engine,
    tasks: list[RunTask],
    first: int,
    store: Store,
    results: dict[str, list[Row]],
    progress: ReproductionProgress,
) -> None:
    def done(number: int, result: str) -> None:
        text = tasks[number].text
        results[text] = json.loads(result)
        store.keep(text, results[text])
        progress.done(first + number)

    listener = Listener(done=done, tick=lambda number, iteration: progress.tick(first + number, iteration))
    engine.run([task.text for task in tasks], listener)


def write_rows(made: Reproduction, out: Path, *, json_file: Path | None = None) -> list[Path]:
    """Write rows as JSON Lines and as CSV, and other measurements beside; return the files."""
    worlds = made.worlds()
    lines = _lines(worlds)
    files = {out / "rows.jsonl": lines, out / "rows.csv": _csv(worlds)}
    if made.others():
        files[out / "measurements.jsonl"] = _lines(made.others())
    if json_file is not None:
        files[json_file] = lines
    for path, text in files.items():
        write_atomically(path, [text.encode()])
    return list(files)


def _lines(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()
