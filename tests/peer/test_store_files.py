"""What is told of stores, logs and locks that cannot be used."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bristle.peer.store_files import StoreError, TryAgainError, is_cut_short, log_of, look_at_log, told_if_damaged


def test_a_store_without_a_log_has_lost_nothing(tmp_path: Path) -> None:
    store = tmp_path / "peer.sqlite"
    assert look_at_log(store) is None
    log_of(store).write_bytes(b"")
    assert look_at_log(store) is None
    with closing(sqlite3.connect(store)) as database:
        assert not is_cut_short(None, database)


def test_a_log_whose_header_is_damaged_is_cut_short(tmp_path: Path) -> None:
    store = tmp_path / "peer.sqlite"
    log_of(store).write_bytes(bytes(32) + bytes(4096))
    log = look_at_log(store)
    assert log is not None
    assert not log.headed
    with closing(sqlite3.connect(":memory:")) as database:
        assert is_cut_short(log, database)


def test_what_a_log_holds_is_counted(tmp_path: Path) -> None:
    store = tmp_path / "peer.sqlite"
    with closing(sqlite3.connect(store, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE one (value INTEGER)")
        for value in range(3):
            database.execute("INSERT INTO one VALUES (?)", (value,))
        log = look_at_log(store)
        assert log is not None
        assert log.headed
        assert len(log.commits) == 4
        assert not is_cut_short(log, database)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "no space left"), TryAgainError),
        (OSError(errno.EACCES, "permission denied"), StoreError),
    ],
)
def test_a_store_that_the_machine_keeps_from_us_stays_where_it_is(
    tmp_path: Path, error: OSError, kind: type[StoreError]
) -> None:
    store = tmp_path / "peer.sqlite"
    store.write_bytes(b"anything")
    said = r"cannot be opened: .*; check its folder's permissions and free space"
    with pytest.raises(kind, match=said) as found, told_if_damaged(store):
        raise error
    assert type(found.value) is kind
    assert store.exists()


def test_a_store_that_cannot_be_opened_is_told_from_one_that_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "peer.sqlite"
    folder.mkdir()
    with pytest.raises(StoreError, match="cannot be opened: unable to open database file"), told_if_damaged(folder):
        sqlite3.connect(folder).execute("SELECT 1 FROM sqlite_master")
    assert folder.exists()


def test_what_was_said_of_a_store_is_not_said_twice(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^of another group$"), told_if_damaged(tmp_path / "peer.sqlite"):
        raise StoreError("of another group")
