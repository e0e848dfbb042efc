from __future__ import annotations

from collections import namedtuple
from datetime import datetime, time

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.peer.conditions import Always, Hours, OnPower, all_of, any_of, describe

Battery = namedtuple("Battery", ["percent", "secsleft", "power_plugged"])


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 1, hour, minute)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22-6", [22, 23, 0, 5], [6, 12, 21]),
        ("9-17", [9, 12, 16], [17, 8, 0]),
        ("18-24", [18, 23], [0, 17]),
    ],
)
def test_hours(text: str, inside: list[int], outside: list[int]) -> None:
    hours = Hours.parse(text)
    for hour in inside:
        assert Hours(hours.start, hours.end, clock=lambda hour=hour: at(hour))()  # type: ignore[misc]
    for hour in outside:
        assert not Hours(hours.start, hours.end, clock=lambda hour=hour: at(hour))()  # type: ignore[misc]


def test_hours_with_minutes() -> None:
    hours = Hours.parse("21:30-06:15")
    assert str(hours) == "between 21:30 and 06:15"
    assert Hours(hours.start, hours.end, clock=lambda: at(6, 14))()
    assert not Hours(hours.start, hours.end, clock=lambda: at(6, 15))()


@settings(deadline=None)
@given(st.times(), st.times(), st.times())
def test_hours_and_the_other_way_round_make_a_day(start: time, end: time, now: time) -> None:
    if start == end:
        return

    def clock() -> datetime:
        return datetime.combine(datetime(2026, 3, 1), now)

    assert Hours(start, end, clock)() != Hours(end, start, clock)()


@pytest.mark.parametrize("text", ["22", "late", "25-6", "22-6:70", "99-3", "6-6", "24-6", "0-24"])
def test_bad_hours_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hours"):
        Hours.parse(text)


@pytest.mark.parametrize(
    ("battery", "expected"),
    [(None, True), (Battery(80, 0, True), True), (Battery(80, 0, False), False), (Battery(80, 0, None), False)],
)
def test_on_power(monkeypatch: pytest.MonkeyPatch, battery: Battery | None, expected: bool) -> None:
    # No machine has all kinds of battery: this is what psutil says of each.
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery)
    assert OnPower()() is expected


def test_on_power_asks_this_machine() -> None:
    battery = psutil.sensors_battery()
    assert OnPower()() is (battery is None or battery.power_plugged is True)


def test_conditions_compose_and_say_what_they_wait_for() -> None:
    def weekend() -> bool:
        return False

    both = all_of(Always(), weekend)
    assert not both()
    assert any_of(Always(), weekend)()
    assert all_of()()
    assert not any_of()()
    assert describe(all_of(OnPower(), Hours.parse("22-6"))) == "on power and between 22:00 and 06:00"
    assert describe(any_of(weekend, OnPower())) == "weekend or on power"
