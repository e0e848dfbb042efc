"""A report from the rows of any runs: a section per figure, a panel per setting, a line per rule."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from bristle import rules
from bristle._core.statistics import mean_interval
from bristle.report.content import Finding, Line, LineKind, Panel, Report, Section, Source, Table
from bristle.report.style import REFERENCES, RULES
from bristle.report.users import check_users, user_tables
from bristle.report.words import best_of, last_of, number, one_line

Row = Mapping[str, Any]

LONGEST = 40
"""Largest number of characters of a name or a value in a label."""


def told_apart(rows: Iterable[Row], *, alike: Iterable[str]) -> list[Row]:
    """Return rows with different settings added to `rule`, if runs of a rule in the same panel have several.

    Parameters
    ----------
    rows
        Rows; `settings` holds the non-default settings of a run, as text by key: `{"rule.alpha": "0.2"}`.
    alike
        The columns that are the same within a panel. Seeds are not among them: they share a line.

    """
    given, panel_of = list(rows), partial(_values_of, columns=("figure", "rule", *alike))
    variants: dict[tuple[Any, ...], list[dict[str, str]]] = {}
    for row in given:
        known = variants.setdefault(panel_of(row), [])
        if _settings(row) not in known:
            known.append(_settings(row))
    return [_labelled(row, variants[panel_of(row)]) for row in given]


def grouped(rows: Iterable[Row], *, purpose: str) -> dict[tuple[str, RunSetting, str, int], list[Row]]:
    """Return checked rows by figure, setting, rule and seed; rules say what differs between their runs.

    Raises
    ------
    ValueError
        When there is no row, which its message says by its `purpose`, or a row lacks a column.
    """
    checked = [row for row in rows if "seeds" not in row]  # Means over seeds are made anew, of all files together.
    for row in checked:
        check_row(row)
    if not checked:
        raise ValueError(f"there are no rows to {purpose}; `bristle simulate FILE.toml --json rows.jsonl` writes some")
    runs: dict[tuple[str, RunSetting, str, int], list[Row]] = {}
    for row in told_apart(_with_mean_holdings(checked), alike=SETTING):
        setting = RunSetting(_values_of(row, columns=SETTING))
        key = (str(row.get("figure") or "results"), setting, row["rule"], int(row.get("seed") or 0))
        runs.setdefault(key, []).append(row)
    return runs


def _with_mean_holdings(rows: list[Row]) -> list[Row]:
    """Return rows with the mean, over seeds, of what peers hold where a partition draws that: seeds share a panel."""
    alike: dict[tuple[Any, ...], dict[Any, Row]] = {}

    def key(row: Row) -> tuple[Any, ...]:
        settings = {name: text for name, text in _settings(row).items() if not name.startswith("rule.")}
        return (*_values_of(row, columns=("figure", "attack", "peers", "attackers")), tuple(sorted(settings.items())))

    for row in rows:
        alike.setdefault(key(row), {})[row.get("seed")] = row
    made: list[Row] = []
    for row in rows:
        means = {}
        for column in HOLDINGS:
            found = {each.get(column) for each in alike[key(row)].values()}
            if "partition.name" in _settings(row) and len(found) > 1 and None not in found:
                means[column] = round(fmean(each[column] for each in alike[key(row)].values()), 1)
        made.append({**row, **means})
    return made


def rule_in(label: str) -> str:
    """Return the rule's name in a label, without settings."""
    return label.partition(" (")[0]


def _labelled(row: Row, variants: list[dict[str, str]]) -> Row:
    known = dict.fromkeys(key for each in variants for key in each)
    keys = [key for key in known if len({each.get(key) for each in variants}) > 1]
    own = _settings(row)
    differs = ", ".join(f"{_name(key)} {one_line(own[key], longest=LONGEST)}" for key in keys if key in own)
    return {**row, "rule": f"{row['rule']} ({differs})"} if differs else row


def _name(key: str) -> str:
    """Return a setting's key in a label: a rule's options without prefix, `topology ring` for a name."""
    return one_line(key.removesuffix(".name").removeprefix("rule.").replace(".", " "), longest=LONGEST)


def _values_of(row: Row, *, columns: Iterable[str]) -> tuple[Any, ...]:
    return tuple(row.get(column) for column in columns)


def _settings(row: Row) -> dict[str, str]:
    return row.get("settings") or {}


Runs = dict[int, dict[int, Row]]  # seed -> iteration -> row

NEEDED = ("rule", "iteration", "accuracy_mean")
MEASURED = ("accuracy_mean", "accuracy_min", "bytes_sent", "weight_benign", "weight_malicious")
# Columns that define a setting, and its name.
SETTING = {
    "attack": "{} attack",
    "peers": "{} peers",
    "attackers": "{} attackers",
    "classes_per_peer": "{} classes a peer",
    "samples_per_class": "{} samples a class",
}


HOLDINGS = ("classes_per_peer", "samples_per_class")


@dataclass(frozen=True)
class RunSetting:
    """The world of a panel, in the order of SETTING; None where rows lack a column."""

    values: tuple[Any, ...]

    def words(self, columns: Iterable[str]) -> str:
        """Return the values of some columns, in words."""
        known = dict(zip(SETTING, self.values, strict=True))
        said = []
        for column in columns:
            value = known[column]
            if value is None:
                continue
            if column == "attack" and value == "none":
                said.append("no attack")
            else:
                words = SETTING[column].format(value)
                said.append(re.sub(r"(peer|attacker|classe?|sample)s\b", _singular, words) if value == 1 else words)
        return ", ".join(said)


def report_of(rows: Iterable[Row], *, title: str = "Bristle: results", facts: Sequence[tuple[str, str]] = ()) -> Report:
    """Return a report of rows, as `simulate` and `reproduce` write them.

    A row holds at least `rule`, `iteration` and `accuracy_mean`. Lines are means over seeds, with a band of the
    95 % confidence interval (Student's t) where there are several. Runs of one rule with other `settings` get a line
    each, whose label says what differs.

    Raises
    ------
    ValueError
        When there is no row, a row lacks a column, or two rows measure the same thing differently.

    """
    runs, figures = grouped(rows, purpose="report on"), dict[str, dict[RunSetting, dict[str, Runs]]]()
    for (figure, setting, rule, seed), found in runs.items():
        seen = figures.setdefault(figure, {}).setdefault(setting, {}).setdefault(rule, {}).setdefault(seed, {})
        for row in found:
            before = seen.setdefault(row["iteration"], row)
            if any(before.get(column) != row.get(column) for column in MEASURED):
                raise ValueError(
                    f"two rows measure iteration {row['iteration']} of {rule!r} (seed {seed}, figure {figure!r}) "
                    "differently; give runs that differ a name each, e.g. --set world.figure=NAME"
                )
    names = _file_names(list(figures))
    sections = tuple(_section(names[figure], figure, settings) for figure, settings in figures.items())
    seeds = sorted({seed for *_, seed in runs})
    about = [*facts, ("Rows", number(sum(map(len, runs.values())))), ("Seeds", ", ".join(map(str, seeds)))]
    return Report(title=title, summary=_summary(figures, sections, len(seeds)), sections=sections, facts=tuple(about))


def check_row(row: Row) -> None:
    """Raise ValueError unless a row holds what a report needs."""
    if missing := [column for column in NEEDED if column not in row]:
        raise ValueError(f"a row lacks {', '.join(missing)}; a row of results holds at least {', '.join(NEEDED)}")
    if not isinstance(row["rule"], str):
        raise ValueError(f"rule must be a name, and is {row['rule']!r}")
    for column in ("iteration", "seed"):
        value = row.get(column, 0)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{column} must be a whole number, and is {value!r}")
    for column in MEASURED:
        value = row.get(column)
        if value is None and column not in NEEDED:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{column} must be a number, and is {value!r}")
    for column in SETTING:
        if not isinstance(row.get(column), str | int | float | None):
            raise ValueError(f"{column} must be a number or a name, and is {row[column]!r}")
    found = row.get("settings") or {}
    if not isinstance(found, dict) or any(not isinstance(word, str) for pair in found.items() for word in pair):
        raise ValueError(f"settings must be an object of texts, and is {str(found)[:LONGEST]}")
    check_users(row)


def _section(name: str, figure: str, settings: dict[RunSetting, dict[str, Runs]]) -> Section:
    columns = list(SETTING)
    varying = [
        column for place, column in enumerate(columns) if len({setting.values[place] for setting in settings}) > 1
    ]
    common = next(iter(settings)).words(column for column in columns if column not in varying)
    panels = {setting: _panel(setting.words(varying) or common or figure, runs) for setting, runs in settings.items()}
    several = any(len(run) > 1 for runs in settings.values() for run in runs.values())
    text = f"Everywhere here: {common}. " if varying and common else ""
    text += "Accuracy is the mean of the benign peers, over the test samples."
    text += " Lines are means over seeds, bands their 95 % confidence intervals (Student's t)." if several else ""
    if any(len(set(map(frozenset, run.values()))) > 1 for runs in settings.values() for run in runs.values()):
        text += " Not every seed went equally far: only iterations that all seeds of a rule reached are shown."
    return Section(
        name=name,
        title=figure,
        text=text,
        panels=tuple(panels.values()),
        tables=(
            *_details(settings, {setting: panel.title for setting, panel in panels.items()}),
            *user_tables(
                (rule, panels[setting].title, [rows[_shared_iterations(run)[-1]] for rows in run.values()])
                for setting, runs in settings.items()
                for rule, run in sorted(runs.items(), key=_order)
            ),
        ),
        findings=(
            *(finding for panel in panels.values() for finding in _beaten(panel)),
            *(
                _learned_alone(rule, panels[setting].title, run)
                for setting, runs in settings.items()
                for rule, run in sorted(runs.items(), key=_order)
                if _took_nothing(rule, run)
            ),
        ),
    )


def _panel(title: str, runs: dict[str, Runs]) -> Panel:
    lines = []
    for rule, run in sorted(runs.items(), key=_order):
        iterations = _shared_iterations(run)
        values = [[run[seed][at]["accuracy_mean"] for seed in run] for at in iterations]
        bounds = [_bounds(each) for each in values] if len(run) > 1 else None
        lines.append(
            Line(
                label=rule,
                x=iterations,
                y=[fmean(each) for each in values],
                low=None if bounds is None else [low for low, _ in bounds],
                high=None if bounds is None else [high for _, high in bounds],
                kind=LineKind.REFERENCE if rule_in(rule) in REFERENCES else LineKind.RULE,
            )
        )
    return Panel(title=title, lines=tuple(lines), xlabel="iteration", ylabel="accuracy", ylim=(0.0, 1.0))


def _order(rule_and_run: tuple[str, Runs]) -> tuple[int, str]:
    """Return the sort key of a rule: known ones in their fixed order, then others, then references."""
    rule = rule_and_run[0]
    known = RULES.get(rule_in(rule)) or REFERENCES.get(rule_in(rule))
    return (known.rank if known else len(RULES), rule)


def _shared_iterations(run: Runs) -> list[int]:
    """Return the iterations of all seeds, so that every point is a mean of the same runs."""
    shared = set.intersection(*(set(rows) for rows in run.values()))
    if not shared:
        rule = next(iter(next(iter(run.values())).values()))["rule"]
        raise ValueError(f"the seeds of {rule!r} have no iteration in common: {', '.join(map(str, sorted(run)))}")
    return sorted(shared)


def _details(settings: dict[RunSetting, dict[str, Runs]], titles: dict[RunSetting, str]) -> tuple[Table, ...]:
    """Return further results of the last rows: worst peer, traffic and weights."""
    heads = {
        "accuracy_mean": "Accuracy",
        "accuracy_min": "Worst peer",
        "bytes_sent": "Sent by a peer (MB)",
        "weight_benign": "Weight of benign models",
        "weight_malicious": "Weight of malicious models",
    }
    rows = []
    for setting, runs in settings.items():
        for rule, run in sorted(runs.items(), key=_order):
            at = _shared_iterations(run)[-1]
            last = [rows[at] for rows in run.values()]
            means: list[str | float] = []
            for column in MEASURED:
                known = [row[column] for row in last if row.get(column) is not None]
                means.append(fmean(known) / (1e6 if column == "bytes_sent" else 1) if known else "-")
            means.insert(1, _interval([row["accuracy_mean"] for row in last]))
            rows.append((rule, titles[setting], at, *means))
    caption = "Means over seeds. Weights are the share of a new head that came from others' models."
    accuracy, *others = (heads[column] for column in MEASURED)
    columns = ("Rule", "Setting", "Iteration", accuracy, "95 % interval", *others)
    return (Table(title="The last row of every rule", columns=columns, rows=tuple(rows), caption=caption),)


def _interval(values: list[float]) -> str:
    return " to ".join(map(number, _bounds(values))) if len(values) > 1 else "-"


def _bounds(accuracies: list[float]) -> tuple[float, float]:
    """Return the confidence interval of a mean accuracy, cut to [0, 1]."""
    low, high = mean_interval(accuracies)
    return max(0.0, low), min(1.0, high)


def _beaten(panel: Panel) -> list[Finding]:
    """Return a finding if other rules end above Bristle."""
    ends = {line.label: last_of(line) for line in panel.lines}
    best = " and ".join(sorted(best_of(panel)))
    if not best or "bristle" in best_of(panel) or "bristle" not in ends:
        return []
    found = Finding(
        claim=f"{best} ends above bristle: {panel.title}.",
        held=None,
        measured="; ".join(f"{rule} {ends[rule]}" for rule in (*sorted(best_of(panel)), "bristle")),
        source=Source.OBSERVATION,
    )
    return [found]


def _took_nothing(rule: str, run: Runs) -> bool:
    """Return whether a rule that tests heads gave no weight to received heads in any row."""
    name, rows = rule_in(rule).rpartition("+")[2], [row for rows in run.values() for row in rows.values()]
    others = any((row.get("peers") or 0) + (row.get("attackers") or 0) > 1 for row in rows)
    if name not in rules.names() or not rules.create(name).test_samples or not others:
        return False
    return all(row.get("weight_benign") == 0 and row.get("weight_malicious") == 0 for row in rows)


def _learned_alone(rule: str, title: str, run: Runs) -> Finding:
    settings = _settings(next(iter(next(iter(run.values())).values())))
    needed = rules.create(rule_in(rule).rpartition("+")[2]).test_samples
    held_out, kappa = settings.get("partition.held_out", "10"), settings.get("rule.kappa", str(needed))
    return Finding(
        claim=f"Peers with {rule} learned alone: {title}.",
        held=None,
        measured=f"no weight for others' heads in any row; the rule needs {kappa} held-out samples of a class to test "
        f"them, and partition.held_out is {held_out}",
        source=Source.OBSERVATION,
    )


def _summary(figures: dict[str, dict[RunSetting, dict[str, Runs]]], sections: Sequence[Section], seeds: int) -> str:
    settings = [runs for figure in figures.values() for runs in figure.values()]
    rules = {rule for runs in settings for rule in runs}
    runs = sum(len(run) for setting in settings for run in setting.values())
    said = f"{_counted(runs, 'run')} of {_counted(len(rules), 'rule')} in {_counted(len(settings), 'setting')}, "
    said += f"with {_counted(seeds, 'seed')}."
    contested = [panel for section in sections for panel in section.panels if best_of(panel)]
    with_bristle = [panel for panel in contested if any(line.label == "bristle" for line in panel.lines)]
    if with_bristle:
        won = sum("bristle" in best_of(panel) for panel in with_bristle)
        said += f" Bristle ends highest of the rules in {won} of {_counted(len(with_bristle), 'setting')}."
    return said


def _counted(count: int, what: str) -> str:
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


def _singular(match: re.Match[str]) -> str:
    return {"classe": "class"}.get(match[1], match[1])


def _file_names(figures: list[str]) -> dict[str, str]:
    """Return a different file name for every figure."""
    names: dict[str, str] = {}
    for figure in figures:
        slug = re.sub(r"[^a-z0-9._-]+", "-", one_line(figure, longest=60).lower()).strip("-._") or "figure"
        taken, name, again = set(names.values()), slug, 1
        while name in taken:
            again += 1
            name = f"{slug}-{again}"
        names[figure] = name
    return names
