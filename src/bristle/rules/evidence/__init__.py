"""Evidence: counts, class means and scatter, stated once, in place of heads that are exchanged for ever."""

from bristle.rules.evidence.decision import Answer, EvidenceDecision
from bristle.rules.evidence.location import Claims, Located, confirmed, independent, robust_means
from bristle.rules.evidence.privacy import Privacy
from bristle.rules.evidence.rule import Evidence
from bristle.rules.evidence.scatter import Scatter, geometric_median, pool_scatter
from bristle.rules.evidence.statement import Statement, state, unfit
from bristle.rules.evidence.vetting import Vetted, disputes, vet

__all__ = [
    "Answer",
    "Claims",
    "Evidence",
    "EvidenceDecision",
    "Located",
    "Privacy",
    "Scatter",
    "Statement",
    "Vetted",
    "confirmed",
    "disputes",
    "geometric_median",
    "independent",
    "pool_scatter",
    "robust_means",
    "state",
    "unfit",
    "vet",
]
