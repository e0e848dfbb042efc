"""Whether a store is ours and whole, and what becomes of one that is not."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

from bristle.peer.store_files import StoreError, TryAgainError, move_aside

VERSION = 2
APPLICATION = 0x42525354  # "BRST": tells our files from others

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
            f"{path} is damaged ({error}) and was moved to {aside.name}; start again to begin anew with the same "
            "identity, or put a backup in its place"
        ) from error


def _not_damaged(error: Exception) -> type[StoreError] | None:
    """Return the kind of error where it is the machine that does not let us, and not the file that is damaged."""
    if isinstance(error, OSError):
        return TryAgainError if error.errno in (ENOSPC, EDQUOT) else StoreError
    if not isinstance(error, sqlite3.OperationalError):
        return None
    code = vars(error).get("sqlite_errorcode", 0) & 0xFF  # Python's own errors have none.
    return TryAgainError if code in _NOT_NOW else StoreError if code in _NO_ACCESS else None
