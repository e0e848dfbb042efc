"""Finished runs are found again, and only where they are the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bristle.paper import Store
from bristle.paper.store import versions

TASK, ROWS = '{"config": {}, "kind": "world"}', [{"iteration": 10, "accuracy_mean": 1 / 3}]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs", {"bristle": "1"})
    assert store.find(TASK) is None
    store.keep(TASK, ROWS)
    assert Store(tmp_path / "runs", {"bristle": "1"}).find(TASK) == ROWS


def test_other_versions_and_other_tasks_are_other_runs(tmp_path: Path) -> None:
    Store(tmp_path, {"bristle": "1"}).keep(TASK, ROWS)
    assert Store(tmp_path, {"bristle": "2"}).find(TASK) is None
    assert Store(tmp_path, {"bristle": "1"}).find(TASK.replace("world", "oracle")) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"task": 1}', "\x00"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path, {})
    store.keep(TASK, ROWS)
    next(tmp_path.glob("*.json")).write_text(damage)
    assert store.find(TASK) is None
    store.keep(TASK, ROWS)
    assert store.find(TASK) == ROWS


def test_versions_name_what_results_depend_on() -> None:
    found = versions(release="1", backbone="0123456789abcdef0123")
    assert set(found) == {"bristle", "engine", "numpy", "backbone"}
    assert found["backbone"] == "0123456789abcdef"
    assert found["engine"]
