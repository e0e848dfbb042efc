"""Caps on the bytes that a peer sends per hour and day, and on its processor time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

PERIOD = 300
"""Length of an accounting period in seconds."""

HOUR, DAY = 3_600, 86_400


class ByteBudget:
    """Bytes sent in the last hour and the last day, against caps.

    They are kept across restarts (`spending`), so that a restart does not reset a cap.

    Parameters
    ----------
    per_hour, per_day : int, optional
        Caps in bytes; None for no cap.
    spending : mapping of int to int
        `spending` of an earlier run.
    clock : callable
        Seconds since 1970.
    """

    def __init__(
        self,
        *,
        per_hour: int | None = None,
        per_day: int | None = None,
        spending: Mapping[int, int] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, cap in (("per_hour", per_hour), ("per_day", per_day)):
            if cap is not None and cap < 0:
                raise ValueError(f"{name}={cap}: give 0 or more bytes, or None for any number")
        self.per_hour = per_hour
        self.per_day = per_day
        self._clock = clock
        self._spent = dict(spending or {})

    def spend(self, count: int) -> None:
        """Count sent bytes."""
        period = self._period()
        self._spent[period] = self._spent.get(period, 0) + count
        oldest = period - DAY // PERIOD
        if min(self._spent) < oldest:
            self._spent = {when: spent for when, spent in self._spent.items() if when >= oldest}

    def allows(self, count: int) -> bool:
        """Return whether `count` more bytes may be sent now."""
        return all(
            cap is None or self._since(seconds) + count <= cap
            for cap, seconds in ((self.per_hour, HOUR), (self.per_day, DAY))
        )

    @property
    def spending(self) -> dict[int, int]:
        """Bytes per period of the last day, for the next start."""
        return dict(self._spent)

    @property
    def last_day(self) -> int:
        """Bytes sent in the last day."""
        return self._since(DAY)

    def _since(self, seconds: int) -> int:
        period = self._period()
        if late := [when for when in self._spent if when > period]:
            # The clock was set back. What was sent counts as of now, rather than until that time comes again.
            self._spent[period] = self._spent.get(period, 0) + sum(self._spent.pop(when) for when in late)
        # The period that has begun to leave the window counts in full: a cap is never exceeded in any window.
        oldest = period - seconds // PERIOD
        return sum(spent for period, spent in self._spent.items() if period >= oldest)

    def _period(self) -> int:
        return int(self._clock() // PERIOD)


class CpuShare:
    """Limits this process to a share of one processor.

    Parameters
    ----------
    share : float
        Above 0; 1 is one whole processor.
    cpu, wall : callable
        Clocks in seconds: processor time of this process, and wall time.
    """

    def __init__(
        self,
        share: float,
        *,
        cpu: Callable[[], float] = time.process_time,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        if not share > 0:
            raise ValueError(f"cpu_share={share}: give a share above 0, e.g. 0.25 for a quarter of one processor")
        self.share = share
        self._cpu, self._wall = cpu, wall
        self._mark = cpu(), wall()

    def rest(self) -> float:
        """Return the seconds to wait before working again."""
        cpu, wall = self._mark
        return max(0.0, (self._cpu() - cpu) / self.share - (self._wall() - wall))

    def begin(self) -> None:
        """Start a new measurement for the next rest."""
        self._mark = self._cpu(), self._wall()
