"""The paper's experiments as declarations, the engines that run them, and what of its claims held."""

from bristle.experiments.declaration import Contender, Figure, Panel, Setting, Size, Task
from bristle.experiments.figures import figures
from bristle.experiments.measured import Measured
from bristle.experiments.plan import Entry, Wanted, entries, rows, tasks
from bristle.experiments.store import Store

__all__ = [
    "Contender",
    "Entry",
    "Figure",
    "Measured",
    "Panel",
    "Setting",
    "Size",
    "Store",
    "Task",
    "Wanted",
    "entries",
    "figures",
    "rows",
    "tasks",
]
