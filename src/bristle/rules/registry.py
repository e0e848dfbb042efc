"""Rules and steps by name. Adding one is a file and a line."""

from __future__ import annotations

from typing import Any

from bristle._core.validation import make
from bristle.rules.averaging import Balance, FedAvg, Local, NearestNeighbourAveraging
from bristle.rules.base import Rule
from bristle.rules.bristle import Bristle
from bristle.rules.bristle_plus import BristlePlus
from bristle.rules.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from bristle.rules.geometric import CenteredClipping, GeometricMedian, SelfCenteredClipping
from bristle.rules.krum import Bulyan, Krum, MultiKrum
from bristle.rules.steps import Bucketing, Clipping, NearestNeighbourMixing, Step
from bristle.rules.tested import FLTrust, Mozi

RULES: dict[str, type[Rule]] = {
    "local": Local,
    "fedavg": FedAvg,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "mean-around-median": MeanAroundMedian,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "bulyan": Bulyan,
    "geometric-median": GeometricMedian,
    "centered-clipping": CenteredClipping,
    "self-centered-clipping": SelfCenteredClipping,
    "nearest-neighbour-averaging": NearestNeighbourAveraging,
    "balance": Balance,
    "mozi": Mozi,
    "fltrust": FLTrust,
    "bristle": Bristle,
    "bristle-plus": BristlePlus,
}

STEPS: dict[str, type[Step]] = {
    "nearest-neighbour-mixing": NearestNeighbourMixing,
    "bucketing": Bucketing,
    "clipping": Clipping,
}


def names() -> list[str]:
    """Return the names of all rules."""
    return list(RULES)


def steps() -> list[str]:
    """Return the names of all steps that can stand before a rule in a `chain`."""
    return list(STEPS)


def create(name: str, **options: object) -> Any:
    """Make a rule, or a step for `chain`, by name: `create("krum", f=4)`."""
    return make("rule", {**RULES, **STEPS}, name, options)
