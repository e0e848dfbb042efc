"""What went in and out, and what was refused and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bristle.network.refusal import Refusal


@dataclass(frozen=True, kw_only=True)
class Counters:
    """A snapshot since the start. Bytes are UDP payloads, whatever they carried.

    Parameters
    ----------
    bytes_in, bytes_out, datagrams_in, datagrams_out : int
        All that came and went.
    heads_in, heads_out : int
        Heads that arrived whole and well, and that a neighbour acknowledged.
    heads_given_up : int
        Heads that no acknowledgement came for, or whose neighbour went away.
    retransmissions : int
        Datagrams of heads sent again.
    refused : mapping
        How often something was refused, for each reason.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    datagrams_in: int = 0
    datagrams_out: int = 0
    heads_in: int = 0
    heads_out: int = 0
    heads_given_up: int = 0
    retransmissions: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def datagrams(self) -> int:
        """Datagrams in both directions."""
        return self.datagrams_in + self.datagrams_out


@dataclass
class Tally:
    """The counters while they count."""

    bytes_in: int = 0
    bytes_out: int = 0
    datagrams_in: int = 0
    datagrams_out: int = 0
    heads_in: int = 0
    heads_out: int = 0
    heads_given_up: int = 0
    retransmissions: int = 0
    refused: Counter[Refusal] = field(default_factory=Counter)

    def refuse(self, reason: Refusal, count: int = 1) -> None:
        """Count something that was not taken."""
        if count:
            self.refused[reason] += count

    def snapshot(self) -> Counters:
        """Return the counters as they are now."""
        refused = {reason.value: count for reason, count in sorted(self.refused.items())}
        return Counters(**{**vars(self), "refused": refused})
