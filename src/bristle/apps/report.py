"""Results files in, something to look at out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import bristle
from bristle.apps.progress import patient_bar
from bristle.report import report_of, write
from bristle.report.from_rows import check_row

Row = dict[str, Any]


def report_on(paths: Sequence[Path], *, out: Path, title: str | None = None) -> list[Path]:
    """Write a report on the rows of JSON Lines files to a folder; return the paths that were written."""
    rows = [row for path in paths for row in read_rows(path)]
    facts = [("Results files", ", ".join(path.name for path in paths)), ("Bristle", bristle.__version__)]
    report = report_of(rows, facts=facts, **({} if title is None else {"title": title}))
    with patient_bar("Drawing figures", console=Console(stderr=True)) as watched:
        return write(report, out, progress=watched)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSON Lines file; a last line that was cut short is left out, with a word on stderr."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give results as `bristle simulate --json FILE` writes them")
    text = _text_of(path)
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
            check_row(row)
        except ValueError as error:
            raise ValueError(f"{path} line {number}: {error}") from error
        yield row


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file, let alone JSON Lines: {error}") from error
