"""Work in threads: every part is done once, and what goes wrong in one is raised."""

from __future__ import annotations

import threading

import pytest

from bristle.arrays import threads as module
from bristle.arrays.threads import MOST, in_threads, threads


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_part_is_done_once_and_side_by_side(monkeypatch: pytest.MonkeyPatch, count: int, workers: int) -> None:
    monkeypatch.setattr(module, "threads", lambda: workers)
    done: list[int] = []
    names: set[int] = set()
    together = threading.Barrier(max(1, min(count, workers)))

    def work(start: int, stop: int) -> None:
        together.wait(timeout=30)  # Breaks unless all parts run at the same time.
        names.add(threading.get_ident())
        done.extend(range(start, stop))

    in_threads(work, count)
    assert sorted(done) == list(range(count))
    assert len(names) == together.parties


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
    assert done == [1 - bad]


@pytest.mark.parametrize(("named", "expected"), [("1", 1), ("2", 2), ("999", MOST)])
def test_the_usual_variable_bounds_the_threads(monkeypatch: pytest.MonkeyPatch, named: str, expected: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    assert threads.__wrapped__() == expected


@pytest.mark.parametrize("named", ["", "many", "0"])
def test_without_it_there_is_one_for_each_core(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", named)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    assert threads.__wrapped__() == 3
