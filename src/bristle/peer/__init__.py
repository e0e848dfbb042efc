"""One peer: what it does with what it received, trains and shares."""

from bristle.peer.step import StepState, step

__all__ = ["StepState", "step"]
