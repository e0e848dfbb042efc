"""What a running peer has sent and received in all its life, and what it may still send."""

from __future__ import annotations

from bristle.network.overlay import Overlay
from bristle.network.service_pace import Pace
from bristle.network.service_turn import LOG
from bristle.peer.budget import ByteBudget
from bristle.peer.conditions import describe
from bristle.peer.store import PeerStore
from bristle.peer.store_files import TryAgainError
from bristle.peer.wire_size import Encoding, head_bytes


class Traffic:
    """Counters across restarts, and the byte budget.

    Parameters
    ----------
    overlay : Overlay
        What counts since this start.
    store : PeerStore
        What was counted before.
    pace : Pace
        Conditions and caps.
    """

    def __init__(self, overlay: Overlay, store: PeerStore, pace: Pace) -> None:
        self._overlay, self._store, self._pace = overlay, store, pace
        self._before = store.counters()
        self._accounted = 0
        self.budget = ByteBudget(per_hour=pace.bytes_per_hour, per_day=pace.bytes_per_day, spending=store.spending())

    def totals(self) -> dict[str, int]:
        """Return all counters since the peer first ran; what was refused as ``refused.KIND``."""
        self._account()
        counters = self._overlay.counters
        now = {
            "bytes_in": counters.bytes_in,
            "bytes_out": counters.bytes_out,
            "heads_in": counters.heads_in,
            "heads_out": counters.heads_out,
            "heads_given_up": counters.heads_given_up,
            "retransmissions": counters.retransmissions,
            **{f"refused.{kind}": count for kind, count in counters.refused.items()},
        }
        return {name: self._before.get(name, 0) + now.get(name, 0) for name in {**self._before, **now}}

    def held_back(self, shape: tuple[int, int], encoding: Encoding) -> str | None:
        """Say why a head may not be shared now; None where it may."""
        if not self._pace.send_when():
            return f"sends only {describe(self._pace.send_when)}"
        self._account()
        counters = self._overlay.counters
        listeners = len(self._overlay.neighbours())
        # What a head has cost so far, with all that goes with it; before the first, what it would without compression.
        each = counters.bytes_out / counters.heads_out if counters.heads_out else head_bytes(*shape, encoding=encoding)
        if not self.budget.allows(int(listeners * each)):
            return "has sent as many bytes as it may"
        return None

    def keep(self) -> None:
        """Write the counters down, if there is room: a peer that stops has nothing else left to keep."""
        try:
            self._store.keep(counters=self.totals(), spending=self.budget.spending)
        except TryAgainError as error:
            LOG.warning("counters not kept", extra={"details": {"why": str(error)}})

    def _account(self) -> None:
        sent = self._overlay.counters.bytes_out
        if sent > self._accounted:
            self.budget.spend(sent - self._accounted)
            self._accounted = sent
