"""Results of runs: tidy rows, their means over seeds, tables and a plot."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from bristle._core import to_numpy
from bristle._core.extras import to_install
from bristle._core.statistics import mean_interval
from bristle.attacks import ATTACKS, Attack
from bristle.rules import RULES, STEPS, Rule
from bristle.rules.steps import Chain
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.measurement import Measurement
from bristle.simulation.population import class_counts
from bristle.simulation.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Row = dict[str, Any]

ABOUT = (
    "figure", "rule", "attack", "peers", "attackers", "classes_per_peer", "samples_per_class", "seed", "iteration"
)  # fmt: skip
"""Columns that identify the run and the iteration of a row."""


@dataclass(frozen=True, repr=False)
class Results:
    """The rows of one or more runs, one per evaluation, each with the columns that identify its run."""

    rows: list[Row] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Results({len(self.rows)} rows)"

    def last(self) -> Row:
        """Return the last row; of a run with several seeds, the last of `over_seeds`."""
        if not self.rows:
            raise ValueError("there are no rows: a world is evaluated every 10 iterations by default")
        last = self.rows[-1]
        alike = [row for row in self.over_seeds() if _run_of(row) == _run_of(last)]
        return alike[-1] if alike else last

    def over_seeds(self) -> list[Row]:
        """Return the means over seeds: a row per iteration of each run with several seeds.

        Rows have `seeds` instead of `seed`. `accuracy_mean` is the mean over seeds, `accuracy_low` and `accuracy_high`
        are the ends of its 95 % confidence interval by Student's t, and `accuracy_min` is the worst peer of any seed.
        """
        runs: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows:
            runs.setdefault((*_run_of(row), row["iteration"]), []).append(row)
        return [_mean_row(rows) for rows in runs.values() if len({row["seed"] for row in rows}) > 1]

    def to_pandas(self) -> DataFrame:
        """Return the rows as a table, with a column for each of their settings. Needs pandas."""
        try:
            import pandas as pd  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("a table needs pandas: pip install pandas") from error
        plain = [{key: value for key, value in row.items() if key != "settings"} for row in self.rows]
        return pd.DataFrame(
            [{**row, **(whole.get("settings") or {})} for row, whole in zip(plain, self.rows, strict=True)]
        )

    def plot(self, *, title: str | None = None) -> Figure:
        """Plot accuracy over iterations, a line per rule and attack.

        Lines of one seed are shaded down to the worst peer. Lines of several seeds are means, shaded over the 95 %
        confidence interval. Notebooks show the returned figure; `results.plot().savefig("accuracy.svg")` saves it.
        Needs matplotlib.
        """
        figure = _notebook_figure()
        lines = self._lines()
        several = any(len(seeds) > 1 for seeds in lines.values())
        what = "Mean of the benign peers, and " + ("its 95 % interval over seeds" if several else "the worst")
        axes = figure.add_subplot(xlabel="iteration", ylabel="accuracy", ylim=(0, 1), title=title or what)
        for label, seeds in lines.items():
            iterations = sorted(set.intersection(*(set(rows) for rows in seeds.values())))
            rows = [[seeds[seed][at] for seed in seeds] for at in iterations]
            mean = [fmean(row["accuracy_mean"] for row in each) for each in rows]
            if len(seeds) > 1:
                words = f"{len(seeds)} seeds"
                bounds = [mean_interval([row["accuracy_mean"] for row in each]) for each in rows]
                low, high = [bound[0] for bound in bounds], [bound[1] for bound in bounds]
            else:
                words = f"seed {next(iter(seeds))}"
                low, high = [row["accuracy_min"] for (row,) in rows], mean
            axes.plot(iterations, mean, label=f"{label}, {words}")
            axes.fill_between(iterations, low, high, alpha=0.2)
        if lines:
            axes.legend(loc="lower right")
        axes.grid(alpha=0.3)
        return figure

    def _lines(self) -> dict[str, dict[int, dict[int, Row]]]:
        """Return rows by label, seed and iteration."""
        lines: dict[str, dict[int, dict[int, Row]]] = {}
        for row in self.rows:
            figure = f"{row['figure']}: " if row["figure"] else ""
            label = f"{figure}{row['rule']}, attack: {row['attack']}"
            line = lines.setdefault(label, {}).setdefault(row["seed"], {})
            if row["iteration"] in line:
                raise ValueError(
                    f"two runs have the same label '{label}, seed {row['seed']}'; name them, "
                    "e.g. overrides=['world.figure=ring']"
                )
            line[row["iteration"]] = row
        return lines

    def _repr_html_(self) -> str:
        """Return the last row of every run as a table, for notebooks."""
        ends: dict[tuple[Any, ...], Row] = {}
        for row in self.rows:
            ends[(*_run_of(row), row["seed"])] = row
        for row in self.over_seeds():
            for seed in row["seeds"]:
                ends.pop((*_run_of(row), seed), None)
            ends[_run_of(row)] = row
        head = ("rule", "attack", "peers", "attackers", "seeds", "iteration", "accuracy", "95 % interval", "worst peer")
        cells = [
            (
                f"{row['figure']}: {row['rule']}" if row["figure"] else row["rule"],
                *(row[column] for column in ("attack", "peers", "attackers")),
                ", ".join(map(str, row.get("seeds") or [row["seed"]])),
                row["iteration"],
                f"{row['accuracy_mean']:.1%}",
                f"{row['accuracy_low']:.1%} to {row['accuracy_high']:.1%}" if "accuracy_low" in row else "",
                f"{row['accuracy_min']:.1%}",
            )
            for row in ends.values()
        ]
        lines = [_html_row("th", head), *(_html_row("td", line) for line in cells)]
        return f"<table>{''.join(lines)}</table>"


def _html_row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(str(cell))}</{kind}>' for cell in cells)}</tr>"


_RUN = ("figure", "rule", "attack", "peers", "attackers")


def _run_of(row: Row) -> tuple[Any, ...]:
    """Return the columns that the seeds of one run share; seeds may draw different numbers of samples."""
    return (*(row[column] for column in _RUN), tuple(sorted((row.get("settings") or {}).items())))


def _mean_row(rows: list[Row]) -> Row:
    """Return the means of rows that differ in their seed."""
    first, values = rows[0], [row["accuracy_mean"] for row in rows]
    low, high = mean_interval(values)
    means = {}
    for column in ("classes_per_peer", "samples_per_class", "bytes_sent", "f1_mean", *_WEIGHTS):
        known = [row[column] for row in rows if row.get(column) is not None]
        means[column] = _tidy(fmean(known)) if known else None
    return {
        **{column: first[column] for column in (*_RUN, "iteration")},
        "seeds": [row["seed"] for row in rows],
        "accuracy_mean": fmean(values),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_min": min(row["accuracy_min"] for row in rows),
        **means,
        **({"settings": first["settings"]} if "settings" in first else {}),
    }


_WEIGHTS = ("weight_benign", "weight_malicious")


def _notebook_figure() -> Figure:
    """Return an empty figure that notebooks can show, made without pyplot, whose state is the user's."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"plotting needs matplotlib: {to_install('plots')}") from error

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=110)
            return picture.getvalue()

    return NotebookFigure(figsize=(6, 4), layout="constrained")


def rule_name(rule: Rule) -> str:
    """Return the registry name of a rule, steps first: `nearest-neighbour-mixing+krum`; else its class's name."""
    if isinstance(rule, Chain):
        steps = [_name_in(STEPS, step) for step in rule.steps]
        return "+".join([*steps, rule_name(rule.rule)])
    return _name_in(RULES, rule)


def attack_name(attack: Attack) -> str:
    """Return the registry name of an attack, else its class's name."""
    return _name_in(ATTACKS, attack)


def accuracy_per_user(world: World) -> dict[str, float | None] | None:
    """Return, by user, the accuracy of its peer on the user's own test samples; None for a user without any.

    None instead of all if users are not known, or if peers and users do not correspond one to one.
    """
    data = world.data
    if data.user is None or data.test_user is None:
        return None
    index = to_numpy(world.held.index)
    owners = [np.unique(data.user[rows[rows >= 0]]) for rows in index]
    if any(len(owner) != 1 for owner in owners) or len({str(owner[0]) for owner in owners}) < len(owners):
        return None
    heads, test = (to_numpy(values) for values in world.scoring)
    labels, found = to_numpy(data.test_labels), dict[str, float | None]()
    for head, owner in zip(heads, owners, strict=True):
        rows = np.flatnonzero(data.test_user == owner[0])
        right = (test[rows] @ head.T).argmax(axis=1) == labels[rows]
        found[str(owner[0])] = float(right.mean()) if len(rows) else None
    return found


def row_of(world: World | LargeWorld, measured: Measurement, *, figure: str) -> Row:
    """Return the row of an evaluation: columns of the world, and its measurement."""
    scenario = world.scenario
    classes, samples = _holdings(world)
    users = accuracy_per_user(world) if isinstance(world, World) else None
    return {
        "figure": figure,
        "rule": rule_name(scenario.rule),
        "attack": attack_name(scenario.attack) if scenario.attackers else "none",
        "peers": scenario.peers,
        "attackers": scenario.attackers,
        "classes_per_peer": classes,
        "samples_per_class": samples,
        "seed": scenario.seed,
        "iteration": world.iteration,
        "accuracy_mean": float(measured.accuracy.mean()),
        "accuracy_min": float(measured.accuracy.min()),
        "bytes_sent": _tidy(float(measured.bytes_sent.mean())),
        "bytes_sent_max": int(measured.bytes_sent.max()),
        "f1_mean": float(measured.f1.mean()),
        "weight_benign": measured.weight_benign,
        "weight_malicious": measured.weight_malicious,
        "accuracy_per_class": [
            float(value) if np.isfinite(value) else None for value in measured.class_accuracy.mean(axis=0)
        ],
        **({} if users is None else {"accuracy_per_user": users}),
    }


def _holdings(world: World | LargeWorld) -> tuple[float, float]:
    """Return classes per peer and samples per class and peer, on average; whole where they are."""
    held = class_counts(world.held, len(world.data.classes))
    owned = int((held > 0).sum())
    return _tidy(owned / len(held)), _tidy(int(held.sum()) / max(1, owned))


def _tidy(value: float) -> float:
    return int(value) if value.is_integer() else value


def _name_in(known: Mapping[str, object], value: object) -> str:
    return next((name for name, kind in known.items() if type(value) is kind), type(value).__name__)
