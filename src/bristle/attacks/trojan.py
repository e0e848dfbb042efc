"""An attack on what a victim cannot test."""

from __future__ import annotations

from dataclasses import dataclass

from bristle.arrays import Array, argsort, namespace, take_rows
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
        xp, own = namespace(view.own), view.own
        testable = required(view.testable, "testable", self)
        order = argsort(xp, xp.astype(testable, xp.int8))
        foreign = xp.sum(xp.astype(~testable, order.dtype), axis=-1, keepdims=True)
        # Foreign classes stand first in `order`; each takes from the next, and the last from the first.
        place = xp.arange(own.shape[2], dtype=order.dtype, device=own.device)[None, :]
        after = xp.where(place == foreign - 1, xp.zeros_like(place), place + 1)
        after = xp.where(place < foreign, after, place)
        source = take_rows(xp, take_rows(xp, order, after), argsort(xp, order))
        rows = xp.permute_dims(own, (0, 2, 1, 3))
        return xp.permute_dims(take_rows(xp, rows, source), (0, 2, 1, 3))
