"""When a peer may work: on power, at certain hours, or whatever a function of yours says.

A condition is any callable without arguments that answers yes or no. Those here say what they wait for when printed.
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
    """While the machine runs on mains power. One without a battery always does; an unknown state counts as no."""

    def __call__(self) -> bool:
        """Ask the machine."""
        battery = psutil.sensors_battery()
        return battery is None or battery.power_plugged is True

    def __str__(self) -> str:
        return "on power"


@dataclass(frozen=True)
class Hours:
    """Between two times of the day, in local time; past midnight where the end is the earlier one.

    Parameters
    ----------
    start, end : datetime.time
        From `start` until just before `end`.
    clock : callable
        What time it is.
    """

    start: time
    end: time
    clock: Callable[[], datetime] = datetime.now

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise ValueError(f"hours from {self.start} to {self.end} are none: give two different times")

    @classmethod
    def parse(cls, text: str) -> Hours:
        """Read hours as people write them: ``22-6`` or ``21:30-06:15``."""
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
        """Look at the clock."""
        now = self.clock().time()
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end

    def __str__(self) -> str:
        return f"between {self.start:%H:%M} and {self.end:%H:%M}"


@dataclass(frozen=True)
class AllOf:
    """While every one of some conditions holds."""

    conditions: tuple[Condition, ...]

    def __call__(self) -> bool:
        """Ask each, until one says no."""
        return all(condition() for condition in self.conditions)

    def __str__(self) -> str:
        return " and ".join(map(describe, self.conditions)) or "always"


@dataclass(frozen=True)
class AnyOf:
    """While at least one of some conditions holds."""

    conditions: tuple[Condition, ...]

    def __call__(self) -> bool:
        """Ask each, until one says yes."""
        return any(condition() for condition in self.conditions)

    def __str__(self) -> str:
        return " or ".join(map(describe, self.conditions)) or "never"


def all_of(*conditions: Condition) -> AllOf:
    """Return a condition that holds while all of these do."""
    return AllOf(conditions)


def any_of(*conditions: Condition) -> AnyOf:
    """Return a condition that holds while one of these does."""
    return AnyOf(conditions)


def describe(condition: Condition) -> str:
    """Say what a condition waits for: a function by its name, others by how they print."""
    return condition.__name__ if inspect.isfunction(condition) else str(condition)
