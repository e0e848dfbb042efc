"""What a person sees of the demo."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bristle.apps.demo import Demo, Row, digits, oracle_accuracy, run, said_of
from bristle.apps.progress import patient_bar
from bristle.apps.rows import write_rows

BAR = 16


def show(demo: Demo, *, json: Path | None = None) -> None:
    """Run the demo with live progress, then say who won and why."""
    demo.check()
    progress, out = Console(stderr=True), Console()
    with patient_bar("Extracting features (once)", console=progress) as watch:
        digits(watch)
    started = time.monotonic()
    latest: dict[str, Row] = {}
    rows: list[Row] = []
    progress.print(_about(demo), highlight=False)
    with Live(console=progress, auto_refresh=False, transient=True) as live:

        def watched() -> Iterator[Row]:
            for row in run(demo):
                latest[row["rule"]] = row
                rows.append(row)
                if progress.is_terminal:
                    live.update(_table(demo, latest), refresh=True)
                elif row["iteration"] % 25 == 0:
                    progress.print(_line(row), highlight=False)
                yield row

        if json is None:
            for _ in watched():
                pass
        else:
            write_rows(json, watched())
    out.print(_table(demo, latest))
    out.print(f"One head trained on all benign samples together (the oracle): {oracle_accuracy(demo):.1%}.")
    told = _decisions(demo, latest)
    if told is not None:
        out.print(told)
    out.print(f"{demo.iterations} iterations of {len(demo.rules)} worlds in {time.monotonic() - started:.1f} s.")
    if json is not None:
        out.print(f"Rows: {json}", highlight=False)
    sys.stdout.flush()


def _about(demo: Demo) -> str:
    return (
        f"{demo.peers} peers hold {demo.classes_per_peer} of the 10 digits each, 2 samples a class to learn from; "
        f"{demo.attackers} attackers send every one of them heads made by the attack '{demo.attack}'. "
        f"Each rule gets a world of its own; accuracy is on all 10,000 test images of MNIST."
    )


def _line(row: Row) -> str:
    return (
        f"{row['rule']:>8}, iteration {row['iteration']}: accuracy {row['accuracy_mean']:.1%}, worst peer "
        f"{row['accuracy_min']:.1%}, attackers' share {row['attacker_weight']:.1%}"
    )


def _table(demo: Demo, latest: dict[str, Row]) -> Table:
    table = Table(title="Accuracy of the benign peers", title_justify="left")
    for name in ("rule", "iteration", "accuracy", "worst peer", "attackers", ""):
        table.add_column(name, justify="right" if name not in ("rule", "") else "left")
    for rule in demo.rules:
        row = latest.get(rule)
        if row is None:
            table.add_row(rule, "0", "", "", "", "")
            continue
        length = round(BAR * row["accuracy_mean"])
        style = "green" if row["accuracy_mean"] > 0.9 else "yellow" if row["accuracy_mean"] > 0.5 else "red"
        table.add_row(
            Text(rule, style="bold" if rule == "bristle" else ""),
            str(row["iteration"]),
            f"{row['accuracy_mean']:.1%}",
            f"{row['accuracy_min']:.1%}",
            f"{row['attacker_weight']:.1%}",
            Text("█" * length + "·" * (BAR - length), style=style),
        )
    return table


def _decisions(demo: Demo, latest: dict[str, Row]) -> Group | None:
    told = said_of(latest, demo)
    if not told:
        return None
    table = Table(title="What peer 0 decided in its last iteration, and why (bristle)", title_justify="left")
    table.add_column("from")
    table.add_column("decision")
    for name, words in told:
        table.add_row(name, Text(words, style="" if words.startswith("kept") else "dim"))
    return Group(table)
