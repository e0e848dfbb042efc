"""Rules and steps by name. Adding one is a file and a line."""

from __future__ import annotations

import difflib
from dataclasses import fields

from bristle.rules.averages import FedAvg, Local
from bristle.rules.bristle import Bristle
from bristle.rules.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from bristle.rules.geometric import CenteredClipping, GeometricMedian, SelfCenteredClipping
from bristle.rules.krum import Bulyan, Krum, MultiKrum
from bristle.rules.nearest import Balance, NearestNeighbourAveraging
from bristle.rules.rule import Rule
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


def create(name: str, **options: object) -> Rule | Step:
    """Make a rule, or a step for `chain`, by name: `create("krum", f=4)`."""
    known: dict[str, type[Rule] | type[Step]] = {**RULES, **STEPS}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
        raise ValueError(f"there is no rule {name!r}; {hint}")
    accepted = [field.name for field in fields(known[name])]
    for option in options:
        if option not in accepted:
            takes = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise ValueError(f"rule {name!r} has no option {option!r}; {takes}")
    return known[name](**options)
