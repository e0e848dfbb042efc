"""What a large world takes, before anything of it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bristle.rules import Bristle, FedAvg, Local, Rule
from bristle.simulation.scenario import Scenario

# Rules that never ask for copies of the models, as long as no prioritiser has to choose among them.
SPARING: tuple[type[Rule], ...] = (Bristle, FedAvg, Local)
# Rules that never ask for the own head before its latest training.
FORGETFUL: tuple[type[Rule], ...] = (Bristle, FedAvg, Local)
WORKING_BYTES = {"cuda": 6 << 30, "cpu": 256 << 20}


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes that a large world takes: `nodes` times what is kept of each, tables, and room to work in.

    Parameters
    ----------
    nodes : int
        Benign peers and attackers.
    heads, shared, moments, previous, lists : int
        Kept of each node: its head, what it shares, Adam's moments, the head before training where the rule asks for
        it, and lists of neighbours and samples.
    tables : int
        Features of all samples.
    working : int
        Room for a chunk of receivers.
    chunk : int
        How many receivers that is.
    shared_width : int
        Bytes of a number that is shared.
    """

    nodes: int
    heads: int
    shared: int
    moments: int
    previous: int
    lists: int
    tables: int
    working: int
    chunk: int
    shared_width: int

    @property
    def per_node(self) -> int:
        """Bytes kept of each node."""
        return self.heads + self.shared + self.moments + self.previous + self.lists

    @property
    def total(self) -> int:
        """All bytes."""
        return self.nodes * self.per_node + self.tables + self.working

    def fits(self, free: int) -> int:
        """Return how many nodes such as these fit into `free` bytes."""
        return max(0, (free - self.tables - self.working) // self.per_node)

    def check(self, free: int, *, where: str) -> None:
        """Refuse a world that does not fit, with what would."""
        if self.total <= free:
            return
        parts = ", ".join(
            f"{name} {_gb(self.nodes * size)}"
            for name, size in (
                ("heads", self.heads),
                ("what is shared", self.shared),
                ("moments", self.moments),
                ("heads before training", self.previous),
                ("lists", self.lists),
            )
            if size
        )
        advice = [f"make it {self.fits(free):,} nodes"] if self.fits(free) else []
        narrow = replace(self, shared=self.shared * 2 // self.shared_width, moments=2 * self.heads // 2)
        if narrow.per_node < self.per_node:
            advice.append(
                f"keep moments and share heads as bfloat16, which takes {_gb(narrow.total)} and fits "
                f'{narrow.fits(free):,} nodes (moments = "bfloat16", shared = "bfloat16")'
            )
        advice.append("split it over several workers")
        raise ValueError(
            f"a world of {self.nodes:,} nodes takes {_gb(self.total)} ({parts}, tables {_gb(self.tables)}, "
            f"room to work {_gb(self.working)}), but {where} has {_gb(free)} free: {', or '.join(advice)}"
        )


def plan_for(
    scenario: Scenario,
    *,
    classes: int,
    features: int,
    samples: int,
    models: int,
    kind: str,
    nodes: int | None = None,
    halo: int = 0,
) -> MemoryPlan:
    """Plan a world whose peers hear `models` others each, with tables of `samples` samples, on a device of a `kind`.

    `nodes` are those of this worker (all by default), and `halo` counts heads of other workers' nodes that it keeps.
    """
    nodes = scenario.peers + scenario.attackers if nodes is None else nodes
    size, width = classes * features, 2 if scenario.precision.shared != "same" else 4
    tests = scenario.held_out * scenario.classes_per_peer
    # Outputs and what is counted of them, for every model and test; the new head; weights.
    working = 10 * (models + 1) * tests * classes + 8 * size + 80 * (models + 1) * classes
    if type(scenario.rule) not in SPARING or models > takes_all_of(scenario.rule) or kind != "cuda":
        working += 16 * (models + 1) * size + 8 * tests * features
    chunk = scenario.receivers_at_once or max(1, min(1 << 16, WORKING_BYTES[kind] // working))
    chunk = min(chunk, max(1, nodes))
    return MemoryPlan(
        nodes=nodes,
        heads=4 * size,
        shared=width * size * (nodes + halo) // max(1, nodes),
        moments=2 * size * (4 if scenario.precision.moments == "same" else 2),
        previous=0 if type(scenario.rule) in FORGETFUL else 4 * size,
        lists=8 * (2 * models + 2 * tests + 4 * scenario.samples_per_class * classes),
        tables=samples * features * (4 if width == 4 else 6),
        working=working * chunk,
        chunk=chunk,
        shared_width=width,
    )


def takes_all_of(rule: Rule) -> int:
    """Return how many models a rule takes without choosing among them."""
    return rule.beta if isinstance(rule, Bristle) else 1 << 30


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
