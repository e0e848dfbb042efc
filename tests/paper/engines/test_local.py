"""Processes that do tasks: all of them, whatever crashes, with one thread each and one copy of the data."""

from __future__ import annotations

import pytest

from bristle.paper.engines import Listener, TaskError
from bristle.paper.engines.local import LocalEngine
from bristle.simulation import FeatureData

SAID = "66.0 ('a', 'b', 'c', 'd') threads 1 writable False"


class Heard:
    def __init__(self) -> None:
        self.results: dict[int, str] = {}
        self.ticks: list[tuple[int, int]] = []

    def listener(self) -> Listener:
        def done(number: int, result: str) -> None:
            assert number not in self.results
            self.results[number] = result

        return Listener(done=done, tick=lambda number, iteration: self.ticks.append((number, iteration)))


def test_every_task_is_done_once_and_heard_of(work: str, data: FeatureData) -> None:
    heard = Heard()
    LocalEngine(work, data, processes=2).run([f"t{number} 0 0" for number in range(5)], heard.listener())
    assert heard.results == {number: f"t{number} {SAID}" for number in range(5)}
    assert sorted(heard.ticks) == [(number, iteration) for number in range(5) for iteration in (1, 2)]


def test_a_task_that_crashes_its_process_is_done_again(work: str, data: FeatureData) -> None:
    heard = Heard()
    LocalEngine(work, data, processes=2).run(["once 1 0", "calm 0 0", "twice 2 0"], heard.listener())
    assert heard.results == {0: f"once {SAID}", 1: f"calm {SAID}", 2: f"twice {SAID}"}


def test_a_task_that_raises_is_done_again(work: str, data: FeatureData) -> None:
    heard = Heard()
    LocalEngine(work, data, processes=1).run(["moody 0 2"], heard.listener())
    assert heard.results == {0: f"moody {SAID}"}


@pytest.mark.parametrize(("task", "why"), [("bad 9 0", "exit code 3"), ("bad 0 9", "OSError: bad is out of luck")])
def test_a_task_that_keeps_failing_is_said_and_the_others_are_done(
    work: str, data: FeatureData, task: str, why: str
) -> None:
    heard = Heard()
    with pytest.raises(TaskError, match=f"failed 3 times; .*{why}.*; the task: bad"):
        LocalEngine(work, data, processes=1).run([task, "good 0 0"], heard.listener())
    assert heard.results == {1: f"good {SAID}"}


def test_nothing_to_do_starts_nothing(work: str, data: FeatureData) -> None:
    LocalEngine("no.such.module:work", data).run([], Heard().listener())
