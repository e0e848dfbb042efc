"""The paper's experiments as declarations, engines that run them, and checks of its claims."""

from bristle.paper.declaration import Contender, Figure, RunTask, Setting, Size, WorldPanel
from bristle.paper.figures import figures
from bristle.paper.measured import MeasuredRows
from bristle.paper.plan import Entry, Wanted, entries, rows, tasks
from bristle.paper.store import Store

__all__ = [
    "Contender",
    "Entry",
    "Figure",
    "MeasuredRows",
    "RunTask",
    "Setting",
    "Size",
    "Store",
    "Wanted",
    "WorldPanel",
    "entries",
    "figures",
    "rows",
    "tasks",
]
