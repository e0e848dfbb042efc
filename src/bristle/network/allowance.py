"""What one neighbour may cost: bytes, manifests, addresses handed on, and messages for nothing."""

from __future__ import annotations

from bristle.network.budget import Bucket
from bristle.network.limits import Limits

ALL_MANIFESTS = 16
"""Times the rate of one neighbour: manifests of all together."""

WANTED, PROMISED, LATE, NOTHING = 1.0, 0.0, -0.25, -1.0
"""What a message was worth: new and asked for, a manifest, before its manifest or after its head, or for nothing.

A whole window of pieces, or acknowledgements of it, may come late from somebody honest: when a manifest gets lost,
or when a newer head overtakes them.
"""

ALL_NUISANCES = 25
"""Times the rate of one neighbour: messages for nothing of all together that do not hurt."""

_PATIENCE = 20.0
"""Seconds' worth of messages for nothing that are taken before a neighbour is let go."""

_GOSSIP = 0.5
_MOST_GOSSIP = 4.0
_PROMISES = 2.0
_MOST_PROMISES = 8.0


class Pool:
    """Half of what all neighbours may cost together, for whoever comes first; each is sure of its part of the rest.

    Parameters
    ----------
    limits : Limits
        How much that is.
    """

    def __init__(self, limits: Limits) -> None:
        self.bytes = Bucket(limits.receive_rate / 2, limits.receive_rate / 2)
        manifests = ALL_MANIFESTS * limits.manifest_rate / 2
        self.manifests = Bucket(manifests, manifests)
        self.nuisance = Bucket(ALL_NUISANCES * limits.nuisance_rate, 4 * ALL_NUISANCES * limits.nuisance_rate)


class Allowance:
    """Budgets of one neighbour. A burst is two seconds' worth.

    Parameters
    ----------
    limits : Limits
        How much is too much.
    """

    def __init__(self, limits: Limits) -> None:
        self._bytes = Bucket(limits.sender_rate, 2 * limits.sender_rate)
        assured = limits.receive_rate / 2 / limits.neighbours
        self._assured_bytes = Bucket(assured, 2 * assured)
        self._manifests = Bucket(limits.manifest_rate, 2 * limits.manifest_rate)
        assured = ALL_MANIFESTS * limits.manifest_rate / 2 / limits.neighbours
        self._assured_manifests = Bucket(assured, 2 * assured)
        self._nuisance = Bucket(limits.nuisance_rate, _PATIENCE * limits.nuisance_rate)
        self._promises = Bucket(_PROMISES, _MOST_PROMISES)
        self._gossip = Bucket(_GOSSIP, _MOST_GOSSIP)

    def take_bytes(self, amount: float, pool: Pool, now: float) -> bool:
        """Tell whether so many bytes may come."""
        return self._bytes.take(amount, now) and (self._assured_bytes.take(amount, now) or pool.bytes.take(amount, now))

    def may_announce(self, now: float) -> bool:
        """Tell whether a manifest is worth a look: cheaper than `take_manifest`, and it takes nothing."""
        return self._manifests.available(now) >= 1 and self._promises.available(now) >= 1

    def take_manifest(self, pool: Pool, now: float) -> bool:
        """Tell whether a manifest's signature may be checked: seldom, if no head ever follows."""
        return (
            self._promises.take(1, now)
            and self._manifests.take(1, now)
            and (self._assured_manifests.take(1, now) or pool.manifests.take(1, now))
        )

    def kept(self) -> None:
        """Take note of a head that followed its manifest: another one may."""
        self._promises.give(1)

    def take_gossip(self, now: float) -> bool:
        """Tell whether addresses that were handed on may be looked at."""
        return self._gossip.take(1, now)

    def bothered(self, price: float, pool: Pool, now: float) -> bool:
        """Take note of a message for nothing; True: that was one too many, and all of them together hurt.

        While they do not, nobody is let go: some honest peers are too quick for a slow line, and most of what they
        send comes late.
        """
        pool.nuisance.take(price, now)
        return not self._nuisance.take(price, now) and pool.nuisance.tokens < pool.nuisance.burst / 10

    def make_up(self, credit: float) -> None:
        """Take note of something useful: it makes up for what was not."""
        self._nuisance.give(credit)
