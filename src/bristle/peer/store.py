"""The persistent state of a peer: head, optimiser, iteration, samples, decisions and counters, in one SQLite file.

Every change is one transaction in a write-ahead log. A process that is killed at any moment leaves the state after
its last whole iteration; the next one to open the file finds that and nothing else. Samples are on the disk when
`add_samples` returns, whatever happens to the machine; of iterations a power failure may cost the last few, and never
the file. Every row has a checksum: SQLite has none.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.peer.evidence import StatedSamples
from bristle.peer.record import Iteration
from bristle.peer.step import StepState
from bristle.peer.store_files import (
    APPLICATION,
    VERSION,
    Log,
    StoreError,
    TryAgainError,
    check_version,
    check_whole,
    checked,
    free_name,
    is_cut_short,
    log_of,
    look_at_log,
    seal,
    told_if_damaged,
    transaction,
)
from bristle.wire.group import Group
from bristle.wire.statements import SignedStatement

KEPT_DECISIONS = 500

# What the rule remembers; stores of earlier versions lack it.
_MEMORY = """CREATE TABLE IF NOT EXISTS memory (
    name TEXT PRIMARY KEY, dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL, checksum INTEGER NOT NULL);"""

# What peers stated; the own statement has counts, of the samples that it was made of. Earlier stores lack it.
_STATEMENTS = """CREATE TABLE IF NOT EXISTS statements (
    author TEXT PRIMARY KEY, counts BLOB NOT NULL, signed BLOB NOT NULL, checksum INTEGER NOT NULL);"""

# How many statements with noise were drawn. Earlier stores lack it.
_RELEASES = """CREATE TABLE IF NOT EXISTS releases (
    id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL, checksum INTEGER NOT NULL);"""

# By which samples that were removed are known again. Earlier stores lack it.
_REMOVED = """CREATE TABLE IF NOT EXISTS removed (digest BLOB PRIMARY KEY, checksum INTEGER NOT NULL) WITHOUT ROWID;"""

_SCHEMA = f"""
CREATE TABLE about (
    id INTEGER PRIMARY KEY CHECK (id = 1), identity TEXT NOT NULL, grouping TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1), iteration INTEGER NOT NULL, steps INTEGER NOT NULL,
    arrays BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE samples (
    id INTEGER PRIMARY KEY, label INTEGER NOT NULL, held_out INTEGER NOT NULL,
    features BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE decisions (iteration INTEGER PRIMARY KEY, record TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE spending (period INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, checksum INTEGER NOT NULL);
{_MEMORY}
{_STATEMENTS}
{_RELEASES}
{_REMOVED}
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
"""


@dataclass(frozen=True, eq=False)
class Saved:
    """The state after an iteration."""

    iteration: int
    state: StepState


@dataclass(frozen=True, eq=False)
class OwnStatement:
    """The own signed statement, and the number of samples of each class in it."""

    signed: SignedStatement
    stated: StatedSamples


class PeerStore:
    """An open store. Safe to use from several threads; every method is one transaction.

    Parameters
    ----------
    path : Path
        The SQLite file; made where there is none.
    identity : str
        The key id of the peer it belongs to, in hexadecimal.
    group : Group
        The group it belongs to.

    Raises
    ------
    StoreError
        For a store of another peer, group or version; for a damaged one, which is moved aside first.
    TryAgainError
        Where there is no room or no access now; where the end of the log was damaged, which is put aside: another
        start goes on from what is whole.
    """

    def __init__(self, path: Path, *, identity: str, group: Group) -> None:
        self.path = path
        self.group = group
        self._lock = threading.Lock()
        with told_if_damaged(path):
            log = look_at_log(path)
            # Only the owner may read it, whatever the folder's mode; SQLite gives its log the same rights.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            # Damaged text is for its checksum to find.
            self._connection.text_factory = lambda text: text.decode(errors="replace")
            with self._closed_on_error():
                self._check_log(log)  # First: what is written next goes into the same log.
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._prepare(identity)

    def _prepare(self, identity: str) -> None:
        """Make the tables, or check that those which are there are ours and whole."""
        database = self._connection
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            # executescript commits by itself; the tables come in one transaction or not at all.
            database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        check_version(database, self.path)
        database.execute(_MEMORY)
        database.execute(_STATEMENTS)
        database.execute(_RELEASES)
        database.execute(_REMOVED)
        check_whole(database)
        row = database.execute("SELECT identity, grouping, checksum FROM about").fetchone()
        if row is None:
            about = identity, self.group.to_json()
            with self._transaction():
                database.execute("INSERT INTO about VALUES (1, ?, ?, ?)", (*about, seal(*about)))
            return
        if difference := self.group.difference(Group.from_json(row[1])):
            raise StoreError(f"{self.path} belongs to another group: {difference}; give this peer a folder of its own")
        if row[0] != identity:
            raise StoreError(
                f"{self.path} belongs to the peer {row[0][:16]}, not to {identity[:16]}: put back its key file, or "
                "give this peer a folder of its own"
            )

    def _check_log(self, log: Log | None) -> None:
        """Raise an error if part of the log can no longer be read; what could be read is intact."""
        if not is_cut_short(log, self._connection):
            return
        tables = self._connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'state'").fetchone()[0]
        found = self._connection.execute("SELECT iteration FROM state").fetchone() if tables else None
        aside = free_name(log_of(self.path))
        shutil.copyfile(log_of(self.path), aside)
        raise TryAgainError(
            f"the log of {self.path} is damaged: what was kept after iteration {found[0] if found else 0} is lost, and "
            f"the log was put aside as {aside.name}; start again to go on from there, or put a backup in its place"
        )

    def load(self) -> Saved | None:
        """Return the state after the last iteration that was saved; None before the first."""
        with self._lock, told_if_damaged(self.path), self._closed_on_error():
            row = self._connection.execute("SELECT iteration, steps, arrays, checksum FROM state").fetchone()
            if row is None:
                return None
            iteration, steps, blob = checked(row, "the head")
            classes, features = self.group.shape
            kept = self._connection.execute("SELECT name, dtype, shape, data, checksum FROM memory").fetchall()
            memory = dict(_remembered(*checked(one, "the rule's memory")) for one in kept)
        arrays = np.frombuffer(blob, dtype="<f4").astype(np.float32).reshape(4, classes, features)
        trained = HeadState(arrays[0], arrays[1], arrays[2], np.asarray(steps, dtype=np.int64))
        return Saved(iteration, StepState(trained, arrays[3], memory or None))

    def samples(self) -> tuple[Samples, Samples]:
        """Return all samples in the order of arrival: those for training, and those held out."""
        with self._lock, told_if_damaged(self.path), self._closed_on_error():
            rows = self._connection.execute(
                "SELECT label, held_out, features, checksum FROM samples ORDER BY id"
            ).fetchall()
            for row in rows:
                checked(row, "a sample")
        return _unpacked(rows, False, self.group.features), _unpacked(rows, True, self.group.features)

    def add_samples(self, training: Samples, held_out: Samples) -> None:
        """Add samples; they are on the disk when this returns."""
        rows = [*_packed(training, False), *_packed(held_out, True)]
        with self._transaction(durable=True):
            self._connection.executemany(
                "INSERT INTO samples (label, held_out, features, checksum) VALUES (?, ?, ?, ?)", rows
            )

    def removed(self) -> set[bytes]:
        """Return the digests of the samples that were removed."""
        with self._lock, told_if_damaged(self.path), self._closed_on_error():
            rows = self._connection.execute("SELECT digest, checksum FROM removed").fetchall()
            return {checked(row, "the digest of a removed sample")[0] for row in rows}

    def remove_samples(
        self,
        training: npt.NDArray[np.bool],
        held_out: npt.NDArray[np.bool],
        *,
        digests: Iterable[bytes],
        own: OwnStatement | None,
    ) -> None:
        """Delete samples, by masks of those for training and of those held out, in their order.

        Their digests are kept, and the own statement with what is left of its samples. When this returns, nothing of
        the samples is in the file, nor in its log unless somebody else reads it.
        """
        with self._lock:
            self._connection.execute("PRAGMA secure_delete = ON").fetchall()  # Zeros in place of what is deleted.
        with self._transaction(durable=True):
            for out, gone in ((0, training), (1, held_out)):
                rows = self._connection.execute("SELECT id FROM samples WHERE held_out = ? ORDER BY id", (out,))
                ids = [row for row, lost in zip(rows.fetchall(), gone, strict=True) if lost]
                self._connection.executemany("DELETE FROM samples WHERE id = ?", ids)
            known = [(digest, seal(digest)) for digest in digests]
            self._connection.executemany("INSERT OR REPLACE INTO removed VALUES (?, ?)", known)
            if own is not None:
                self._keep_statement(own.signed, _packed_counts(own.stated))
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def save(
        self,
        iteration: int,
        state: StepState,
        record: Iteration,
        *,
        counters: Mapping[str, int],
        spending: Mapping[int, int],
        statements: Sequence[SignedStatement] = (),
        forgotten: Sequence[bytes] = (),
    ) -> None:
        """Keep the state after an iteration, its record, what the rule remembers, and what others newly stated.

        Statements of the authors in `forgotten` are removed.
        """
        trained = state.trained
        arrays = np.stack([trained.head, trained.first, trained.second, state.previous])
        kept = iteration, int(trained.steps), np.ascontiguousarray(arrays, dtype="<f4").tobytes()
        decided = iteration, record.to_json()
        rows = [_memory_row(name, values) for name, values in (state.memory or {}).items()]
        memory = [(*row, seal(*row)) for row in rows]
        with self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?)", (*kept, seal(*kept)))
            self._connection.execute("DELETE FROM memory")
            self._connection.executemany("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", memory)
            self._connection.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?)", (*decided, seal(*decided)))
            self._connection.execute("DELETE FROM decisions WHERE iteration <= ?", (iteration - KEPT_DECISIONS,))
            self._keep(counters, spending)
            for one in statements:
                self._keep_statement(one, b"")
            gone = [(author.hex(),) for author in forgotten]
            self._connection.executemany("DELETE FROM statements WHERE author = ? AND counts = x''", gone)

    def _keep_statement(self, signed: SignedStatement, counts: bytes) -> None:
        row = signed.author.hex(), counts, signed.to_bytes()
        self._connection.execute("INSERT OR REPLACE INTO statements VALUES (?, ?, ?, ?)", (*row, seal(*row)))

    def keep_own_statement(self, own: OwnStatement) -> None:
        """Keep the own statement; it is on the disk when this returns."""
        with self._transaction(durable=True):
            self._keep_statement(own.signed, _packed_counts(own.stated))

    def releases(self) -> int:
        """Return how many statements with noise were drawn."""
        with self._lock, told_if_damaged(self.path), self._closed_on_error():
            row = self._connection.execute("SELECT count, checksum FROM releases").fetchone()
            return 0 if row is None else int(checked(row, "the number of releases")[0])

    def count_release(self) -> None:
        """Count a statement with noise; it is on the disk when this returns, before anything is drawn."""
        count = self.releases() + 1
        with self._transaction(durable=True):
            self._connection.execute("INSERT OR REPLACE INTO releases VALUES (1, ?, ?)", (count, seal(count)))

    def own_statement(self) -> OwnStatement | None:
        """Return the own statement as it was signed last; None before the first."""
        found = self._statements("counts <> x''")
        if not found:
            return None
        signed, counts = found[0]
        return OwnStatement(signed, _unpacked_counts(counts, len(self.group.classes)))

    def statements(self) -> list[SignedStatement]:
        """Return what others stated, as it was kept last."""
        return [signed for signed, _ in self._statements("counts = x''")]

    def _statements(self, which: str) -> list[tuple[SignedStatement, bytes]]:
        with self._lock, told_if_damaged(self.path), self._closed_on_error():
            rows = self._connection.execute(
                f"SELECT author, counts, signed, checksum FROM statements WHERE {which} ORDER BY author"
            ).fetchall()
            kept = [checked(row, "a statement") for row in rows]
            return [(SignedStatement.from_bytes(signed), counts) for _, counts, signed in kept]

    def keep(self, *, counters: Mapping[str, int], spending: Mapping[int, int]) -> None:
        """Keep counters and what was spent, between iterations."""
        with self._transaction():
            self._keep(counters, spending)

    def _keep(self, counters: Mapping[str, int], spending: Mapping[int, int]) -> None:
        for table, rows in (("counters", counters.items()), ("spending", spending.items())):
            sealed = [(*row, seal(*row)) for row in rows]
            self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", sealed)
        # Later periods than any that is remembered are from before the clock was set back.
        bounds = min(spending, default=0), max(spending, default=0)
        self._connection.execute("DELETE FROM spending WHERE period NOT BETWEEN ? AND ?", bounds)

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
        with self._lock, transaction(self._connection, self.path, durable=durable):
            yield


def read_decisions(database: sqlite3.Connection, last: int) -> list[Iteration]:
    """Return the last records of an open store, oldest first."""
    rows = database.execute("SELECT record FROM decisions ORDER BY iteration DESC LIMIT ?", (last,)).fetchall()
    return [Iteration.from_json(record) for (record,) in reversed(rows)]


def _memory_row(name: str, values: npt.NDArray[Any]) -> tuple[str, str, str, bytes]:
    array = np.asarray(values, order="C")
    return name, array.dtype.str, json.dumps(array.shape), array.tobytes()


def _remembered(name: str, dtype: str, shape: str, data: bytes) -> tuple[str, npt.NDArray[Any]]:
    return name, np.frombuffer(data, dtype=np.dtype(dtype)).reshape(json.loads(shape)).copy()


def _packed(samples: Samples, held_out: bool) -> Iterator[tuple[int, int, bytes, int]]:
    for label, features in zip(samples.labels, samples.features, strict=True):
        row = int(label), int(held_out), np.ascontiguousarray(features, dtype="<f4").tobytes()
        yield *row, seal(*row)


def _packed_counts(stated: StatedSamples) -> bytes:
    rows = [*stated.counts, stated.sizes, stated.withdrawn]
    for counts, sizes in stated.earlier:
        rows += [*counts, sizes]
    return np.ascontiguousarray(np.stack(rows), dtype="<i8").tobytes()


def _unpacked_counts(data: bytes, classes: int) -> StatedSamples:
    rows = np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(-1, classes)
    if len(rows) == 2:  # Of a store from before samples could be removed.
        return StatedSamples(rows)
    earlier = [(rows[at : at + 2], rows[at + 2]) for at in range(4, len(rows), 3)]
    return StatedSamples(rows[:2], rows[2], rows[3].astype(np.bool), earlier)


def _unpacked(rows: list[tuple[int, int, bytes, int]], held_out: bool, features: int) -> Samples:
    wanted = [(label, blob) for label, out, blob, _ in rows if bool(out) == held_out]
    values = np.frombuffer(b"".join(blob for _, blob in wanted), dtype="<f4").astype(np.float32)
    return Samples(values.reshape(-1, features), np.array([label for label, _ in wanted], dtype=np.int64))
