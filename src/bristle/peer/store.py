"""What a peer must not lose: head, optimiser, iteration, samples, decisions and counters, in one SQLite file.

Every change is one transaction in a write-ahead log. A process that is killed at any moment leaves the state after
its last whole iteration; the next one to open the file finds that and nothing else. Samples are on the disk when
`add_samples` returns, whatever happens to the machine; of iterations a power failure may cost the last few, and never
the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bristle.learning.adam import HeadState
from bristle.learning.samples import Samples
from bristle.peer.grouping import Grouping
from bristle.peer.record import Iteration
from bristle.peer.step import PeerState
from bristle.peer.store_files import StoreError, move_aside

VERSION = 1
APPLICATION = 0x42525354  # "BRST": tells our files from others
KEPT_DECISIONS = 500

_SCHEMA = f"""
CREATE TABLE about (id INTEGER PRIMARY KEY CHECK (id = 1), identity TEXT NOT NULL, grouping TEXT NOT NULL);
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1), iteration INTEGER NOT NULL, steps INTEGER NOT NULL,
    arrays BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE samples (
    id INTEGER PRIMARY KEY, label INTEGER NOT NULL, held_out INTEGER NOT NULL,
    features BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE decisions (iteration INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE spending (period INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


@dataclass(frozen=True, eq=False)
class Saved:
    """The state after an iteration."""

    iteration: int
    state: PeerState


class PeerStore:
    """An open store. Safe to use from several threads; every method is one transaction.

    Parameters
    ----------
    path : Path
        The SQLite file; made where there is none.
    identity : str
        The key id of the peer it belongs to, in hexadecimal.
    grouping : Grouping
        The group it belongs to.

    Raises
    ------
    StoreError
        For a store of another peer, group or version; for a damaged one, which is moved aside first.
    """

    def __init__(self, path: Path, *, identity: str, grouping: Grouping) -> None:
        self.path = path
        self.grouping = grouping
        self._lock = threading.Lock()
        with _told_if_damaged(path):
            # Only the owner may read it, whatever the folder's mode; SQLite gives its log the same rights.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            with self._closed_on_error():
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._prepare(identity)

    def _prepare(self, identity: str) -> None:
        """Make the tables, or check that those which are there are ours and whole."""
        database = self._connection
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            # executescript commits by itself; the tables come in one transaction or not at all.
            database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        check_version(database, self.path)
        _check_whole(database)
        row = database.execute("SELECT identity, grouping FROM about").fetchone()
        if row is None:
            with self._transaction():
                database.execute("INSERT INTO about VALUES (1, ?, ?)", (identity, self.grouping.to_json()))
            return
        if difference := self.grouping.difference(Grouping.from_json(row[1])):
            raise StoreError(f"{self.path} belongs to another group: {difference}; give this peer a folder of its own")
        if row[0] != identity:
            raise StoreError(
                f"{self.path} belongs to the peer {row[0][:16]}, not to {identity[:16]}: put back its key file, or "
                "give this peer a folder of its own"
            )

    def load(self) -> Saved | None:
        """Return the state after the last iteration that was saved; None before the first."""
        with self._lock, _told_if_damaged(self.path), self._closed_on_error():
            row = self._connection.execute("SELECT iteration, steps, arrays, checksum FROM state").fetchone()
            if row is None:
                return None
            iteration, steps, blob, checksum = row
            classes, features = self.grouping.shape
            if zlib.crc32(blob) != checksum or len(blob) != 4 * 4 * classes * features:
                raise sqlite3.DatabaseError("the head's checksum does not match")
        arrays = np.frombuffer(blob, dtype="<f4").astype(np.float32).reshape(4, classes, features)
        trained = HeadState(arrays[0], arrays[1], arrays[2], np.asarray(steps, dtype=np.int64))
        return Saved(iteration, PeerState(trained, arrays[3]))

    def samples(self) -> tuple[Samples, Samples]:
        """Return all samples in the order of arrival: those for training, and those held out."""
        with self._lock, _told_if_damaged(self.path), self._closed_on_error():
            rows = self._connection.execute(
                "SELECT label, held_out, features, checksum FROM samples ORDER BY id"
            ).fetchall()
            for _, _, blob, checksum in rows:
                if zlib.crc32(blob) != checksum or len(blob) != 4 * self.grouping.features:
                    raise sqlite3.DatabaseError("a sample's checksum does not match")
        return _unpacked(rows, False, self.grouping.features), _unpacked(rows, True, self.grouping.features)

    def add_samples(self, training: Samples, held_out: Samples) -> None:
        """Add samples; they are on the disk when this returns."""
        rows = [*_packed(training, False), *_packed(held_out, True)]
        with self._transaction(durable=True):
            self._connection.executemany(
                "INSERT INTO samples (label, held_out, features, checksum) VALUES (?, ?, ?, ?)", rows
            )

    def save(
        self,
        iteration: int,
        state: PeerState,
        record: Iteration,
        *,
        counters: Mapping[str, int],
        spending: Mapping[int, int],
    ) -> None:
        """Keep the state after an iteration, with what is told about it. What the rule remembers is not kept."""
        trained = state.trained
        arrays = np.stack([trained.head, trained.first, trained.second, state.previous])
        blob = np.ascontiguousarray(arrays, dtype="<f4").tobytes()
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?)",
                (iteration, int(trained.steps), blob, zlib.crc32(blob)),
            )
            self._connection.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?)", (iteration, record.to_json()))
            self._connection.execute("DELETE FROM decisions WHERE iteration <= ?", (iteration - KEPT_DECISIONS,))
            self._keep(counters, spending)

    def keep(self, *, counters: Mapping[str, int], spending: Mapping[int, int]) -> None:
        """Keep counters and what was spent, between iterations."""
        with self._transaction():
            self._keep(counters, spending)

    def _keep(self, counters: Mapping[str, int], spending: Mapping[int, int]) -> None:
        self._connection.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", counters.items())
        self._connection.executemany("INSERT OR REPLACE INTO spending VALUES (?, ?)", spending.items())
        self._connection.execute("DELETE FROM spending WHERE period < ?", (min(spending, default=0),))

    def decisions(self, last: int = KEPT_DECISIONS) -> list[Iteration]:
        """Return the last records, oldest first."""
        with self._lock:
            return read_decisions(self._connection, last)

    def counters(self) -> dict[str, int]:
        """Return the counters."""
        with self._lock:
            return dict(self._connection.execute("SELECT name, value FROM counters"))

    def spending(self) -> dict[int, int]:
        """Return the bytes sent in each period that is still remembered."""
        with self._lock:
            return dict(self._connection.execute("SELECT period, bytes FROM spending"))

    def close(self) -> None:
        """Close the file; SQLite puts the log into it."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        with self._lock:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                self._undo()
                raise StoreError(f"{self.path} cannot be written: {error}; free some space and start again") from error
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        if self._connection.in_transaction:  # SQLite itself gives up some of them.
            self._connection.execute("ROLLBACK")


def read_decisions(database: sqlite3.Connection, last: int) -> list[Iteration]:
    """Return the last records of an open store, oldest first."""
    rows = database.execute("SELECT record FROM decisions ORDER BY iteration DESC LIMIT ?", (last,)).fetchall()
    return [Iteration.from_json(record) for (record,) in reversed(rows)]


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


def _check_whole(database: sqlite3.Connection) -> None:
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(" ".join(found.split()))


@contextmanager
def _told_if_damaged(path: Path) -> Iterator[None]:
    """Move a damaged file aside and say so. One that is only busy or unreadable stays where it is."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise StoreError(f"{path} cannot be opened: {error}; check its folder's permissions and free space") from error
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, StoreError):
            raise
        aside = move_aside(path)
        raise StoreError(
            f"{path} is damaged ({error}) and was moved to {aside.name}; start again to begin anew with the same "
            "identity, or put a backup in its place"
        ) from error


def _packed(samples: Samples, held_out: bool) -> Iterator[tuple[int, int, bytes, int]]:
    for label, features in zip(samples.labels, samples.features, strict=True):
        blob = np.ascontiguousarray(features, dtype="<f4").tobytes()
        yield int(label), int(held_out), blob, zlib.crc32(blob)


def _unpacked(rows: list[tuple[int, int, bytes, int]], held_out: bool, features: int) -> Samples:
    wanted = [(label, blob) for label, out, blob, _ in rows if bool(out) == held_out]
    values = np.frombuffer(b"".join(blob for _, blob in wanted), dtype="<f4").astype(np.float32)
    return Samples(values.reshape(-1, features), np.array([label for label, _ in wanted], dtype=np.int64))
