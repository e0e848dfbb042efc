"""Evidence: counts, class means and scatter, stated once, in place of heads that are exchanged for ever."""

from bristle.rules.evidence.location import Claims, Located, deviations, disputes, independent, robust_means, unit_of
from bristle.rules.evidence.rule import Answer, Evidence, EvidenceDecision
from bristle.rules.evidence.scatter import Scatter, geometric_median, pool_scatter
from bristle.rules.evidence.statement import Statement, state, unfit

__all__ = [
    "Answer",
    "Claims",
    "Evidence",
    "EvidenceDecision",
    "Located",
    "Scatter",
    "Statement",
    "deviations",
    "disputes",
    "geometric_median",
    "independent",
    "pool_scatter",
    "robust_means",
    "state",
    "unfit",
    "unit_of",
]
