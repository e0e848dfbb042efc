"""Work that engines can find in any process: it is written to a module on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bristle.simulation import FeatureData

WORK = '''
import os
from pathlib import Path

import numpy as np


def echo(task, data, tick):
    """Say how often a task was done, and with which threads; crash or fail as often as the task wants."""
    name, crashes, errors = task.split()
    note = Path(os.environ["BRISTLE_TEST_FOLDER"]) / name
    tried = int(note.read_text()) if note.exists() else 0
    note.write_text(str(tried + 1))
    if tried < int(crashes):
        os._exit(3)
    if tried < int(errors):
        raise OSError(f"{name} is out of luck")
    tick(1)
    tick(2)
    threads = os.environ["OMP_NUM_THREADS"]
    return f"{name} {float(np.sum(data.train))} {data.classes} threads {threads} writable {data.train.flags.writeable}"
'''


@pytest.fixture
def data() -> FeatureData:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    return FeatureData(values, np.arange(4), values, np.arange(4), ("a", "b", "c", "d"))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of work that crashes and fails when it is told to."""
    (tmp_path / "some_work.py").write_text(WORK)
    (tmp_path / "notes").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BRISTLE_TEST_FOLDER", str(tmp_path / "notes"))
    monkeypatch.delitem(sys.modules, "some_work", raising=False)
    return "some_work:echo"
