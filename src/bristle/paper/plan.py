"""Tasks of the wanted figures, each once, and their rows as rows of figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bristle.paper.declaration import (
    DEFAULT,
    LOCAL,
    ORACLE,
    TUNED,
    Contender,
    Figure,
    RunTask,
    Setting,
    Size,
    WorldPanel,
    others,
)
from bristle.paper.declaration import full as full_contenders
from bristle.paper.figures import ALONG, FANG

Row = dict[str, Any]
CONNECTED = (1, 2, 4, 8, 16, 32, 64, 96)
"""Numbers of connected peers in the figure of speed."""

SPEED_WORLD = Setting(peers=65, attackers=32, attack="label-flip", hears=8)
SPEED_ITERATIONS = 30
TIMED = ("speed",)
"""Kinds of tasks that measure time: they are run one by one, after all others."""

# Rules that look at distances and values alone aggregate whole networks as they do heads.
REGULAR = ("fedavg", "median", "krum", "bridge")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of a figure for one seed, and its task."""

    figure: Figure
    panel: WorldPanel | None
    label: str
    seed: int
    task: RunTask


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Figures, rules, seeds and size of a reproduction.

    Parameters
    ----------
    figures : tuple of Figure
        Which figures.
    rules : tuple of Contender
        Those that were asked for; empty: each figure's own.
    seeds : int
        How many: 0, 1, ...
    size : Size
        How long worlds run.
    full : bool
        With every other rule, the other scores, more attacks and regular learning.
    """

    figures: tuple[Figure, ...]
    rules: tuple[Contender, ...] = ()
    seeds: int = 3
    size: Size = field(default_factory=Size)
    full: bool = False

    def panels(self, figure: Figure) -> tuple[WorldPanel, ...]:
        """Return the panels of a figure."""
        return figure.panels + (figure.full_panels if self.full else ())

    def contenders(self, figure: Figure, panel: WorldPanel | None = None) -> tuple[Contender, ...]:
        """Return who competes in a figure."""
        if self.rules:
            chosen = self.rules
        elif figure.only and (figure.when != "always" or not self.full):
            known = {contender.label: contender for contender in (*DEFAULT, *others())}
            chosen = tuple(known[label] for label in figure.only if label in known)
        elif self.full:
            chosen = full_contenders("all" if panel is None else panel.full_rules)
        else:
            chosen = DEFAULT
        if panel is not None and panel.regular:
            return tuple(contender for contender in chosen if contender.label in REGULAR)
        return chosen


def entries(wanted: Wanted) -> list[Entry]:
    """Return the lines of all figures, in the order of rows."""
    found: list[Entry] = []
    for figure in wanted.figures:
        found += _ENTRIES[figure.measures](figure, wanted)
    return found


def tasks(wanted: Iterable[Entry]) -> list[RunTask]:
    """Return the tasks to run, each once, the longest first."""
    distinct = {entry.task.text: entry.task for entry in wanted}
    return sorted(distinct.values(), key=lambda task: -task.cost)


def rows(wanted: Sequence[Entry], results: Mapping[str, list[Row]]) -> list[Row]:
    """Return the rows of figures from those of tasks; lines whose task has no result are left out."""
    return [_labelled(entry, row) for entry in wanted for row in results.get(entry.task.text, [])]


def _labelled(entry: Entry, row: Row) -> Row:
    panel = "" if entry.panel is None else entry.panel.name
    labelled: Row = {"figure": entry.figure.name, "panel": panel} | row
    labelled |= {"figure": entry.figure.name, "rule": entry.label}
    if entry.panel is not None and entry.label in (LOCAL.label, ORACLE):
        # They were run without attackers, since they hear none.
        labelled |= {"attack": entry.panel.setting.attack, "attackers": entry.panel.setting.attackers, "bytes_sent": 0}
    return labelled


def _worlds(figure: Figure, wanted: Wanted) -> list[Entry]:
    found = []
    for panel in wanted.panels(figure):
        for contender in wanted.contenders(figure, panel):
            found += [_line(figure, panel, contender, seed, wanted.size) for seed in range(wanted.seeds)]
        if not panel.regular:
            for seed in range(wanted.seeds):
                task = RunTask(kind="oracle", config=panel.setting.alone().tables(seed=seed, size=wanted.size))
                found.append(Entry(figure=figure, panel=panel, label=ORACLE, seed=seed, task=task))
    return found


def _line(figure: Figure, panel: WorldPanel, contender: Contender, seed: int, size: Size) -> Entry:
    setting = panel.setting.alone() if contender == LOCAL else panel.setting
    config = {**setting.tables(seed=seed, size=size), **contender.tables()}
    task = RunTask(kind="regular" if panel.regular else "world", config=config)
    return Entry(figure=figure, panel=panel, label=contender.label, seed=seed, task=task)


def _speed(figure: Figure, wanted: Wanted) -> list[Entry]:
    found = []
    size = replace(wanted.size, iterations=SPEED_ITERATIONS)
    for contender in wanted.contenders(figure):
        if contender == TUNED:
            continue  # It takes the time of FedAvg.
        config = {**SPEED_WORLD.tables(seed=0, size=size), **contender.tables()}
        task = RunTask(kind="speed", config=config)
        found.append(Entry(figure=figure, panel=None, label=contender.label, seed=0, task=task))
    return found


def _distances(figure: Figure, wanted: Wanted) -> list[Entry]:
    chosen = {**FANG, **(ALONG if wanted.full else {})}
    found = []
    for attack in chosen:
        setting = Setting(attackers=5, attack=attack)
        for seed in range(wanted.seeds):
            config = {**setting.tables(seed=seed, size=wanted.size), **LOCAL.tables()}
            task = RunTask(kind="distances", config=config)
            found.append(Entry(figure=figure, panel=None, label=LOCAL.label, seed=seed, task=task))
    return found


def _nothing(figure: Figure, wanted: Wanted) -> list[Entry]:
    return []  # Formulas alone: nothing is run.


_ENTRIES = {"worlds": _worlds, "speed": _speed, "distances": _distances, "traffic": _nothing, "curves": _nothing}
