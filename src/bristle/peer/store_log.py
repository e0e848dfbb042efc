"""SQLite's write-ahead log, looked at from outside: whether something that was kept in it can no longer be read.

SQLite reads its log up to the first frame whose checksum is wrong, and goes on from there without a word: right after a
power failure, where that is the end of what reached the disk, and wrong where a bit has flipped in the middle.
A frame that ends a transaction, has the salts of the log it stands in, and lies beyond what SQLite could read was a
promise once. (File format: https://www.sqlite.org/fileformat2.html, section 4.)
"""

from __future__ import annotations

import os
import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Log:
    """What a log's headers say, before SQLite opens it.

    Parameters
    ----------
    headed : bool
        Whether its first bytes are those of a log.
    commits : tuple of int
        Frames, from 1, that end a transaction of this log.
    """

    headed: bool
    commits: tuple[int, ...]


def log_of(store: Path) -> Path:
    """Return where SQLite keeps the log of a store."""
    return store.with_name(store.name + "-wal")


def look_at_log(store: Path) -> Log | None:
    """Read the headers of a store's log; None where there is none, or nothing in it."""
    try:
        with log_of(store).open("rb") as file:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            magic, _, page, _, *salts, first, second = _HEADER.unpack(header)
            if magic not in _MAGIC or (first, second) != _checksum(header[:24], "<" if magic == _MAGIC[0] else ">"):
                return Log(False, ())
            size, commits, number = os.fstat(file.fileno()).st_size, list[int](), 0
            while _HEADER.size + (number + 1) * (_FRAME.size + page) <= size:
                file.seek(_HEADER.size + number * (_FRAME.size + page))
                number += 1
                _, pages, *theirs, _, _ = _FRAME.unpack(file.read(_FRAME.size))
                if pages and theirs == salts:
                    commits.append(number)
            return Log(True, tuple(commits))
    except FileNotFoundError:
        return None


def is_cut_short(log: Log | None, database: sqlite3.Connection) -> bool:
    """Tell whether transactions that are in a log were not among what SQLite could read of it."""
    if log is None:
        return False
    if not log.headed:
        return True
    # The second figure is how many frames of the log are sound.
    _, sound, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return any(commit > max(sound, 0) for commit in log.commits)


def _checksum(data: bytes, order: str) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second
