"""What to make of received heads: rules that answer with decisions.

Every rule has the same call: `rule(own, received, mask=, evaluation=, claims=, context=, rng=)`.
"""

from bristle._core import Array, namespace
from bristle.rules.averaging import Balance, FedAvg, Local, NearestNeighbourAveraging
from bristle.rules.base import Rule, Verdict, combination, kept_or, stay
from bristle.rules.bristle import Bristle, Integrator, Prioritiser
from bristle.rules.bristle_plus import BristlePlus, PlusIntegrator
from bristle.rules.call import Context, State, Task, stack
from bristle.rules.checks import Measure
from bristle.rules.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from bristle.rules.decision import Decision, Reason
from bristle.rules.evidence import Evidence, EvidenceDecision, Statement
from bristle.rules.geometric import CenteredClipping, GeometricMedian, SelfCenteredClipping
from bristle.rules.inbox import Inbox
from bristle.rules.krum import Bulyan, Krum, MultiKrum
from bristle.rules.registry import create, create_step, names, steps
from bristle.rules.steps import Bucketing, Clipping, NearestNeighbourMixing, Step, chain
from bristle.rules.tested import FLTrust, Mozi, learns_alone

__all__ = [
    "Array",
    "Balance",
    "Bristle",
    "BristlePlus",
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
    "PlusIntegrator",
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
