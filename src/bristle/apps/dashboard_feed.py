"""What stands between a run and those who look at it: the newest snapshot, and whether anybody wants a newer one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from bristle.report.snapshot import Snapshot

LOOKING = 6.0
"""Seconds after which somebody who has not asked again has gone; a page in the background asks every four."""

SOONEST = 0.5
"""Seconds between two snapshots at least."""

SHARE = 0.05
"""Of a run's time at most so much goes into snapshots, and none while nobody looks."""


class Feed:
    """The newest snapshot of a run, for any thread to read. Making one is left to the run's own thread.

    Parameters
    ----------
    clock : callable
        Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._version = 0
        self._body = b""
        self._asked = float("-inf")
        self._next = float("-inf")

    @property
    def watched(self) -> bool:
        """Whether somebody has looked lately."""
        return self._clock() - self._asked < LOOKING

    @property
    def wanted(self) -> bool:
        """Whether a new snapshot is worth making now."""
        now = self._clock()
        return now - self._asked < LOOKING and now >= self._next

    def publish(self, make: Callable[[], Snapshot]) -> None:
        """Make a snapshot and put it in the place of the one before."""
        began = self._clock()
        fields = make().to_dict()
        with self._lock:
            self._version += 1
            fields["version"] = self._version
            self._body = json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()
        took = self._clock() - began
        self._next = began + max(SOONEST, took / SHARE)

    def newer_than(self, version: int) -> bytes | None:
        """Return the newest snapshot as JSON, if it is newer; remember that somebody looks."""
        with self._lock:
            self._asked = self._clock()
            if not self._body or self._version == version:
                return None
            return self._body
