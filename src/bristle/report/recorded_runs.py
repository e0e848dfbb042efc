"""Runs after the fact, from the rows of any results: what the live page would have shown in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from bristle.report.from_rows import SETTING, Setting, check_row
from bristle.report.snapshot import RunState, Snapshot
from bristle.report.snapshot_reading import read_snapshot
from bristle.report.style import REFERENCES
from bristle.report.telling_apart import told_apart

Row = Mapping[str, Any]

WITHOUT = "Mean of the benign peers on the test set; the band goes down to the worst of them."


def recorded_runs(rows: Iterable[Row]) -> list[Snapshot]:
    """Return a snapshot for every run in the rows: those with decisions first, then in the order of the rows.

    A row may hold a `snapshot`, as `simulate --decisions` and `demo` write it in the last; of other runs there is the
    accuracy alone. Local-only and the oracle are no runs of their own where there are others: they are drawn beside.
    """
    runs: dict[tuple[str, Setting, str, int], list[Row]] = {}
    checked = list(rows)
    for row in checked:
        check_row(row)
    for row in told_apart(checked, alike=SETTING):
        setting = Setting(tuple(row.get(column) for column in SETTING))
        key = (str(row.get("figure") or "results"), setting, row["rule"], int(row.get("seed") or 0))
        runs.setdefault(key, []).append(row)
    if not runs:
        raise ValueError("there are no rows to show; `bristle simulate FILE.toml --json rows.jsonl` writes some")
    beside = {key: found for key, found in runs.items() if key[2] in REFERENCES}
    own = {key: found for key, found in runs.items() if key not in beside} or runs
    made = [_run(key, found, beside) for key, found in own.items()]
    return sorted(made, key=lambda run: not run.judgements)


def _run(
    key: tuple[str, Setting, str, int], rows: list[Row], beside: Mapping[tuple[str, Setting, str, int], list[Row]]
) -> Snapshot:
    figure, setting, rule, seed = key
    rows = sorted(rows, key=lambda row: row["iteration"])
    kept = [row["snapshot"] for row in rows if row.get("snapshot") is not None]
    if kept:
        whole = read_snapshot(kept[-1])
        # The rows know what the run itself does not: how it differs from others of its rule.
        return replace(whole, rule=rule, subtitle=whole.subtitle.replace(f"rule: {whole.rule}", f"rule: {rule}"))
    last = rows[-1]["iteration"]
    known = Snapshot(
        title=figure,
        subtitle=", ".join(filter(None, [f"rule: {rule}", setting.words(SETTING), f"seed {seed}"])),
        rule=rule,
        state=RunState.ENDED,
        iteration=last,
        total=last,
        classes=(),
        members=(),
        history=[(row["iteration"], row["accuracy_mean"], row.get("accuracy_min"), None) for row in rows],
        band=WITHOUT if any(row.get("accuracy_min") is not None for row in rows) else "",
    )
    for (other_figure, other_setting, other, other_seed), found in beside.items():
        if (other_figure, other_setting, other_seed) != (figure, setting, seed) or other == rule:
            continue
        points = [(row["iteration"], row["accuracy_mean"]) for row in sorted(found, key=lambda row: row["iteration"])]
        if other == "oracle":
            known = replace(known, oracle=points[-1][1])
        else:
            known = replace(known, references={**known.references, other: points})
    return known
