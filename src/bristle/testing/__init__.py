"""Conformance suites, for the rules and attacks of this project and for those that people write themselves."""

from bristle.testing.attacks import check_attack
from bristle.testing.evidence import check_evidence
from bristle.testing.rules import check_rule

__all__ = ["check_attack", "check_evidence", "check_rule"]
