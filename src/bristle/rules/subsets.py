"""Rules that search all subsets of n - f heads for the most compact one, and average it.

The search works on distances and inner products alone; heads are read once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from bristle._core import Array, to_numpy
from bristle._core.validation import check_count
from bristle.rules.base import Rule, Verdict, combination, kept_or, stay
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox

MOST_OUTLIERS = 12
"""MDA keeps up to 2^f sets of heads at a time."""
MOST_SUBSETS = 1 << 16
"""SMEA solves an eigenproblem for each subset."""
# Numbers in the products of the subsets that are tried at once.
AT_ONCE = 1 << 21


@dataclass(frozen=True, kw_only=True)
class MDA(Rule):
    r"""x' = mean of the n - f heads with the smallest diameter max_{i,j} ‖x_i - x_j‖ (minimum-diameter averaging).

    El Mhamdi et al., "Genuinely Distributed Byzantine Machine Learning", PODC 2020; Rousseeuw 1985. Assumes at most f
    attackers and an honest majority; needs n > 2f, else the own head stays. No data, no history. Exact: O(n² d) for the
    distances, then, instead of trying all subsets, the longest distances are ruled out one after another, for
    which there are 2^f ways at most. Of subsets with the same diameter, the one with the least scatter is taken.

    Parameters
    ----------
    f : int
        Number of attackers to expect, at most 12.
    """

    f: int = 4

    measures = Measure.PRODUCTS  # Distances between all heads come from their products.
    symmetric = True

    def __post_init__(self) -> None:
        check_count("f", self.f)
        if self.f > MOST_OUTLIERS:
            raise ValueError(
                f"f must be at most {MOST_OUTLIERS} for mda, whose search takes up to 2^f steps, not {self.f}; "
                "use caf or multi-krum for more attackers"
            )

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average the subset with the smallest diameter."""
        count = inbox.received + 1
        if count <= 2 * self.f:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        squared = to_numpy(inbox.squared_distances())
        kept = np.stack([~_farthest(one, self.f) for one in squared])
        return _mean_of(inbox, kept)


@dataclass(frozen=True, kw_only=True)
class SMEA(Rule):
    r"""x' = mean of the n - f heads whose covariance has the smallest maximum eigenvalue.

    Allouah et al., "On the Privacy-Robustness-Utility Trilemma in Distributed Learning", ICML 2023 (smallest maximum
    eigenvalue averaging). Assumes at most f attackers and an honest majority; needs n > 2f, else the own head stays. No
    data, no history. Exact: O(n² d) for the inner products, then an eigenproblem of n - f values for each of the
    n! / (f! (n - f)!) subsets, of which there may be 65,536 at most: beyond that a call is refused.

    Parameters
    ----------
    f : int
        Number of attackers to expect.
    """

    f: int = 2

    measures = Measure.PRODUCTS
    symmetric = True

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Average the subset with the smallest maximum eigenvalue."""
        count = inbox.received + 1
        if count <= 2 * self.f:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        if comb(count, self.f) > MOST_SUBSETS:
            raise ValueError(
                f"smea with f = {self.f} would try {comb(count, self.f):,} subsets of {count} heads, more than "
                f"{MOST_SUBSETS:,}; use fewer neighbours, a smaller f, or caf, which needs no subsets"
            )
        best = _smallest_eigenvalue(inbox.xp, inbox.gram, self.f)
        kept = np.ones((inbox.own.shape[0], count), dtype=bool)
        np.put_along_axis(kept, _subsets(count, self.f)[to_numpy(best)], False, axis=1)
        return _mean_of(inbox, kept)


def _mean_of(inbox: Inbox, kept: Any) -> Verdict:
    """Return the verdict with the mean of the heads that are kept, NumPy booleans [B, n]."""
    xp, own = inbox.xp, inbox.own
    among = xp.asarray(kept, device=own.device)
    weights = xp.astype(among, own.dtype)
    weights = weights / xp.sum(weights, axis=-1, keepdims=True)
    return combination(inbox, weights, kept_or(xp, among[:, 1:], Reason.NOT_CHOSEN))


def _farthest(squared: Any, f: int) -> Any:
    """Return which f heads [n] to leave out, so that the diameter of the others is smallest.

    Pairs are ruled out from the longest on, by leaving out one or the other: sets of heads left out branch there, one
    keeping what the other leaves out, so that no set is met twice. The pair that no set of f can rule out any more is
    the diameter, and the sets that are left then are those that attain it.
    """
    count = len(squared)
    first, second = np.triu_indices(count, 1)
    longest_first = np.argsort(-squared[first, second], kind="stable")
    out = np.zeros((1, count), dtype=bool)
    stays = np.zeros((1, count), dtype=bool)
    for i, j in zip(first[longest_first].tolist(), second[longest_first].tolist(), strict=True):
        done = out[:, i] | out[:, j]
        if done.all():
            continue
        may = ~done & (np.count_nonzero(out, axis=1) < f)
        without_i, without_j = may & ~stays[:, i], may & ~stays[:, j]
        if not (done.any() or without_i.any() or without_j.any()):
            break
        outs, stayings = [out[done]], [stays[done]]
        for dropped, spared, leaving in ((i, j, without_i), (j, i, without_j)):
            left, remaining = out[leaving], stays[leaving]
            left[:, dropped] = True
            # Sets that leave the second out are those that keep the first.
            if dropped == j:
                remaining[:, spared] = True
            outs.append(left)
            stayings.append(remaining)
        out, stays = np.concatenate(outs), np.concatenate(stayings)
    kept = (~out).astype(np.float64)
    scatter = np.einsum("si,ij,sj->s", kept, squared.astype(np.float64), kept)
    return out[int(np.argmin(scatter))]


@lru_cache(maxsize=8)
def _subsets(count: int, f: int) -> Any:
    """Return which f of `count` heads each subset leaves out [S, f]."""
    left_out = np.array(list(combinations(range(count), f)), dtype=np.int64).reshape(comb(count, f), f)
    left_out.setflags(write=False)
    return left_out


def _smallest_eigenvalue(xp: Any, gram: Array, f: int) -> Array:
    """Return the number of the subset [B] whose covariance has the smallest maximum eigenvalue.

    The covariance of k heads has the eigenvalues of their centred inner products, a matrix of k by k, divided by k.
    """
    batch, count = gram.shape[:2]
    left_out = _subsets(count, f)
    kept = np.ones((len(left_out), count), dtype=bool)
    np.put_along_axis(kept, left_out, False, axis=1)
    members = np.nonzero(kept)[1].reshape(len(left_out), count - f)
    step = max(1, AT_ONCE // (batch * (count - f) ** 2))
    least = best = None
    for start in range(0, len(members), step):
        some = members[start : start + step]
        pairs = xp.asarray((some[:, :, None] * count + some[:, None, :]).reshape(-1), device=gram.device)
        products = xp.take(xp.reshape(gram, (batch, count * count)), pairs, axis=1)
        products = xp.reshape(products, (batch, *some.shape, count - f))
        products = products - xp.mean(products, axis=-1, keepdims=True)
        products = products - xp.mean(products, axis=-2, keepdims=True)
        largest = xp.linalg.eigvalsh(products)[..., -1]
        here, number = xp.min(largest, axis=-1), xp.argmin(largest, axis=-1) + start
        if least is None or best is None:
            least, best = here, number
        else:
            best = xp.where(here < least, number, best)
            least = xp.minimum(here, least)
    assert best is not None
    return best
