"""Files around a peer's store: locks, damage checks and the write-ahead log."""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

STORE = "peer.sqlite"
LOCK = "running.lock"
IDENTITY = "identity.key"
TOKEN = "http.token"
ENDPOINT = "http.json"
"""Holds the HTTP address of a running peer."""


class StoreError(ValueError):
    """A store that cannot be used, and what to do about it."""


class TryAgainError(StoreError):
    """The machine's fault, such as a full disk, and not the input's: another try, now or later, may do."""


class AlreadyRunningError(StoreError):
    """Another process has the folder."""


class FolderLock:
    """An exclusive lock on a peer's folder, released when its process ends, however that happens.

    It is an exclusive transaction on an empty SQLite file: every system that runs SQLite has such a lock, and it
    goes with the process, however that ends.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / LOCK, timeout=0.2, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            self._connection.close()
            code = error.sqlite_errorcode & 0xFF
            if code == sqlite3.SQLITE_BUSY:
                raise AlreadyRunningError(
                    f"a peer is running in {folder} already: stop it first, or give this one a folder of its own"
                ) from error
            said = f"{folder / LOCK} cannot be used: {error}"
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise TryAgainError(f"{said}; free some space on its disk") from error
            raise StoreError(
                f"{said}; check its folder's permissions, or remove the file while no peer runs there"
            ) from error

    def release(self) -> None:
        """Release the lock."""
        self._connection.close()


def is_running(folder: Path) -> bool:
    """Return whether a peer is running in this folder."""
    if not (folder / LOCK).exists():
        return False
    try:
        FolderLock(folder).release()
    except AlreadyRunningError:
        return True
    except TryAgainError:  # The lock was free; there is no room to take it.
        return False
    return False


def make_private(folder: Path) -> None:
    """Create a folder readable by its owner only; an existing one is left as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def free_name(path: Path) -> Path:
    """Return an unused name for a file to be put aside."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def move_aside(path: Path) -> Path:
    """Rename a damaged store and what SQLite keeps beside it; return its new name. Nothing is overwritten."""
    aside = free_name(path)
    for suffix in ("-wal", "-shm", ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            os.replace(beside, aside.with_name(aside.name + suffix))
    return aside


VERSION = 2
APPLICATION = 0x42525354  # "BRST": marks our files

_NO_ACCESS = {sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_AUTH}
_NOT_NOW = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM}


def seal(*values: int | str | bytes) -> int:
    """Return the CRC-32 of a row: of each value's length and bytes."""
    checksum = 0
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        checksum = zlib.crc32(data, zlib.crc32(len(data).to_bytes(8, "little"), checksum))
    return checksum


def checked(row: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    """Return a row without its last column, which is its checksum."""
    *values, checksum = row
    if seal(*values) != checksum:
        raise sqlite3.DatabaseError(f"{what} has a wrong checksum")
    return tuple(values)


def check_version(database: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not ours, or that a later version wrote."""
    if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreError(f"{path} is a database, but not one of Bristle's: give the peer another folder")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise StoreError(
            f"{path} has version {version}, and this Bristle reads version {VERSION}: "
            "install the Bristle that wrote it, or give the peer another folder"
        )


def check_whole(database: sqlite3.Connection) -> None:
    """Check SQLite's own structures, and every row that is not checked when it is read."""
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(" ".join(found.split()))
    for what, columns, table in (
        ("its first page", "identity, grouping", "about"),
        ("a decision", "iteration, record", "decisions"),
        ("a counter", "name, value", "counters"),
        ("what was spent", "period, bytes", "spending"),
    ):
        for row in database.execute(f"SELECT {columns}, checksum FROM {table}"):
            checked(row, what)


@contextmanager
def transaction(database: sqlite3.Connection, path: Path, *, durable: bool) -> Iterator[None]:
    """Run the block as one transaction, on the disk at its end if `durable`; undo it if anything goes wrong."""
    try:
        database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("COMMIT")
    except BaseException as error:
        if database.in_transaction:  # SQLite itself gives up some of them.
            database.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError):
            raise TryAgainError(f"{path} cannot be written: {error}; free some space on its disk") from error
        if isinstance(error, sqlite3.DatabaseError):
            raise StoreError(f"{path} is damaged ({error}): start again to have it checked") from error
        raise


@contextmanager
def told_if_damaged(path: Path) -> Iterator[None]:
    """Move a damaged file aside and say so. One that is only busy or unreadable stays where it is."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, StoreError):
            raise
        if (kind := _not_damaged(error)) is not None:
            raise kind(f"{path} cannot be opened: {error}; check its folder's permissions and free space") from error
        aside = move_aside(path)
        raise StoreError(
            f"{path} is damaged ({error}) and was moved to {aside.name}; start again for a new store with the same "
            "identity, or restore a backup"
        ) from error


def _not_damaged(error: Exception) -> type[StoreError] | None:
    """Return the kind of error where it is the machine that does not let us, and not the file that is damaged."""
    if isinstance(error, OSError):
        return TryAgainError if error.errno in (ENOSPC, EDQUOT) else StoreError
    if not isinstance(error, sqlite3.OperationalError):
        return None
    code = vars(error).get("sqlite_errorcode", 0) & 0xFF  # Python's own errors have none.
    return TryAgainError if code in _NOT_NOW else StoreError if code in _NO_ACCESS else None


_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_MASK = 0xFFFFFFFF


# The index of the log: version, unused, changes, flags, frames, pages, checksum of the last frame, salts, checksum.
_INDEX = struct.Struct("=3I4s8I")


@dataclass(frozen=True)
class Log:
    """The headers of a write-ahead log, read before SQLite opens it.

    Parameters
    ----------
    headed : bool
        Whether its first bytes are those of a log.
    commits : tuple of int
        Frames, from 1, that end a transaction of this log. One that the log's index does not have is left out: its
        process was killed while it wrote it.
    """

    headed: bool
    commits: tuple[int, ...]


def log_of(store: Path) -> Path:
    """Return where SQLite keeps the log of a store."""
    return store.with_name(store.name + "-wal")


def index_of(store: Path) -> Path:
    """Return where SQLite keeps the index of the log of a store."""
    return store.with_name(store.name + "-shm")


def look_at_log(store: Path) -> Log | None:
    """Read the headers of a store's log; None where there is none, or nothing in it."""
    indexed = _indexed_frames(store)
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
            last = indexed.get((salts[0], salts[1]), number)
            return Log(True, tuple(commit for commit in commits if commit <= last))
    except FileNotFoundError:
        return None


def _indexed_frames(store: Path) -> dict[tuple[int, int], int]:
    """Return how many frames of a log the last writer had finished, by the log's salts; nothing if unknown.

    SQLite writes a frame's header before its page, and the index after the last frame of a transaction. So a process
    that is killed in between leaves a header that looks like a commit, with an older page behind it. The index is
    shared memory, of the last writer's byte order, and outlives a killed process. After a crash of the machine it may
    be missing or stale.
    """
    try:
        with index_of(store).open("rb") as file:
            header = file.read(_INDEX.size)
    except FileNotFoundError:
        return {}
    if len(header) < _INDEX.size:
        return {}
    *_, frames, _, _, _, _, _, first, second = _INDEX.unpack(header)
    if (first, second) != _checksum(header[:-8], "<" if sys.byteorder == "little" else ">"):
        return {}
    salts = struct.unpack_from(">2I", header, 32)  # As they are in the log, whatever the machine's byte order.
    return {(salts[0], salts[1]): frames}


def is_cut_short(log: Log | None, database: sqlite3.Connection) -> bool:
    """Return whether transactions that are in a log were not among what SQLite could read of it."""
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
