"""An attack on what a victim cannot test."""

from __future__ import annotations

from dataclasses import dataclass

from bristle._core import Array, argsort, namespace, take_rows
from bristle.attacks.attack import Attack, required
from bristle.attacks.view import Knowledge, View


@dataclass(frozen=True, kw_only=True)
class ForeignTrojan(Attack):
    r"""m_k,c = x_k,c for the classes c that the victim can test, m_k,c = x_k,next(c) for its foreign ones.

    An attack made for Bristle, which admits foreign rows on the strength of familiar ones: honest where the
    victim looks, and each foreign class with the row of the next foreign class, the last with that of the
    first. The rows come from the attackers' own heads, honestly trained on all classes. With fewer than two
    foreign classes there is nothing to swap and the head goes out honest. Knows everything: the classes
    that the victim can test. O(K d).
    """

    @property
    def knows(self) -> Knowledge:
        """The classes that the victim can test."""
        return Knowledge.EVERYTHING

    def craft(self, view: View, draws: Array | None) -> Array:
        """Roll the rows that will not be tested."""
        return swap_foreign(view.own, required(view.testable, "testable", self))


def swap_foreign(heads: Array, testable: Array) -> Array:
    """Give each class that is not `testable` [B, C] the row of the next such class, in `heads` [B, K, C, D]."""
    xp = namespace(heads)
    order = argsort(xp, xp.astype(testable, xp.int8))
    foreign = xp.sum(xp.astype(~testable, order.dtype), axis=-1, keepdims=True)
    # Foreign classes stand first in `order`; each takes from the next, and the last from the first.
    place = xp.arange(heads.shape[2], dtype=order.dtype, device=heads.device)[None, :]
    after = xp.where(place == foreign - 1, xp.zeros_like(place), place + 1)
    after = xp.where(place < foreign, after, place)
    source = take_rows(xp, take_rows(xp, order, after), argsort(xp, order))
    rows = xp.permute_dims(heads, (0, 2, 1, 3))
    return xp.permute_dims(take_rows(xp, rows, source), (0, 2, 1, 3))
