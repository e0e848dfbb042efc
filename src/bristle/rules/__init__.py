"""Aggregation rules: how a peer combines the heads that it receives.

Every rule has the same call: `rule(own, received, mask=, evaluation=, claims=, context=, rng=)`.
"""

from typing import Literal

from bristle._core import Array, namespace
from bristle._core.registry import Registry
from bristle.rules.averaging import CGE, Balance, FedAvg, Local, NearestNeighbourAveraging
from bristle.rules.base import Rule, Verdict, combination, kept_or, stay
from bristle.rules.bristle import Bristle, Integrator, Prioritiser
from bristle.rules.call import Context, State, Task, stack
from bristle.rules.checks import Measure
from bristle.rules.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from bristle.rules.decision import Decision, Reason
from bristle.rules.evidence import Evidence, EvidenceDecision, Statement
from bristle.rules.geometric import CenteredClipping, GeometricMedian, SelfCenteredClipping
from bristle.rules.inbox import Inbox
from bristle.rules.krum import Bulyan, Krum, MultiKrum
from bristle.rules.spectral import CAF
from bristle.rules.steps import Bucketing, Clipping, NearestNeighbourMixing, Step, chain
from bristle.rules.subsets import MDA, SMEA
from bristle.rules.tested import FLTrust, Mozi, learns_alone

__all__ = [
    "CAF",
    "CGE",
    "MDA",
    "SMEA",
    "Array",
    "Balance",
    "Bristle",
    "Bucketing",
    "Bulyan",
    "CenteredClipping",
    "Clipping",
    "Context",
    "Decision",
    "Evidence",
    "EvidenceDecision",
    "FLTrust",
    "FedAvg",
    "GeometricMedian",
    "Inbox",
    "Integrator",
    "Krum",
    "Local",
    "MeanAroundMedian",
    "Measure",
    "Median",
    "Mozi",
    "MultiKrum",
    "NearestNeighbourAveraging",
    "NearestNeighbourMixing",
    "Prioritiser",
    "Reason",
    "Rule",
    "SelfCenteredClipping",
    "State",
    "Statement",
    "Step",
    "Task",
    "TrimmedMean",
    "Verdict",
    "chain",
    "combination",
    "create",
    "create_step",
    "kept_or",
    "learns_alone",
    "names",
    "namespace",
    "stack",
    "stay",
    "steps",
]

_RULES: dict[str, type[Rule]] = {
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
    "mda": MDA,
    "smea": SMEA,
    "caf": CAF,
    "cge": CGE,
    "balance": Balance,
    "mozi": Mozi,
    "fltrust": FLTrust,
    "bristle": Bristle,
    "evidence": Evidence,
}

_STEPS: dict[str, type[Step]] = {
    "nearest-neighbour-mixing": NearestNeighbourMixing,
    "bucketing": Bucketing,
    "clipping": Clipping,
}

RULES: Registry[Rule] = Registry("rule", Rule, _RULES, "bristle.rules", also_called={"bridge": "trimmed-mean"})
STEPS: Registry[Step] = Registry("step", Step, _STEPS, "bristle.steps")


def names(*, shares: Literal["heads", "evidence"] | None = None) -> tuple[str, ...]:
    """Return the names of all rules: Bristle's own, then those of installed packages.

    With `shares`, only rules whose peers exchange that. This imports the packages' rules; a function that makes a rule
    counts as one for heads.
    """
    return tuple(name for name in RULES.names() if shares is None or _shared(name) == shares)


def _shared(name: str) -> str:
    """Return what peers with a rule exchange. It depends on the class alone, so no options are needed."""
    found = RULES.find(name)
    rule = object.__new__(found) if isinstance(found, type) else found
    return rule.shares if isinstance(rule, Rule) else "heads"


def steps() -> tuple[str, ...]:
    """Return the names of all steps, which can precede a rule in a `chain`: Bristle's own, then those of packages."""
    return STEPS.names()


def create(name: str, **options: object) -> Rule:
    """Make a rule by name: `create("krum", f=4)`; `module:name` and rules of installed packages work as well."""
    if name not in RULES and name in steps():
        raise ValueError(
            f"{name!r} is a step, not a rule: put it before one, e.g. rule.before = [{name!r}] and rule.name = 'krum', "
            f"or rules.chain(rules.create_step({name!r}), rules.create('krum'))"
        )
    return RULES.create(name, options, keys=("before",))


def create_step(name: str, **options: object) -> Step:
    """Make a step for `chain` by name: `create_step("bucketing", s=3)`."""
    if name not in STEPS and name in names():
        raise ValueError(f"{name!r} is a rule, not a step: put it into rule.name; steps are {', '.join(steps())}")
    return STEPS.create(name, options)
