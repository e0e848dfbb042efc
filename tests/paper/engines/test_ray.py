"""The same tasks on Ray: the same results, retried after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from bristle.paper.engines import Listener, TaskError
from bristle.paper.engines.ray import RayEngine
from bristle.simulation import FeatureData

pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")

# Ray leaves sockets and processes to its own clean-up.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]
SAID = "66.0 ('a', 'b', 'c', 'd') threads 1 writable False"


def test_tasks_are_done_again_after_a_crash_and_what_keeps_failing_is_said(work: str, data: FeatureData) -> None:
    results: dict[int, str] = {}
    ticks: set[int] = set()
    listener = Listener(done=results.__setitem__, tick=lambda number, iteration: ticks.add(number))
    engine = RayEngine(work, data, processes=2)
    with pytest.raises(TaskError, match=r"failed 3 times.*out of luck"):
        engine.run(["calm 0 0", "once 1 0", "moody 0 1", "bad 0 9"], listener)
    assert results == {0: f"calm {SAID}", 1: f"once {SAID}", 2: f"moody {SAID}"}
    assert ticks <= {0, 1, 2}


KILLER = '''
import os
import signal
import time
from pathlib import Path


def board():
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status, title = (entry / "status").read_text(), (entry / "cmdline").read_text()
            except OSError:  # It has ended since.
                continue
            if f"PPid:\\t{os.getppid()}\\n" in status and title.startswith("ray::Board"):
                return int(entry.name)
    return None


def kill_board(task, data, tick):
    """Kill the process of the board, a sibling of this one, as soon as it is there, and go on."""
    while (found := board()) is None:
        time.sleep(0.05)
    os.kill(found, signal.SIGKILL)
    for iteration in range(1, 4):
        tick(iteration)
    return task
'''


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="finds the board in /proc")
def test_the_loss_of_the_board_ends_nothing(tmp_path: Path, data: FeatureData, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "board_killer.py").write_text(KILLER)
    monkeypatch.syspath_prepend(str(tmp_path))
    results: dict[int, str] = {}
    listener = Listener(done=results.__setitem__, tick=lambda number, iteration: None)
    RayEngine("board_killer:kill_board", data, processes=1).run([f"t{number}" for number in range(3)], listener)
    assert results == {number: f"t{number}" for number in range(3)}
