"""The same tasks on Ray: the same results, retried after a crash."""

from __future__ import annotations

import pytest

from bristle.paper.engines import Listener, TaskError
from bristle.paper.engines.ray import RayEngine
from bristle.simulation import FeatureData

pytest.importorskip("ray", reason='Ray is not installed: pip install "bristle[ray]"')

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
