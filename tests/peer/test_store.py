from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.peer.record import Heard, Iteration
from bristle.peer.step import StepState
from bristle.peer.store import KEPT_DECISIONS, PeerStore
from bristle.peer.store_files import FolderLock, Log, StoreError, is_running, log_of, look_at_log
from bristle.wire.group import Group

GROUP = Group(application="digits", backbone="ab" * 32, classes=("a", "b", "c"), features=4)
RNG = np.random.default_rng(0)


@contextmanager
def opened(path: Path, *, identity: str = "01" * 20, group: Group = GROUP) -> Iterator[PeerStore]:
    with closing(PeerStore(path, identity=identity, group=group)) as store:
        yield store


def state_of(value: float) -> StepState:
    filled = [np.full((3, 4), value + part, dtype=np.float32) for part in range(4)]
    return StepState(HeadState(filled[0], filled[1], filled[2], np.asarray(int(value))), filled[3])


def record_of(iteration: int) -> Iteration:
    heard = Heard(sender="ff" * 20, iteration=3, share=0.25, reason="kept", words="kept: 25.0% of the head")
    return Iteration(iteration=iteration, at=1.5, seconds=0.01, heard=(heard,), accuracy=0.5)


def save(store: PeerStore, iteration: int) -> None:
    store.save(
        iteration, state_of(iteration), record_of(iteration), counters={"bytes_out": iteration}, spending={7: iteration}
    )


def samples_of(count: int) -> Samples:
    return Samples(RNG.normal(size=(count, 4)).astype(np.float32), RNG.integers(0, 3, count))


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "peer.sqlite"
    training, held_out = samples_of(5), samples_of(3)
    with opened(path) as store:
        assert store.load() is None
        assert store.decisions() == []
        assert len(store.samples()[0].labels) == 0
        store.add_samples(training, held_out)
        for iteration in (1, 2, 3):
            save(store, iteration)
    with opened(path) as store:
        saved = store.load()
        assert saved is not None
        assert saved.iteration == 3
        for found, expected in (
            (saved.state.trained.head, 3.0),
            (saved.state.trained.first, 4.0),
            (saved.state.trained.second, 5.0),
            (saved.state.previous, 6.0),
        ):
            np.testing.assert_array_equal(found, np.full((3, 4), expected, dtype=np.float32))
        assert saved.state.trained.steps == 3
        for kept, given in zip(store.samples(), (training, held_out), strict=True):
            np.testing.assert_array_equal(kept.features, given.features)
            np.testing.assert_array_equal(kept.labels, given.labels)
        assert store.decisions() == [record_of(1), record_of(2), record_of(3)]
        assert store.decisions(last=1) == [record_of(3)]
        assert store.counters() == {"bytes_out": 3}
        assert store.spending() == {7: 3}
        store.keep(counters={"bytes_out": 9}, spending={8: 1})
        assert store.counters() == {"bytes_out": 9}
        assert store.spending() == {8: 1}


def test_history_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path / "peer.sqlite") as store:
        for iteration in range(1, KEPT_DECISIONS + 4):
            save(store, iteration)
        kept = store.decisions()
    assert len(kept) == KEPT_DECISIONS
    assert kept[0].iteration == 4


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(GROUP, application="letters"), "its application is 'digits', this peer's is 'letters'"),
        (replace(GROUP, backbone="cd" * 32), "backbone"),
        (replace(GROUP, classes=("a", "c", "b")), "list of classes is 'a, b, c'"),
        (replace(GROUP, features=5), "number of features is 4"),
    ],
)
def test_a_store_of_another_group_is_refused(tmp_path: Path, other: Group, said: str) -> None:
    path = tmp_path / "peer.sqlite"
    with opened(path) as store:
        save(store, 1)
    with pytest.raises(StoreError, match=said), opened(path, group=other):
        pass
    with opened(path) as store:
        assert store.load() is not None


def test_a_store_of_another_peer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "peer.sqlite"
    with opened(path):
        pass
    with pytest.raises(StoreError, match="belongs to the peer 0101010101010101"), opened(path, identity="02" * 20):
        pass


@pytest.mark.parametrize(("pragma", "said"), [("user_version = 9", "version 9"), ("application_id = 1", "not one of")])
def test_a_later_version_or_a_stranger_is_refused_and_kept(tmp_path: Path, pragma: str, said: str) -> None:
    path = tmp_path / "peer.sqlite"
    with opened(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA {pragma}")
    with pytest.raises(StoreError, match=said), opened(path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["peer.sqlite"]


def flip(path: Path, what: bytes) -> None:
    data = bytearray(path.read_bytes())
    place = data.index(what)
    data[place] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["scribbled", "cut", "head", "sample", "pages"])
def test_a_damaged_store_is_moved_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "peer.sqlite"
    samples = samples_of(400)
    with opened(path) as store:
        store.add_samples(samples, samples_of(2))
        save(store, 41)
    if damage == "scribbled":
        path.write_bytes(b"nothing of the kind " * 500)
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:10_000])
    elif damage == "head":
        flip(path, np.full(12, 41, dtype="<f4").tobytes())
    elif damage == "sample":
        flip(path, samples.features[7].tobytes())
    else:
        data = path.read_bytes()
        path.write_bytes(data[:4096] + bytes(len(data) - 4096))
    spoilt = path.read_bytes()
    with pytest.raises(StoreError, match=r"peer.sqlite is damaged .* moved to peer.sqlite.damaged-1"):  # noqa: PT012, SIM117
        with opened(path) as store:
            store.load()
            store.samples()
    assert (tmp_path / "peer.sqlite.damaged-1").read_bytes() == spoilt
    with opened(path) as store:
        assert store.load() is None
    path.write_bytes(b"again" * 1000)
    with pytest.raises(StoreError, match="damaged-2"), opened(path):
        pass


def promised(path: Path) -> tuple[object, ...]:
    """Return all that a store holds, as one that opens it again finds it."""
    with opened(path) as store:
        saved, parts = store.load(), store.samples()
        assert saved is not None
        return (
            saved.iteration, int(saved.state.trained.steps), saved.state.head.tobytes(), saved.state.previous.tobytes(),
            *(part.features.tobytes() + part.labels.tobytes() for part in parts),
            store.decisions(), store.counters(), store.spending(),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("log", "index"), [(False, False), (True, False), (True, True)], ids=["file", "log", "log with index"]
)
def test_a_flipped_byte_anywhere_changes_nothing_or_is_told(tmp_path: Path, log: bool, index: bool) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    store = PeerStore(whole / "peer.sqlite", identity="01" * 20, group=GROUP)
    store.add_samples(samples_of(40), samples_of(4))
    for iteration in range(1, 9):
        save(store, iteration)
    if log:  # As a killed process leaves it.
        left = tmp_path / "left"
        shutil.copytree(whole, left)
        store.close()
    else:
        store.close()
        left = whole
    chance, told = random.Random(0), 0
    name = "peer.sqlite-wal" if log else "peer.sqlite"
    untouched = tmp_path / "untouched"
    shutil.copytree(left, untouched)
    expected = promised(untouched / "peer.sqlite")
    for attempt in range(80):
        folder = tmp_path / f"flip-{attempt}"
        shutil.copytree(left, folder)
        if not index:
            (folder / "peer.sqlite-shm").unlink(missing_ok=True)
        data = bytearray((folder / name).read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        (folder / name).write_bytes(data)
        try:
            assert promised(folder / "peer.sqlite") == expected
        except StoreError as error:
            told += 1
            assert any(word in str(error) for word in ("start again", "another folder", "of its own"))  # noqa: PT017
            if "the log of" in str(error):
                assert (folder / "peer.sqlite-wal.damaged-1").read_bytes() == bytes(data)
                with opened(folder / "peer.sqlite") as store:
                    found = store.load()
                assert f"after iteration {found.iteration if found else 0} is lost" in str(error)  # noqa: PT017
        shutil.rmtree(folder)
    assert told > 5


def test_a_log_that_ends_in_the_middle_of_a_transaction_is_no_damage(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "killed" / "peer.sqlite"
    whole.mkdir()
    with opened(whole / "peer.sqlite") as store:
        for iteration in range(1, 4):
            save(store, iteration)
        shutil.copytree(whole, path.parent)
    log = path.with_name("peer.sqlite-wal")
    # The frame that ends the last transaction never came: that of a process killed while it wrote.
    log.write_bytes(log.read_bytes()[:-100])
    with opened(path) as store:
        saved = store.load()
    assert saved is not None
    assert saved.iteration == 2


def test_a_kill_between_the_header_and_the_page_of_a_commit_is_no_damage(tmp_path: Path) -> None:
    path, torn = tmp_path / "before" / "peer.sqlite", tmp_path / "torn" / "peer.sqlite"
    path.parent.mkdir()
    with opened(path) as store:
        for iteration in range(1, 6):
            save(store, iteration)
        with closing(sqlite3.connect(path)) as database:  # The log begins anew, and older frames stay behind it.
            assert database.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
        save(store, 6)
        shutil.copytree(path.parent, torn.parent)
        save(store, 7)
        before, after = (bytearray(log_of(one).read_bytes()) for one in (torn, path))
    earlier, later = look_at_log(torn), look_at_log_of(after, tmp_path)
    assert earlier is not None
    assert len(later.commits) > len(earlier.commits)
    page = at_page(later.commits[-1])
    before[:page] = after[:page]  # All but the last page of the transaction.
    log_of(torn).write_bytes(before)
    with opened(torn) as store:
        saved = store.load()
        assert saved is not None
        assert saved.iteration == 6
        save(store, 7)
    assert not list(torn.parent.glob("*.damaged-*"))


def at_page(frame: int) -> int:
    """Return where the page of a frame begins in a log, in bytes: behind its header."""
    return 32 + (frame - 1) * (24 + 4096) + 24


def look_at_log_of(data: bytes | bytearray, folder: Path) -> Log:
    """Return what the headers of a log say by themselves, without its index."""
    alone = folder / "alone"
    log_of(alone).write_bytes(data)
    found = look_at_log(alone)
    assert found is not None
    return found


def test_a_lock_that_is_no_lock_is_told(tmp_path: Path) -> None:
    (tmp_path / "running.lock").write_bytes(b"nothing of the kind " * 100)
    with pytest.raises(StoreError, match=r"running\.lock cannot be used"):
        FolderLock(tmp_path)


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import numpy as np
from test_store_child import GROUP, save, samples_of
from bristle.peer.store import PeerStore
store = PeerStore(Path(sys.argv[1]), identity="01" * 20, group=GROUP)
saved = store.load()
iteration = saved.iteration if saved else 0
while True:
    iteration += 1
    save(store, iteration)
    print("i", iteration, flush=True)
    store.add_samples(samples_of(2), samples_of(1))
    print("s", flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_nothing_whole_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "peer.sqlite"
    code = tmp_path / "code"
    code.mkdir()
    (code / "test_store_child.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    chance = random.Random(0)
    done, added = 0, 0
    for _ in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(code)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        said = [writer.stdout.readline()]
        time.sleep(chance.uniform(0, 0.1))
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read().splitlines(keepends=True)
        said = [line for line in said if line.endswith("\n")]  # The last one may have been cut off as well.
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        done = max([done, *(int(line.split()[1]) for line in said if line.startswith("i"))])
        added += sum(line.startswith("s") for line in said)
        with opened(path) as store:
            saved = store.load()
            training, held_out = store.samples()
            last = store.decisions(last=1)[0]
            counters = store.counters()
        assert saved is not None
        assert done <= saved.iteration <= done + 1
        assert (saved.state.head == saved.iteration).all()
        assert (saved.state.previous == saved.iteration + 3).all()
        assert last.iteration == counters["bytes_out"] == saved.iteration
        assert len(held_out.labels) in (added, added + 1)
        assert len(training.labels) == 2 * len(held_out.labels)
        done, added = saved.iteration, len(held_out.labels)
    assert done > 20


FILLER = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from test_store_child import GROUP, save, samples_of
from bristle.peer.store import PeerStore
store = PeerStore(Path(sys.argv[1]), identity="01" * 20, group=GROUP)
save(store, 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
try:
    for iteration in range(2, 10_000):
        save(store, iteration)
        print(iteration, flush=True)
        store.add_samples(samples_of(50), samples_of(1))
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on the size of files are Unix's")
def test_a_full_disk_is_told_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "peer.sqlite"
    (tmp_path / "test_store_child.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, "-c", FILLER, str(path), str(tmp_path)]
    *done, said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "peer.sqlite cannot be written" in said
    assert "free some space" in said
    with opened(path) as store:
        saved = store.load()
        training, held_out = store.samples()
    assert saved is not None
    assert saved.iteration == int(done[-1])
    assert len(training.labels) == 50 * len(held_out.labels)


def test_one_process_at_a_time_has_a_folder(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    lock = FolderLock(tmp_path)
    assert is_running(tmp_path)
    with pytest.raises(StoreError, match="running in"):
        FolderLock(tmp_path)
    lock.release()
    assert not is_running(tmp_path)


def test_a_killed_process_gives_its_folder_up(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from bristle.peer.store_files import FolderLock; "
        "lock = FolderLock(Path(sys.argv[1])); print('has it', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == "has it"
    assert is_running(tmp_path)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert not is_running(tmp_path)
