"""The paper's experiments as declarations, the engines that run them, and what of its claims held."""

from bristle.paper.declaration import Contender, Figure, Panel, RunTask, Setting, Size
from bristle.paper.figures import figures
from bristle.paper.measured import Measured
from bristle.paper.plan import Entry, Wanted, entries, rows, tasks
from bristle.paper.store import Store

__all__ = [
    "Contender",
    "Entry",
    "Figure",
    "Measured",
    "Panel",
    "RunTask",
    "Setting",
    "Size",
    "Store",
    "Wanted",
    "entries",
    "figures",
    "rows",
    "tasks",
]
