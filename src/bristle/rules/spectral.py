"""Rules that use the spectrum of the heads' covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array
from bristle._core.validation import check_count
from bristle.rules.base import Rule, Verdict, combination, kept_or, stay
from bristle.rules.call import Task
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason
from bristle.rules.inbox import Inbox


@dataclass(frozen=True, kw_only=True)
class CAF(Rule):
    r"""c_i ← c_i (1 - τ_i / max_j τ_j) while Σ c_i > n - 2f, from c_i = 1, τ_i = ⟨x_i - μ_c, v⟩².

    μ_c and λ, v are the mean, and the largest eigenvalue and its direction of the covariance, of the heads weighted
    with c; x' = the μ_c with the smallest λ on the way. Allouah, Guerraoui and Stephan, "Towards Trustworthy
    Federated Learning with Untrusted Participants", ICML 2025 (covariance-bound agnostic filter). The maximum is
    over heads that still have weight, so that each step takes all weight from at least one of them, however far others
    without weight are. Assumes at most f attackers; needs n > 2f, else the own head stays. No data, no history.
    O(n² d + n⁴), exact: no power iterations.

    Parameters
    ----------
    f : int
        Number of attackers to expect.
    """

    f: int = 4

    measures = Measure.PRODUCTS  # Mean, covariance and projections come from the products.
    symmetric = True

    def __post_init__(self) -> None:
        check_count("f", self.f)

    def decide(self, inbox: Inbox, task: Task) -> Verdict:
        """Filter along the direction of largest variance until the total weight is at most n - 2f."""
        count = inbox.received + 1
        if count <= 2 * self.f:
            return stay(inbox, Reason.TOO_FEW_MODELS)
        xp, gram = inbox.xp, inbox.gram
        weights = xp.ones(gram.shape[:2], dtype=gram.dtype, device=gram.device)
        best = weights
        least = xp.full((gram.shape[0], 1), xp.inf, dtype=gram.dtype, device=gram.device)
        # Each step takes all weight from at least one head.
        for _ in range(count):
            value, spread = _largest_variance(xp, gram, weights)
            active = xp.sum(weights, axis=-1, keepdims=True) > count - 2 * self.f
            better = active & (value < least)
            best, least = xp.where(better, weights, best), xp.where(better, value, least)
            widest = xp.max(spread, axis=-1, keepdims=True)
            active = active & (widest > 0)  # Else all heads with weight are the same.
            if not bool(xp.any(active)):
                break
            shrunk = weights * (1 - spread / xp.where(widest > 0, widest, xp.ones_like(widest)))
            weights = xp.where(active, shrunk, weights)
        shares = best / xp.sum(best, axis=-1, keepdims=True)
        return combination(inbox, shares, kept_or(xp, shares[:, 1:] > 0, Reason.NOT_CHOSEN))


def _largest_variance(xp: Any, gram: Array, weights: Array) -> tuple[Array, Array]:
    """Return the largest eigenvalue [B, 1] of the weighted covariance, and the heads' squared projections [B, n].

    With X the heads about their weighted mean and C the weights, XᵀCX / Σc has the eigenvalues of √C XXᵀ √C / Σc; a
    unit eigenvector u of that gives the direction Xᵀ√C u / √(λ Σc), and XXᵀ√C u / √(λ Σc) as the projections.
    Heads without weight count as zero.
    """
    total = xp.sum(weights, axis=-1, keepdims=True)
    shares = weights / total
    toward = (gram @ shares[:, :, None])[:, :, 0]
    square = xp.sum(shares * toward, axis=-1)[:, None, None]
    centred = gram - toward[:, :, None] - toward[:, None, :] + square
    root = xp.sqrt(shares)
    scaled = root[:, :, None] * centred * root[:, None, :]
    values, vectors = xp.linalg.eigh((scaled + xp.matrix_transpose(scaled)) / 2)
    value, vector = values[:, -1:], vectors[:, :, -1]
    # √C XXᵀ √C u = λ Σc u: where there is weight, the projection is √(λ) u / √(c / Σc).
    held = shares > 0
    spread = xp.where(held, vector * vector / xp.where(held, shares, xp.ones_like(shares)), xp.zeros_like(shares))
    value = xp.where(value > 0, value, xp.zeros_like(value))
    return value, spread * value
