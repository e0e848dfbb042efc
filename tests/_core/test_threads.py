"""Work in threads: every part is done once, and what goes wrong in one is raised."""

from __future__ import annotations

import os
import threading

import pytest

from bristle._core import threads as module
from bristle._core.threads import MOST, in_threads, threads


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_part_is_done_once_and_side_by_side(monkeypatch: pytest.MonkeyPatch, count: int, workers: int) -> None:
    monkeypatch.setattr(module, "threads", lambda: workers)
    done: list[int] = []
    names: set[int] = set()
    together = threading.Barrier(max(1, min(count, workers)))

    def work(start: int, stop: int) -> None:
        if threading.get_ident() not in names:
            names.add(threading.get_ident())
            together.wait(timeout=30)  # Breaks unless every thread gets a part.
        done.extend(range(start, stop))

    in_threads(work, count)
    assert sorted(done) == list(range(count))
    assert len(names) == together.parties


def test_a_thread_that_is_held_up_leaves_the_rest_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "threads", lambda: 2)
    others_done = threading.Event()
    done: list[int] = []

    def work(start: int, stop: int) -> None:
        if start == 0:
            assert others_done.wait(timeout=30)
        done.extend(range(start, stop))
        if len(done) == 100 - stop_of_first:
            others_done.set()

    stop_of_first = 100 // (2 * module.PARTS)
    in_threads(work, 100)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize("bad", [0, 1])
def test_a_mistake_in_any_thread_is_raised(monkeypatch: pytest.MonkeyPatch, bad: int) -> None:
    monkeypatch.setattr(module, "threads", lambda: 2)
    done = []

    def work(start: int, stop: int) -> None:
        if start == bad:
            raise KeyError(start)
        done.append(start)

    with pytest.raises(KeyError):
        in_threads(work, 2)
    assert set(done) <= {1 - bad}


@pytest.mark.parametrize(("named", "expected"), [("1", 1), ("2", 2), ("999", MOST)])
def test_the_usual_variable_bounds_the_threads(monkeypatch: pytest.MonkeyPatch, named: str, expected: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    assert threads.__wrapped__() == expected


@pytest.mark.parametrize("named", ["", "many", "0"])
def test_without_it_there_is_one_for_each_core(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert threads.__wrapped__() == 3
