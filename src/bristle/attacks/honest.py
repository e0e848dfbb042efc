"""What attackers make of the honest heads that a victim receives."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bristle._core import Array, namespace
from bristle.attacks.attack import Attack, required
from bristle.attacks.scene import flatten
from bristle.attacks.view import Knowledge, View


@dataclass
class Honest:
    """Honest heads [B, M, F] as vectors, and which of them are there [B, M]; absent ones are zero."""

    heads: Array
    present: Array

    @property
    def xp(self) -> Any:
        """The array namespace."""
        return namespace(self.heads)

    @cached_property
    def count(self) -> Array:
        """How many heads are there [B], as a float."""
        return self.xp.sum(self.xp.astype(self.present, self.heads.dtype), axis=-1)

    @cached_property
    def mean(self) -> Array:
        """Mean [B, F]; zero where there are no heads."""
        return self._average(self.heads)

    @cached_property
    def deviation(self) -> Array:
        """Standard deviation [B, F] of the population, coordinate by coordinate."""
        difference = self.heads - self.mean[:, None, :]
        return self.xp.sqrt(self._average(difference * difference))

    def about(self, point: Array) -> Array:
        """Return the heads as seen from `point` [B, F]: [B, M, F], zero where they are absent."""
        xp, offsets = self.xp, self.heads - point[:, None, :]
        return offsets if self._complete else xp.where(self.present[:, :, None], offsets, xp.zeros_like(offsets))

    def mean_with(self, head: Array) -> Array:
        """Return the mean [B, F] of these heads and one more [B, F]."""
        count = self.count[:, None]
        return self.mean * (count / (count + 1)) + head / (count + 1)

    def extremes(self) -> tuple[Array, Array]:
        """Return the smallest and the largest value of each coordinate [B, F]; zero where there are no heads."""
        xp = self.xp
        if self._complete:
            return xp.min(self.heads, axis=1), xp.max(self.heads, axis=1)
        there = (self.present | (self.count == 0)[:, None])[:, :, None]
        far = xp.full_like(self.heads, xp.inf)
        return xp.min(xp.where(there, self.heads, far), axis=1), xp.max(xp.where(there, self.heads, -far), axis=1)

    @cached_property
    def _complete(self) -> bool:
        return bool(self.xp.all(self.present))

    def _average(self, values: Array) -> Array:
        xp, count = self.xp, self.count[:, None]
        weights = xp.astype(self.present, values.dtype) / xp.where(count > 0, count, xp.ones_like(count))
        return (weights[:, None, :] @ values)[:, 0, :]


@dataclass(frozen=True)
class AgainstHonest(Attack):
    """An attack made from the honest heads in the inbox; a victim that receives none gets the own heads, untrained."""

    @property
    def knows(self) -> Knowledge:
        """The honest heads that the victim receives."""
        return Knowledge.INBOX

    @property
    def trains(self) -> bool:
        """What is sent is made from the heads of others."""
        return False

    @abstractmethod
    def against(self, honest: Honest, view: View, draws: Array | None) -> Array:
        """Return what to send as vectors [B, K, F], or [B, 1, F] if all attackers send the same."""

    def craft(self, view: View, draws: Array | None) -> Array:
        """Work from the honest heads where there are any, else send the own ones."""
        xp, own = namespace(view.own), view.own
        inbox = required(view.inbox, "inbox", self)
        if inbox.shape[1] == 0:
            return own
        honest = Honest(flatten(xp, inbox), required(view.inbox_mask, "inbox_mask", self))
        heads = self.against(honest, view, draws)
        heads = xp.reshape(heads, (*heads.shape[:2], *own.shape[2:]))
        return xp.where((honest.count > 0)[:, None, None, None], heads, own)
