"""Bristle: learn together without a server and without trust."""

from bristle import attacks, rules
from bristle.arrays import Pool
from bristle.learning.metrics import Evaluation
from bristle.rules import Bristle, Context, Decision

__version__ = "0.1.0"
__all__ = ["Bristle", "Context", "Decision", "Evaluation", "Pool", "attacks", "rules"]
