"""`bristle report`: results files in, figures and HTML pages out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bristle
from bristle._core.files import write_atomically
from bristle.commands.progress import patient_bar, terminal
from bristle.report import report_of, write
from bristle.report.from_rows import check_row
from bristle.report.live_page import recorded_page
from bristle.report.recorded import (
    THIS_PEER,
    check_peer_record,
    is_peer_record,
    recorded_runs,
    rows_of_peer,
    run_of_peer,
)
from bristle.report.snapshot import Snapshot, read_snapshot

Row = dict[str, Any]

RUN = "run.html"
"""The page of every run: accuracy, weights, connections and reasons as the live page shows them."""


def report_on(paths: Sequence[Path], *, out: Path, title: str | None = None) -> list[Path]:
    """Write a report on the rows of JSON Lines files to a folder; return the paths written, pages first.

    The files may also come from `bristle peer --json`. If no row has an accuracy, only the page of the run is written.
    """
    rows: list[Row] = []
    peers: list[Snapshot] = []
    for path in paths:
        found = list(read_rows(path))
        records = [row for row in found if is_peer_record(row)]
        rows += [row for row in found if not is_peer_record(row)]
        if records:
            peers.append(run_of_peer(records, name=path.stem))
            rows += rows_of_peer(records, name=path.stem)
    worlds = [row for row in rows if row["rule"] != THIS_PEER]
    runs = [*peers, *(recorded_runs(worlds) if worlds or not peers else [])]
    facts = [("Results files", ", ".join(path.name for path in paths)), ("Bristle", bristle.__version__)]
    report = report_of(rows, facts=facts, **({} if title is None else {"title": title})) if rows or not peers else None
    page = recorded_page(runs, title=title or "Bristle: results")
    written: list[Path] = []
    if report is not None:
        with patient_bar("Drawing figures", console=terminal(stderr=True)) as watched:
            written = write(report, out, progress=watched)
    write_atomically(out / RUN, [page.encode()])
    return [*written[:1], out / RUN, *written[1:]]


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file; an incomplete last line is skipped, with a message on stderr."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give results as `bristle simulate --json FILE` writes them")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: {error}") from error
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines) and not text.endswith("\n"):
                print(f"bristle: {path} line {number} was cut short and is left out", file=sys.stderr)
                return
            raise ValueError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f'{path} line {number} must be an object like {{"rule": ...}}, and is {line[:40]!r}')
        try:
            (check_peer_record if is_peer_record(row) else check_row)(row)
            if row.get("snapshot") is not None:
                row["snapshot"] = read_snapshot(row["snapshot"]).to_dict()
        except ValueError as error:
            raise ValueError(f"{path} line {number}: {error}") from error
        yield row
