"""Budgets: how often, or how many bytes, somebody may cost us something, before it costs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass
class Bucket:
    """A token bucket: `burst` at once, `rate` a second in the long run.

    Parameters
    ----------
    rate, burst : float
        Tokens that come each second, and that fit in.
    """

    rate: float
    burst: float
    tokens: float = field(init=False)
    filled: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def available(self, now: float) -> float:
        """Return the tokens that are there at a time."""
        if self.filled is not None and now > self.filled:
            self.tokens = min(self.burst, self.tokens + (now - self.filled) * self.rate)
        # A clock that steps back must not fill the bucket twice, nor stop it from filling.
        self.filled = now
        return self.tokens

    def take(self, amount: float, now: float) -> bool:
        """Take tokens, if there are enough."""
        if self.available(now) < amount:
            return False
        self.tokens -= amount
        return True

    def give(self, amount: float) -> None:
        """Give tokens back, as far as they fit in."""
        self.tokens = min(self.burst, self.tokens + amount)


class Budgets(Generic[Key]):
    """A bucket for each source; when there are too many, the one not used for longest is forgotten.

    Parameters
    ----------
    rate, burst : float
        Of each bucket.
    most : int
        How many sources are remembered.
    """

    def __init__(self, *, rate: float, burst: float, most: int = 4096) -> None:
        self.rate = rate
        self.burst = burst
        self.most = most
        self._buckets: OrderedDict[Key, Bucket] = OrderedDict()

    def take(self, source: Key, amount: float, now: float) -> bool:
        """Take tokens of one source, if it has enough."""
        return self.spend(source, amount, now) is not None

    def spend(self, source: Key, amount: float, now: float) -> float | None:
        """Take tokens of one source and return how many it has left; None if it has not enough."""
        bucket = self._buckets.get(source)
        if bucket is None:
            bucket = self._buckets[source] = Bucket(self.rate, self.burst)
            if len(self._buckets) > self.most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(source)
        return bucket.tokens if bucket.take(amount, now) else None

    def __len__(self) -> int:
        return len(self._buckets)
