"""ALIE and inner product with the factor that hurts most: a line search asks the victim's rule itself."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

from bristle._core import Array, namespace, squared_norms
from bristle._core.validation import check_count, check_positive
from bristle.attacks.adaptive import TIE, Oracle
from bristle.attacks.base import Attack, required
from bristle.attacks.statistics import Honest
from bristle.attacks.view import Knowledge, View, flatten
from bristle.rules.base import Rule
from bristle.rules.checks import LARGEST_NORM


@dataclass(frozen=True, kw_only=True)
class LineSearch(Attack):
    """m = a lie with the factor τ that takes the victim's result farthest from the mean of the honest heads.

    Parameters
    ----------
    rule : Rule, optional
        The rule to attack; worlds fill in the rule of their peers. Without one, a plain mean.
    evaluations : int
        Number of factors to try, 0 first.
    step : float
        The first step.
    ratio : float
        Ratio by which steps shrink, between 0.5 and 1.
    """

    knows = Knowledge.EVERYTHING  # The victim's head stands among the honest ones, and its rule is asked.

    rule: Rule | None = None
    evaluations: int = 20
    step: float = 10.0
    ratio: float = 0.8

    def __post_init__(self) -> None:
        if self.rule is not None and not isinstance(self.rule, Rule):
            raise ValueError(f"rule must be a Rule, made with rules.create(name), or None, not {self.rule!r}")
        check_count("evaluations", self.evaluations, least=1)
        check_positive("step", self.step)
        if not 0.5 < self.ratio < 1:
            raise ValueError(f"ratio must be a number between 0.5 and 1, not {self.ratio!r}")

    @property
    def trains(self) -> bool:
        """Only against a rule that tests: their own heads stand in for samples that attackers do not hold."""
        return self.rule is not None and bool(self.rule.test_samples)

    @abstractmethod
    def lie(self, honest: Honest, factor: Array) -> Array:
        """Return what to send [B, F] with a factor τ [B, 1]."""

    def pointed_at(self, rule: Rule) -> Self:
        """Attack this rule, unless another one was asked for, or its peers exchange no heads."""
        return self if self.rule is not None or rule.shares != "heads" else replace(self, rule=rule)

    def craft(self, view: View, draws: Array | None) -> Array:
        """Search along the line."""
        xp, own = namespace(view.own), view.own
        inbox, mask = required(view.inbox, "inbox", self), required(view.inbox_mask, "inbox_mask", self)
        victim = required(view.victim, "victim", self)
        everyone = xp.concat([victim[:, None, ...], inbox], axis=1)
        there = xp.concat([xp.ones((own.shape[0], 1), dtype=xp.bool, device=own.device), mask], axis=1)
        honest = Honest(flatten(xp, everyone), there)
        head = xp.reshape(self.lie(honest, self._factor(honest, Oracle(self.rule, view))), victim.shape)
        heard = xp.any(mask, axis=-1)[:, None, None, None]
        return xp.where(heard, xp.broadcast_to(head[:, None, ...], own.shape), own)

    def _factor(self, honest: Honest, oracle: Oracle) -> Array:
        """Return τ [B, 1]: steps double while they help; from the first that does not, they shrink."""
        xp, mean = honest.xp, honest.mean

        def damage(factor: Array) -> Array:
            lie = self.lie(honest, factor)
            head = xp.reshape(lie, oracle.view.own[:, 0, ...].shape)
            moved = flatten(xp, oracle.after(head)) - mean
            # What every peer refuses for its size does no damage.
            small = xp.max(xp.abs(lie), axis=-1, keepdims=True) <= LARGEST_NORM / sqrt(lie.shape[1])
            return squared_norms(xp, xp.where(small, moved, xp.zeros_like(moved)))[:, None]

        best = xp.zeros_like(mean[:, :1])
        most = damage(best)
        step = xp.full_like(best, self.step)
        expanding = xp.ones(best.shape, dtype=xp.bool, device=best.device)
        for _ in range(self.evaluations - 1):
            tried = best + step
            found = damage(tried)
            better = found > most * (1 + TIE)  # What is better by rounding alone is no better.
            best, most = xp.where(better, tried, best), xp.where(better, found, most)
            expanding = expanding & better
            step = step * xp.where(expanding, xp.full_like(step, 2.0), xp.full_like(step, self.ratio))
        return best


@dataclass(frozen=True, kw_only=True)
class OptimalALittleIsEnough(LineSearch):
    r"""m = μ - τ σ with the τ that takes what the victim aggregates farthest from μ.

    Baruch, Baruch and Goldberg, NeurIPS 2019 (see `ALittleIsEnough`), with the factor optimised against the rule as
    by Allouah et al., "Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity", AISTATS 2023, and in
    ByzFL. μ and σ are taken over all honest heads, the victim's among them. Knows everything: the victim's head, and
    its rule. Costs `evaluations` decisions a victim and exchange. All attackers send the same.
    Parameters as for `LineSearch`.
    """

    def lie(self, honest: Honest, factor: Array) -> Array:
        """Return the mean minus so many standard deviations."""
        return honest.mean - factor * honest.deviation


@dataclass(frozen=True, kw_only=True)
class OptimalInnerProduct(LineSearch):
    r"""m = -τ μ with the τ that takes what the victim aggregates farthest from μ.

    Xie, Koyejo and Gupta, UAI 2019 (see `InnerProduct`), with the factor optimised against the rule as by Allouah et
    al., AISTATS 2023, and in ByzFL. μ is the mean of all honest heads, the victim's among them. Knows everything: the
    victim's head, and its rule. Costs `evaluations` decisions a victim and exchange. All attackers send the same.
    Parameters as for `LineSearch`.
    """

    def lie(self, honest: Honest, factor: Array) -> Array:
        """Return a negative multiple of the mean."""
        return -factor * honest.mean
