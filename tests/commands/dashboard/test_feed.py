"""The feed in virtual time: nothing is made while nobody looks, and never too much."""

from __future__ import annotations

import json

from bristle.commands.dashboard import LOOKING, SHARE, SOONEST, Feed
from bristle.report.snapshot import RunState, Snapshot


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def a_run(iteration: int) -> Snapshot:
    return Snapshot(
        title="", subtitle="", rule="", state=RunState.RUNNING, iteration=iteration, total=9, classes=(), members=()
    )


def test_it_is_wanted_only_while_somebody_looks() -> None:
    clock = Clock()
    feed = Feed(clock)
    assert not feed.wanted
    assert feed.newer_than(-1) is None
    assert feed.wanted
    clock.now += LOOKING + 1
    assert not feed.wanted
    assert not feed.watched


def test_a_version_is_given_once() -> None:
    feed = Feed()
    feed.publish(lambda: a_run(1))
    body = feed.newer_than(-1)
    assert body is not None
    told = json.loads(body)
    assert told["iteration"] == 1
    assert feed.newer_than(told["version"]) is None
    feed.publish(lambda: a_run(2))
    assert feed.newer_than(told["version"]) is not None


def test_snapshots_take_a_small_share_of_the_time() -> None:
    clock = Clock()
    feed = Feed(clock)
    feed.newer_than(-1)

    def slow() -> Snapshot:
        clock.now += 0.2
        return a_run(1)

    feed.publish(slow)
    waited = 0.0
    while not feed.wanted:
        clock.now += 0.1
        waited += 0.1
        feed.newer_than(-1)
    assert waited >= 0.2 / SHARE - 0.5
    feed.publish(lambda: a_run(2))
    clock.now += SOONEST / 2
    assert not feed.wanted
    clock.now += SOONEST
    assert feed.wanted
