"""Conditions under which a peer may work: on mains power, at certain hours, or any function of yours.

A condition is a callable without arguments that returns True or False; printed, those here say what they wait for.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time

import psutil

Condition = Callable[[], bool]


@dataclass(frozen=True)
class Always:
    """At any time."""

    def __call__(self) -> bool:
        """Return True."""
        return True

    def __str__(self) -> str:
        return "always"


@dataclass(frozen=True)
class OnPower:
    """While the machine runs on mains power, or has no battery; an unknown state counts as battery."""

    def __call__(self) -> bool:
        """Check the power supply."""
        battery = psutil.sensors_battery()
        return battery is None or battery.power_plugged is True

    def __str__(self) -> str:
        return "on power"


@dataclass(frozen=True)
class Hours:
    """Between two times of the day, in local time; past midnight if the end is earlier than the start.

    Parameters
    ----------
    start, end : datetime.time
        From `start` until just before `end`.
    clock : callable
        Returns the local time.
    """

    start: time
    end: time
    clock: Callable[[], datetime] = datetime.now

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise ValueError(f"hours from {self.start} to {self.end} are no time at all: give two different ones")

    @classmethod
    def parse(cls, text: str) -> Hours:
        """Parse ``22-6`` or ``21:30-06:15``."""
        found = re.fullmatch(r"\s*(\d{1,2})(?::(\d{2}))?\s*-\s*(\d{1,2})(?::(\d{2}))?\s*", text)
        if found is None:
            raise ValueError(f"hours {text!r}: write them as 22-6 or 21:30-06:15")
        start_hour, start_minute, end_hour, end_minute = (int(part or 0) for part in found.groups())
        end_hour = 0 if (end_hour, end_minute) == (24, 0) else end_hour
        try:
            return cls(time(start_hour, start_minute), time(end_hour, end_minute))
        except ValueError as error:
            raise ValueError(f"hours {text!r}: {error}") from error

    def __call__(self) -> bool:
        """Check the time."""
        now = self.clock().time()
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end

    def __str__(self) -> str:
        return f"between {self.start:%H:%M} and {self.end:%H:%M}"


@dataclass(frozen=True)
class Combined:
    """While all of some conditions hold, or one of them."""

    conditions: tuple[Condition, ...]
    needs_all: bool

    def __call__(self) -> bool:
        """Check the conditions in order, as far as needed."""
        held = (condition() for condition in self.conditions)
        return all(held) if self.needs_all else any(held)

    def __str__(self) -> str:
        words, without_any = (" and ", "always") if self.needs_all else (" or ", "never")
        return words.join(map(describe, self.conditions)) or without_any


def all_of(*conditions: Condition) -> Combined:
    """Return a condition that holds while all of these do."""
    return Combined(conditions, needs_all=True)


def any_of(*conditions: Condition) -> Combined:
    """Return a condition that holds while one of these does."""
    return Combined(conditions, needs_all=False)


def describe(condition: Condition) -> str:
    """Return what a condition waits for: the name of a function, or the text of any other condition."""
    return condition.__name__ if inspect.isfunction(condition) else str(condition)
