"""How a running peer's head goes out."""

from __future__ import annotations

from dataclasses import dataclass

from bristle.network.overlay import Overlay
from bristle.network.service_data import Knowledge
from bristle.peer.sharing import Sharing
from bristle.peer.wire_size import Encoding


@dataclass(frozen=True)
class Publication:
    """How heads are shared: what of them, how numbers are written, and whether compressed."""

    sharing: Sharing
    encoding: Encoding
    compress: bool

    def publish(self, network: Overlay, knowledge: Knowledge, *, iteration: int) -> None:
        """Share the head as it is after an iteration."""
        network.share(
            self.sharing.of_live_head(knowledge.learner.head),
            iteration=iteration,
            claims=knowledge.learner.claims,
            encoding=self.encoding,
            compress=self.compress,
        )
