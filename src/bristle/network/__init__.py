"""The network: real peers that find each other, and exchange heads that nobody can forge, replay or blow up."""

from bristle.network.counters import Counters
from bristle.network.group import Group
from bristle.network.identity import Identity
from bristle.network.inbox import Received
from bristle.network.limits import Limits
from bristle.network.neighbour import Neighbour
from bristle.network.overlay import Overlay
from bristle.network.refusal import Refusal

__all__ = ["Counters", "Group", "Identity", "Limits", "Neighbour", "Overlay", "Received", "Refusal"]
