"""Results as JSON Lines, written in whole lines."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Self, TextIO

from bristle.peer.record import Turn

Row = Mapping[str, object]


def json_line(row: Row) -> str:
    """Return a row as a line of JSON."""
    return json.dumps(row, allow_nan=False) + "\n"


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write rows to `path`, each as soon as it comes."""
    with row_writer(path) as write:
        for row in rows:
            write(row)


@contextmanager
def row_writer(path: Path | None, *, fresh: bool = True) -> Iterator[Callable[[Row], None]]:
    """Yield a function that writes a row to `path`, or discards it if `path` is None.

    An existing file is emptied at once if `fresh`, else with the first row.
    """
    if path is None:
        yield lambda row: None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if fresh:
        path.write_text("", encoding="utf-8")
    files: list[TextIO] = []

    def write(row: Row) -> None:
        if not files:
            files.append(path.open("w", encoding="utf-8"))
        files[0].write(json_line(row))
        files[0].flush()

    try:
        yield write
    finally:
        for file in files:
            file.close()


LOG = logging.getLogger("bristle.peer")
_BLOCK = 2**16


class RowsFile:
    """A JSON Lines file to append to, one row per iteration.

    An incomplete last line of an earlier process is removed. On a full disk the row is skipped with a warning in the
    log: the iteration itself is in the store.

    Parameters
    ----------
    path : Path
        The file; created, with its folder, if missing.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("a+b", buffering=0)
        self._cut_half_a_line()
        self._left_out = 0

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close it."""
        self._file.close()

    def write(self, turn: Turn) -> None:
        """Add the row of an iteration."""
        line = json_line({**asdict(turn.record), "shared": turn.shared})
        size = os.fstat(self._file.fileno()).st_size
        try:
            rest = memoryview(line.encode())
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._file.truncate(size)
            if not self._left_out:
                details = {"file": str(self.path), "why": str(error), "from_iteration": turn.record.iteration}
                LOG.warning("rows are left out", extra={"details": details})
            self._left_out += 1
            return
        if self._left_out:
            LOG.warning("rows are written again", extra={"details": {"left_out": self._left_out}})
            self._left_out = 0

    def _cut_half_a_line(self) -> None:
        end = size = os.fstat(self._file.fileno()).st_size
        while end > 0:
            start = max(0, end - _BLOCK)
            self._file.seek(start)
            place = self._file.read(end - start).rfind(b"\n")
            if place >= 0:
                end = start + place + 1
                break
            end = start
        if end < size:
            self._file.truncate(end)
