"""The files around a peer's store: who has it, and where a damaged one goes."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

STORE = "peer.sqlite"
LOCK = "running.lock"
IDENTITY = "identity.key"
TOKEN = "http.token"
ENDPOINT = "http.json"
"""Says where a running peer listens for HTTP."""


class StoreError(ValueError):
    """A store that cannot be used, and what to do about it."""


class TryAgainError(StoreError):
    """The machine's fault, such as a full disk, and not the input's: another try, now or later, may do."""


class AlreadyRunningError(StoreError):
    """Another process has the folder."""


class FolderLock:
    """The right to run a peer in a folder: one process at a time has it, and a killed one gives it up.

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
        """Let another process have the folder."""
        self._connection.close()


def is_running(folder: Path) -> bool:
    """Tell whether some process runs a peer in this folder."""
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
    """Create a folder that only its owner can look into; one that is there already stays as it is."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def free_name(path: Path) -> Path:
    """Return a name for what is put aside that nothing has yet."""
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
