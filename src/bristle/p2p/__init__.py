"""The peer-to-peer network: peers that find each other and exchange signed heads and statements."""

from bristle.p2p.inbox import ReceivedHead
from bristle.p2p.limits import Limits
from bristle.p2p.neighbour import Counters, Neighbour
from bristle.p2p.overlay import Overlay
from bristle.p2p.statements import ReceivedStatement
from bristle.wire.statements import SignedStatement

__all__ = ["Counters", "Limits", "Neighbour", "Overlay", "ReceivedHead", "ReceivedStatement", "SignedStatement"]
