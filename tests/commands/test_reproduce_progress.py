"""What `bristle reproduce` shows while tasks run: work done, by cost and not by tasks."""

from __future__ import annotations

from typing import Any

from bristle.commands.reproduce import _State
from bristle.paper import RunTask


def task(peers: int) -> RunTask:
    world = {"peers": peers, "attackers": 0, "iterations": 100}
    return RunTask(kind="world", config={"world": world, "topology": {"name": "random", "k": 1}})


def test_work_is_summed_up_by_cost_and_never_goes_back() -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    state = _State(lambda line="", **shown: told.append((line, shown)))
    state.begin([task(30), task(10)], 0)
    state.tick(0, 50)
    assert told[-1][1]["completed"] / told[-1][1]["total"] == 0.375
    state.tick(0, 10)  # A task that failed begins again.
    assert told[-1][1]["completed"] / told[-1][1]["total"] == 0.375
    state.done(1)
    assert told[-1][0].startswith("1 of 2 runs, 62%")
    assert not told[-1][1]["last"]
    state.done(0)
    assert told[-1][0].startswith("2 of 2 runs, 100%")
    assert told[-1][1]["last"]
