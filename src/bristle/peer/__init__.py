"""One peer: what it does with what it received, trains and shares."""

from bristle.peer.step import PeerState, Samples, step

__all__ = ["PeerState", "Samples", "step"]
