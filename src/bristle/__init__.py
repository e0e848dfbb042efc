"""Bristle: learn together without a server and without trust."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"
__all__ = [
    "TOPOLOGIES",
    "Bristle",
    "Context",
    "Decision",
    "Evaluation",
    "Head",
    "Pace",
    "Peer",
    "Pool",
    "attacks",
    "load_head",
    "rules",
    "save_head",
    "simulate",
]

if TYPE_CHECKING:
    from bristle import attacks, rules
    from bristle._core import Pool
    from bristle.backbones.head import Head, load_head, save_head
    from bristle.learning.metrics import Evaluation
    from bristle.peer.pace import Pace
    from bristle.peer.peer import Peer
    from bristle.rules import Bristle, Context, Decision
    from bristle.simulation.build import TOPOLOGIES
    from bristle.simulation.experiment import simulate
else:
    _WHERE = {
        "Bristle": "bristle.rules",
        "Context": "bristle.rules",
        "Decision": "bristle.rules",
        "Evaluation": "bristle.learning.metrics",
        "Head": "bristle.backbones.head",
        "Pace": "bristle.peer.pace",
        "Peer": "bristle.peer.peer",
        "Pool": "bristle._core",
        "TOPOLOGIES": "bristle.simulation.build",
        "load_head": "bristle.backbones.head",
        "save_head": "bristle.backbones.head",
        "simulate": "bristle.simulation.experiment",
    }

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for."""
        if name in ("attacks", "rules"):
            return import_module(f"bristle.{name}")
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = import_module(_WHERE[name]).__dict__[name]
        return found
