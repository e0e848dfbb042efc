"""Compares what this peer's backbone makes of the group's test sample with what each neighbour's does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bristle.p2p.limits import NOTHING, PROMISED, TokenBucket
from bristle.p2p.neighbour import Counters, Link
from bristle.wire.messages import Probe, encode

TOLERANCE = 0.05
"""Relative difference from which peers warn; benchmarks/same_features.py measures what is harmless and what is not."""

LOG = logging.getLogger("bristle.p2p")
AGAIN, TRIES = 1.0, 6
"""Seconds after which a neighbour is asked again, doubled each time, and how often it is asked."""

_WARNINGS, _MOST_WARNINGS = 1 / 60, 8.0
"""Warnings per second and at once: a neighbour may say anything."""


def difference(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the relative difference of two probes: ‖a - b‖ over the root of (‖a‖² + ‖b‖²) / 2."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    size = np.sqrt((a @ a + b @ b) / 2)
    return float(np.linalg.norm(a - b) / size) if size > 0 else 0.0


@dataclass
class _Asked:
    due: float
    wait: float = AGAIN
    tries: int = 0


class FeatureCheck:
    """Asks every new neighbour for its probe, and warns where it differs.

    Parameters
    ----------
    own : array [PROBE_NUMBERS], optional
        This peer's probe; None where its backbone cannot be compared: then nobody is asked or answered.
    links : dict
        The neighbours, by key id.
    counters : Counters
        To update.
    send : callable
        Seals a message and sends it to a neighbour.
    """

    def __init__(
        self,
        own: NDArray[np.float32] | None,
        *,
        links: dict[bytes, Link],
        counters: Counters,
        send: Callable[[Link, bytes], None],
    ) -> None:
        self._own, self._links, self._counters, self._send = own, links, counters, send
        self._asked: dict[bytes, _Asked] = {}
        self._warnings = TokenBucket(_WARNINGS, _MOST_WARNINGS)

    def joined(self, link: Link, now: float) -> None:
        """Ask a new neighbour, unless it was asked before."""
        if self._own is not None and link.difference is None:
            self._asked[link.key_id] = _Asked(now)

    def left(self, link: Link) -> None:
        """Forget a neighbour."""
        self._asked.pop(link.key_id, None)

    def on_probe(self, link: Link, message: Probe, now: float) -> float:
        """Compare a neighbour's probe, the first that it sends, and answer; return its worth."""
        if self._own is None:
            return PROMISED
        known = link.difference is not None
        if message.asks:
            if link.probes_answered >= TRIES:
                return NOTHING
            link.probes_answered += 1
            self._send(link, self._message(asks=False))
        if known:
            return PROMISED if message.asks else NOTHING
        self._asked.pop(link.key_id, None)
        theirs = np.frombuffer(message.numbers, dtype=">f4").astype(np.float32)
        if not np.isfinite(theirs).all():
            return NOTHING
        link.difference = difference(self._own, theirs)
        if link.difference > TOLERANCE:
            self._counters.features_differ += 1
            if self._warnings.take(1, now):
                details = {
                    "neighbour": link.key_id.hex(),
                    "difference": f"{link.difference:.0%}",
                    "remedy": "compare the versions of backbone, runtime and preprocessing",
                }
                LOG.warning("a neighbour computes other features than this peer", extra={"details": details})
        return PROMISED

    def tick(self, now: float) -> None:
        """Ask those that have not answered yet."""
        for key_id, asked in list(self._asked.items()):
            link = self._links.get(key_id)
            if link is None or asked.tries >= TRIES:
                del self._asked[key_id]
            elif now >= asked.due:
                self._send(link, self._message(asks=True))
                asked.tries, asked.due, asked.wait = asked.tries + 1, now + asked.wait, 2 * asked.wait

    def _message(self, *, asks: bool) -> bytes:
        assert self._own is not None
        return encode(Probe(self._own.astype(">f4").tobytes(), asks))
