"""Scheduling of a peer's iterations, and accounting of its traffic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bristle.p2p.neighbour import Counters
from bristle.p2p.overlay import Overlay
from bristle.peer.caps import ByteBudget, CpuShare
from bristle.peer.conditions import Always, Condition, describe
from bristle.peer.record import LOG
from bristle.peer.store import PeerStore
from bristle.peer.store_files import TryAgainError
from bristle.wire.sizes import grid_bytes, head_bytes

_ALWAYS = Always()


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When a peer trains and sends, and caps on both.

    Parameters
    ----------
    interval : float
        Minimum seconds from the start of an iteration to the start of the next.
    train_when : callable
        While it returns False, the peer neither integrates nor trains; it stays connected and keeps the newest head of
        each neighbour.
    send_when : callable
        While it returns False, the peer learns, but shares nothing.
    bytes_per_hour, bytes_per_day : int, optional
        Caps on sent bytes: a head that would exceed one is not shared. Acknowledgements count, but are never held back.
    cpu_share : float, optional
        Fraction of one processor that this process may use.
    check_every : float
        Seconds between checks of a condition that returned False.
    """

    interval: float = 1.0
    train_when: Condition = _ALWAYS
    send_when: Condition = _ALWAYS
    bytes_per_hour: int | None = None
    bytes_per_day: int | None = None
    cpu_share: float | None = None
    check_every: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.interval < float("inf"):
            raise ValueError(f"interval={self.interval}: give 0 or more seconds")
        if not 0 < self.check_every < float("inf"):
            raise ValueError(f"check_every={self.check_every}: give a number of seconds above 0")
        # Their constructors check the values.
        ByteBudget(per_hour=self.bytes_per_hour, per_day=self.bytes_per_day)
        if self.cpu_share is not None:
            CpuShare(self.cpu_share)


class Rhythm:
    """Decides when the next iteration may start.

    Parameters
    ----------
    pace : Pace
        The schedule.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.held_back: str | None = None
        self.trouble: str | None = None
        self._share = None if pace.cpu_share is None else CpuShare(pace.cpu_share)
        self._began = self._not_before = float("-inf")

    @property
    def waiting(self) -> str | None:
        """Why the peer is held back, as the end of a sentence that begins with "it"; None if it is not."""
        return self.trouble or self.held_back

    def hold(self, trouble: str) -> None:
        """Delay the next iteration because of a problem, which is logged once."""
        if trouble != self.trouble:
            LOG.warning("held back", extra={"details": {"why": trouble}})
        self.trouble = trouble
        self._not_before = time.monotonic() + self.pace.check_every

    async def next_turn(self, sent: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> bool:
        """Wait until the last head was sent, the interval has passed and the condition holds; return False to stop."""
        await _unless(stopping, sent())
        while not stopping.is_set():
            due = max(self._began + self.pace.interval, self._not_before)
            rest = max(due - time.monotonic(), self._share.rest() if self._share else 0.0)
            if rest > 0:
                await _unless(stopping, asyncio.sleep(rest))
            elif self.pace.train_when():
                self.held_back, self._began = None, time.monotonic()
                if self._share:
                    self._share.begin()
                return True
            else:
                self.held_back = f"trains only {describe(self.pace.train_when)}"
                await _unless(stopping, asyncio.sleep(self.pace.check_every))
        return False


async def _unless(stopping: asyncio.Event, awaitable: Awaitable[None]) -> None:
    """Wait for something, or until the event is set."""
    wanted, stopped = asyncio.ensure_future(awaitable), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({wanted, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            wanted.result()
    finally:
        wanted.cancel()
        stopped.cancel()


class Traffic:
    """Traffic counters across restarts, and the byte caps.

    Parameters
    ----------
    overlay : Overlay
        Counts since this start.
    store : PeerStore
        Has the counts of earlier runs.
    pace : Pace
        Conditions and caps.
    """

    def __init__(self, overlay: Overlay, store: PeerStore, pace: Pace) -> None:
        self._overlay, self._store, self._pace = overlay, store, pace
        self._before = store.counters()
        self._accounted = 0
        self.budget = ByteBudget(per_hour=pace.bytes_per_hour, per_day=pace.bytes_per_day, spending=store.spending())

    def totals(self) -> dict[str, int]:
        """Return all counters since the peer first ran; refusals are named ``refused.REASON``."""
        counters = self._account()
        now = {
            "bytes_in": counters.bytes_in,
            "bytes_out": counters.bytes_out,
            "heads_in": counters.heads_in,
            "heads_out": counters.heads_out,
            "features_differ": counters.features_differ,
            "statements_in": counters.statements_in,
            "statements_out": counters.statements_out,
            "heads_given_up": counters.heads_given_up,
            "retransmissions": counters.retransmissions,
            "bytes_forwarded": counters.bytes_forwarded,
            **{f"refused.{kind}": count for kind, count in counters.refused.items()},
        }
        return {name: self._before.get(name, 0) + now.get(name, 0) for name in {**self._before, **now}}

    def head_held_back(self, shape: tuple[int, int]) -> str | None:
        """Return why a head may not be shared now; None if it may."""
        counters = self._overlay.counters
        # What a head has cost so far, with all that goes with it; before the first, more than any.
        own = counters.bytes_out - counters.bytes_forwarded
        each = own / counters.heads_out if counters.heads_out else head_bytes(*shape, body=grid_bytes(*shape))
        return self.held_back(each)

    def held_back(self, each: float) -> str | None:
        """Return why so many bytes may not be sent to every neighbour now; None if they may."""
        if not self._pace.send_when():
            return f"sends only {describe(self._pace.send_when)}"
        self._account()
        if not self.budget.allows(int(len(self._overlay.neighbours()) * each)):
            return "has sent as many bytes as it may"
        return None

    def keep(self) -> None:
        """Save the counters, if there is room on the disk."""
        try:
            self._store.keep(counters=self.totals(), spending=self.budget.spending)
        except TryAgainError as error:
            LOG.warning("counters not kept", extra={"details": {"why": str(error)}})

    def _account(self) -> Counters:
        counters = self._overlay.counters
        if counters.bytes_out > self._accounted:
            self.budget.spend(counters.bytes_out - self._accounted)
            self._accounted = counters.bytes_out
        return counters
