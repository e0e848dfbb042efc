from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.peer.caps import DAY, HOUR, ByteBudget, CpuShare


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_cap_holds_and_frees_up() -> None:
    clock = Clock()
    budget = ByteBudget(per_hour=1_000, clock=clock)
    assert budget.allows(1_000)
    budget.spend(900)
    assert budget.allows(100)
    assert not budget.allows(101)
    clock.now += HOUR + 600
    assert budget.allows(1_000)
    assert budget.last_day == 900


def test_a_restart_is_no_way_around() -> None:
    clock = Clock()
    before = ByteBudget(per_day=1_000, clock=clock)
    before.spend(1_000)
    after = ByteBudget(per_day=1_000, spending=before.spending, clock=clock)
    assert not after.allows(1)
    clock.now += 2 * DAY
    after.spend(5)
    assert after.spending == {int(clock.now // 300): 5}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 400)), max_size=60))
def test_no_window_of_an_hour_exceeds_the_cap(steps: list[tuple[int, int]]) -> None:
    clock, sent = Clock(), list[tuple[float, int]]()
    budget = ByteBudget(per_hour=1_000, clock=clock)
    for wait, count in steps:
        clock.now += wait
        if budget.allows(count):
            budget.spend(count)
            sent.append((clock.now, count))
    for when, _ in sent:
        assert sum(count for other, count in sent if when - HOUR < other <= when) <= 1_000


def test_a_clock_that_was_set_back_frees_up_in_a_day() -> None:
    clock = Clock()
    clock.now += 400 * DAY
    before = ByteBudget(per_day=1_000, clock=clock)
    before.spend(1_000)
    clock.now -= 400 * DAY
    after = ByteBudget(per_day=1_000, spending=before.spending, clock=clock)
    assert not after.allows(1), "setting the clock back is no way around the cap"
    assert after.spending == {int(clock.now // 300): 1_000}
    clock.now += DAY + 600
    assert after.allows(1_000), "nor does it last until that time comes again"


def test_no_cap_allows_anything() -> None:
    budget = ByteBudget()
    budget.spend(10**12)
    assert budget.allows(10**12)
    with pytest.raises(ValueError, match="per_day=-1"):
        ByteBudget(per_day=-1)


def test_cpu_share() -> None:
    cpu, wall = Clock(), Clock()
    share = CpuShare(0.25, cpu=cpu, wall=wall)
    cpu.now += 0.5
    wall.now += 0.5
    assert share.rest() == pytest.approx(1.5)
    wall.now += 1.5
    assert share.rest() == 0
    share.begin()
    assert share.rest() == 0
    with pytest.raises(ValueError, match="cpu_share=0"):
        CpuShare(0)
