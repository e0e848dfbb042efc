"""Bristle: learn together without a server and without trust."""

from typing import TYPE_CHECKING

from bristle import attacks, rules
from bristle.arrays import Pool
from bristle.learning.metrics import Evaluation
from bristle.rules import Bristle, Context, Decision

__version__ = "0.1.0"
__all__ = ["Bristle", "Context", "Decision", "Evaluation", "Peer", "Pool", "attacks", "rules", "simulate"]

if TYPE_CHECKING:
    from bristle.apps.simulate import simulate
    from bristle.network.service import Peer
else:

    def __getattr__(name: str) -> object:
        """Import what needs more than arrays when it is first asked for."""
        if name == "simulate":
            from bristle.apps.simulate import simulate  # noqa: PLC0415

            return simulate
        if name == "Peer":
            from bristle.network.service import Peer  # noqa: PLC0415

            return Peer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
