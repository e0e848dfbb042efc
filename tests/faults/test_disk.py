"""What befalls the disk: no room left, and bytes that are not what was written."""

from __future__ import annotations

import random
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bristle.cli import app
from bristle.commands.status import get_status
from bristle.peer.status import read_status
from bristle.peer.store import PeerStore
from bristle.peer.store_files import ENDPOINT, STORE, FolderLock, TryAgainError, is_running
from bristle.wire.group import Group
from tests.support.fault_peers import Fleet, damage, enough_to_damage, fill, small_disk, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="signals and mounts are Unix's")]


def test_a_full_disk_is_told_and_left_behind(fleet: Fleet, tmp_path: Path) -> None:
    with ExitStack() as exits:
        try:
            folder = exits.enter_context(small_disk(tmp_path / "disk", mebibytes=12))
        except PermissionError as error:
            pytest.skip(str(error))
        words = ("--interval", "0.3", "--http", "0")
        full = fleet.start("full", *words, home=folder / "peer", rows=folder / "rows.jsonl")
        known = [full.event("listening")["address"]]
        other = fleet.start("other", "--interval", "0.1", known=known)
        full.reach(3)
        filler = fill(folder)
        waiting = wait_until(lambda: full.status().waiting, "the status tells of the full disk", watched=[full])
        assert "cannot keep what it learns" in waiting
        assert "free some space" in waiting
        shown = CliRunner().invoke(app, ["status", str(full.home)], env={"COLUMNS": "250"})
        assert "running, held back: it cannot keep what it learns" in shown.output
        done = full.status().iteration
        assert done == full.stored().iteration, "only what is on the disk is reported"
        address = (full.home / ENDPOINT).read_bytes()
        (full.home / ENDPOINT).unlink()
        assert "no room" in (get_status(full.home).waiting or ""), "without HTTP the folder tells as much"
        other.go_on(10)
        assert full.running
        assert full.status().iteration == done
        assert [event["event"] for event in full.said()].count("held back") == 1
        # One that starts now cannot, and says why in one line.
        late = fleet.start("late", home=folder / "late")
        assert late.wait_for_end() == 1
        assert late.plainly().count("\n") == 0
        assert "free" in late.plainly()
        shutil.rmtree(folder / "late", ignore_errors=True)
        filler.unlink()
        (full.home / ENDPOINT).write_bytes(address)
        full.reach(done + 3)
        assert full.status().waiting is None
        assert full.stop() == 0
        stored = full.stored().iteration
        assert stored >= full.acknowledged()
        again = fleet.start("full", *words, home=folder / "peer", rows=folder / "rows.jsonl")
        assert again.event("listening")["iteration"] == stored
        again.kill()


def test_a_store_on_a_full_disk_is_not_damaged(tmp_path: Path) -> None:
    group = Group(application="digits", backbone="ab" * 32, classes=("a", "b"), features=4)
    with ExitStack() as exits:
        try:
            folder = exits.enter_context(small_disk(tmp_path / "disk", mebibytes=1))
        except PermissionError as error:
            pytest.skip(str(error))
        path = folder / STORE
        PeerStore(path, identity="01" * 20, group=group).close()
        filler = fill(folder)
        with pytest.raises(TryAgainError, match=r"running\.lock cannot be used.*free some space"):
            FolderLock(folder)
        assert not is_running(folder)
        with pytest.raises(TryAgainError, match=r"cannot be opened.*free space"):
            PeerStore(path, identity="01" * 20, group=group)
        assert path.exists()
        filler.unlink()
        PeerStore(path, identity="01" * 20, group=group).close()


@pytest.mark.parametrize("log", [False, True], ids=["file", "log"])
def test_a_damaged_store_is_one_error_with_a_remedy(fleet: Fleet, log: bool) -> None:
    quick = ("--interval", "0", "--samples", "20")
    first = fleet.start("a", *quick)
    first.reach(20)
    first.kill() if log else first.stop()
    while log and not enough_to_damage(first.home):  # It was killed just when the log began anew.
        first = fleet.start("a", *quick)
        first.go_on(20)
        first.kill()
    before = first.stored()
    damage(first.home, log=log, chance=random.Random(0))
    second = fleet.start("a", *quick)
    assert second.wait_for_end() == (1 if log else 2)
    said = second.plainly()
    assert said.startswith("bristle: ")
    assert said.count("\n") == 0
    assert "is damaged" in said
    assert "start again" in said
    assert "backup" in said
    assert [path.name for path in first.home.glob("*.damaged-1")] == [
        "peer.sqlite-wal.damaged-1" if log else "peer.sqlite.damaged-1"
    ]
    third = fleet.start("a", *quick)
    begun = third.event("listening")
    assert begun["key_id"] == before.key_id
    if log:
        assert f"after iteration {begun['iteration']} is lost" in said
        assert 0 < begun["iteration"] < before.iteration
    else:
        assert begun["iteration"] == 0
    third.event("data")
    wait_until(lambda: third.stored().iteration > begun["iteration"] + 3, "it goes on", watched=[third])
    assert sum(one.training + one.held_out for one in read_status(third.home, running=True).samples) == 200
