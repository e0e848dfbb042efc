"""Bristle's first stage: which models are worth testing, judged by distance alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bristle._core import Array, Pool, argsort, spread
from bristle._core.validation import check_count, check_share
from bristle.rules.call import Call
from bristle.rules.checks import Measure
from bristle.rules.inbox import Inbox
from bristle.rules.looking import Draw

# Of more than this many models, and this many times β, only so many are looked at.
LOOK_AT, LOOK_AT_BETAS = 48, 1.5


@dataclass(frozen=True, kw_only=True)
class Prioritiser:
    r"""Sample at most β models from three tiers of distance: f_l = (1-α)², f_m = 2α(1-α), f_h = α² of β.

    Verbraeken, de Vos and Pouwelse, "Bristle", 2021, section 3.2 (the distance-based prioritiser). Received heads
    are sorted by their Euclidean distance from the own head and cut into three tiers of equal size, a
    remainder going to the lower tiers; models are drawn uniformly from each. With at most β models all pass. Quotas
    are rounded by largest remainder to sum to β; what a tier cannot fill goes to its neighbours.

    Of more than L = max(48, 1.5 β) models, L that are fit for use are drawn uniformly first, and the tiers are cut
    among these: the thirds of a uniform sample are thirds of all, but for chance, and the cost no longer grows with the
    number of models. The others are not looked at, not even for values that are not finite: they are not sampled.

    Parameters
    ----------
    alpha : float
        Explore (1: only far models) or exploit (0: only near ones).
    beta : int
        How many models pass at most.
    """

    alpha: float = 0.4
    beta: int = 30

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("beta", self.beta, least=1)

    def __call__(self, own: Array, received: Array | Pool, *, mask: Array | None = None, rng: Any = None) -> Array:
        """Return which of the received models [..., M] pass: a mask to hand on to the integrator."""
        call = Call.check(own, received, mask=mask, measure=Measure.DISTANCES, draw=Draw(rng, self.looks_at))
        passes = []
        for part in call.parts():
            xp, count = part.inbox.xp, min(self.beta, part.inbox.received)
            chosen = xp.ones((part.inbox.own.shape[0], count), dtype=xp.bool, device=own.device)
            if part.inbox.received > self.beta:
                chosen = spread(xp, chosen, self.order(part.inbox, part.task.draws), False)
            passes.append(chosen if part.order is None else spread(xp, chosen, part.order, False))
        return call.restore(passes)

    @property
    def looks_at(self) -> int:
        """How many models are looked at, at most."""
        return max(LOOK_AT, math.ceil(LOOK_AT_BETAS * self.beta))

    def order(self, inbox: Inbox, draws: Array) -> Array:
        """Return the models' positions [B, received], those that pass (the first β) before the others."""
        xp, received = inbox.xp, inbox.received
        tiers = tier_sizes(received)
        quotas = self.quotas(received)
        low, middle = tiers[0], tiers[0] + tiers[1]
        starts, ends = (0, low, middle), (quotas[0], low + quotas[1], middle + quotas[2])
        by_distance = argsort(xp, inbox.distances())
        if xp is np:  # The same as below, by writing where a place is known instead of sorting once more.
            receiver = np.arange(len(by_distance))[:, None]
            tiered = draws.copy()
            tiered[receiver, by_distance[:, low:middle]] += 1
            tiered[receiver, by_distance[:, middle:]] += 2
            by_draw = argsort(np, tiered)
            fails = np.ones(by_draw.shape, dtype=np.int8)
            for start, end in zip(starts, ends, strict=True):
                fails[receiver, by_draw[:, start:end]] = 0
            return argsort(np, fails)
        rank = argsort(xp, by_distance)
        tier = xp.astype(rank >= low, draws.dtype) + xp.astype(rank >= middle, draws.dtype)
        # Sorted by tier, and by the draw within it, a model passes if it stands within its tier's quota.
        place = argsort(xp, argsort(xp, tier + draws))
        passes = xp.zeros(rank.shape, dtype=xp.bool, device=rank.device)
        for start, end in zip(starts, ends, strict=True):
            passes = passes | ((place >= start) & (place < end))
        return argsort(xp, xp.astype(~passes, xp.int8))

    @lru_cache(maxsize=256)  # noqa: B019 - a prioritiser is a small value
    def quotas(self, received: int) -> tuple[int, int, int]:
        """Return how many of `received` models are drawn from the low, medium and high tier."""
        shares = ((1 - self.alpha) ** 2, 2 * self.alpha * (1 - self.alpha), self.alpha**2)
        wanted = _largest_remainder(shares, min(self.beta, received))
        low, middle, high = tier_sizes(received)
        # What an outer tier cannot fill goes to the middle; what the middle cannot fill goes to both outer ones.
        low_quota, high_quota = min(wanted[0], low), min(wanted[2], high)
        open_places = min(self.beta, received) - low_quota - high_quota
        middle_quota = min(open_places, middle)
        open_places -= middle_quota
        extra_low = min(low - low_quota, open_places - open_places // 2)
        extra_high = min(high - high_quota, open_places - extra_low)
        extra_low = open_places - extra_high
        return low_quota + extra_low, middle_quota, high_quota + extra_high


def tier_sizes(count: int) -> tuple[int, int, int]:
    """Cut `count` models into three tiers; the lower ones take the remainder."""
    return (count + 2) // 3, (count + 1) // 3, count // 3


def _largest_remainder(shares: tuple[float, ...], total: int) -> list[int]:
    # Rounded, so that 0.36 * 25 = 9.000000000000002 or 8.999999999999998 both count as 9.
    exact = [round(share * total, 9) for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
