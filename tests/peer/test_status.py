from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from bristle.learning.optimiser import HeadState
from bristle.peer.record import Heard, Iteration
from bristle.peer.status import ClassCount, Status, read_status
from bristle.peer.step import StepState
from bristle.peer.store import PeerStore
from bristle.peer.store_files import STORE, StoreError
from bristle.wire.group import Group

GROUP = Group(application="digits", backbone="ab" * 32, classes=("a", "b", "c"), features=4)
IDENTITY = "01" * 20


def store_in(folder: Path) -> PeerStore:
    folder.mkdir(exist_ok=True)
    return PeerStore(folder / STORE, identity=IDENTITY, group=GROUP)


def test_a_peer_that_has_done_nothing_yet(tmp_path: Path) -> None:
    store_in(tmp_path).close()
    found = read_status(tmp_path, running=False)
    assert found == Status(
        running=False,
        key_id=IDENTITY,
        application="digits",
        iteration=0,
        samples=tuple(ClassCount(name=name, training=0, held_out=0) for name in "abc"),
        counters={},
        bytes_last_day=0,
    )
    assert Status.from_dict(found.to_dict()) == found


def test_a_peer_that_has_worked(tmp_path: Path) -> None:
    heard = Heard(sender="ff" * 20, iteration=3, share=0.25, reason="kept", words="kept: 25.0% of the head")
    records = [
        Iteration(iteration=1, at=1.0, seconds=0.1, heard=(heard,), accuracy=0.5),
        Iteration(iteration=2, at=2.0, seconds=0.1),
    ]
    zeros = np.zeros((3, 4), dtype=np.float32)
    with closing(store_in(tmp_path)) as store:
        for record in records:
            state = StepState(HeadState(zeros, zeros, zeros, np.asarray(record.iteration)), zeros)
            store.save(record.iteration, state, record, counters={"heads_in": 7}, spending={1: 99})
        while_open = read_status(tmp_path, running=True)
    found = read_status(tmp_path, running=False)
    assert while_open.running
    assert (found.iteration, found.counters, found.bytes_last_day) == (2, {"heads_in": 7}, 99)
    assert found.last == records[1]
    assert found.decided == records[0], "the last one in which somebody was heard"
    assert found.accuracy == 0.5
    assert Status.from_dict(found.to_dict()) == found


def test_where_there_is_no_peer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no peer in"):
        read_status(tmp_path, running=False)
    (tmp_path / STORE).write_bytes(b"this is no database, whatever it is called" * 50)
    with pytest.raises(StoreError, match="cannot be read"):
        read_status(tmp_path, running=False)


def test_a_database_of_something_else_or_of_a_later_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / STORE)) as other:
        other.execute("CREATE TABLE about (identity, grouping)")
        other.commit()
    with pytest.raises(StoreError, match="not one of Bristle's"):
        read_status(tmp_path, running=False)
    folder = tmp_path / "later"
    store_in(folder).close()
    with closing(sqlite3.connect(folder / STORE)) as later:
        later.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="has version 99, and this Bristle reads version"):
        read_status(folder, running=False)


def test_a_peer_that_was_stopped_before_it_had_begun(tmp_path: Path) -> None:
    store_in(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / STORE)) as database:
        database.execute("DELETE FROM about")
        database.commit()
    with pytest.raises(StoreError, match="stopped before it had begun"):
        read_status(tmp_path, running=False)
