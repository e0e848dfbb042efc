"""What has arrived where: the newest head of each sender, from a short history of what all of them shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, namespace
from bristle._core.rng import Stream, draw
from bristle.simulation.asynchrony import Asynchrony
from bristle.simulation.topology import Booleans, Integers, Senders

NEVER = -(1 << 40)


@dataclass(frozen=True, eq=False)
class Arrived:
    """Positions [N, M] in the mailbox's heads, and where there is a message at all (None: everywhere)."""

    index: Integers
    mask: Booleans | None


class Mailbox:
    """The heads of benign peers under way.

    A message of iteration s arrives in iteration s + 1, or later by its delay, or never. A receiver that acts takes of
    each sender the newest message that has arrived; if it arrived before the receiver acted last, it is known already,
    and nothing is received.

    Parameters
    ----------
    asynchrony : Asynchrony
        What becomes of messages.
    heads : array [N, C, D]
        What all share before the first iteration.
    present : boolean array [N]
        Who is there to share it.
    seed : int
        Of the fate of messages.
    """

    def __init__(self, asynchrony: Asynchrony, heads: Array, present: Booleans, *, seed: int) -> None:
        self._asynchrony, self._seed = asynchrony, seed
        self.depth = asynchrony.depth
        peers = len(present)
        self.acted = np.zeros(peers, dtype=np.int64)
        """The iteration in which each peer acted last, or before which it was away."""
        self.shared = np.full((self.depth, peers), NEVER, dtype=np.int64)
        """Of which iteration the heads in each slot are; `NEVER` where a peer shared none."""
        self.shared[0, present] = 0
        xp = namespace(heads)
        self.slots: Array = heads if self.depth == 1 else xp.stack([heads] * self.depth, axis=0)

    @property
    def heads(self) -> Array:
        """All heads that may be received [P, C, D], which `arrived` points into."""
        return namespace(self.slots).reshape(self.slots, (-1, *self.slots.shape[-2:]))

    def put(self, heads: Array, acting: Booleans, iteration: int) -> None:
        """Take what those who acted in an iteration share."""
        self.acted[acting] = iteration
        if self.depth == 1:
            self.slots = heads
            self.shared[0, acting] = iteration
            return
        slot = iteration % self.depth
        self.slots[slot, ...] = heads
        self.shared[slot] = np.where(acting, iteration, NEVER)

    def absent(self, present: Booleans, iteration: int) -> None:
        """Let those who are away miss everything up to an iteration."""
        self.acted[~present] = iteration

    def arrived(self, senders: Senders, present: Booleans, iteration: int) -> Arrived:
        """Return what each peer would receive in an iteration."""
        index, known = senders.index, self.acted[:, None]
        reachable = present[index] if senders.mask is None else present[index] & senders.mask
        if self._asynchrony.reliable:
            return _whole(index, reachable & (self.shared[0][index] + 1 > known))
        position = np.zeros_like(index)
        arrival = np.full(index.shape, NEVER, dtype=np.int64)
        found = np.zeros(index.shape, dtype=np.bool)
        for sent in range(iteration - 1, max(-1, iteration - 1 - self.depth), -1):
            slot = sent % self.depth
            comes = self._arrival(index, sent)
            new = ~found & (self.shared[slot][index] == sent) & (comes <= iteration)
            position[new] = (slot * len(present) + index)[new]
            arrival[new] = comes[new]
            found |= new
        return _whole(position, reachable & (arrival > known))

    def kept(self, index: Integers, iteration: int) -> Booleans | None:
        """Tell which of the attackers' messages [N, M], sent and received in one iteration, are not lost."""
        if not self._asynchrony.loss:
            return None
        kept: Booleans = self._fates(len(self.acted) + index, iteration)[..., 0] >= self._asynchrony.loss
        return kept

    def _arrival(self, index: Integers, sent: int) -> Integers:
        """Return when the messages of an iteration arrive [N, M]; never is after the end of time."""
        least, most = self._asynchrony.delay
        fates = self._fates(index, sent)
        comes: Integers = sent + 1 + least + np.floor(fates[..., 1] * (most - least + 1)).astype(np.int64)
        return np.where(fates[..., 0] < self._asynchrony.loss, -NEVER, comes)

    def _fates(self, index: Integers, sent: int) -> Any:
        """Draw two uniforms for each link [N, M, 2]; a link has the same ones wherever it stands in the index."""
        receivers = np.arange(len(index), dtype=np.int64)[:, None]
        links = (receivers << 31) + index
        return draw(self._seed, Stream.MESSAGES, links.ravel(), sent, 2).reshape(*index.shape, 2)

    def state(self) -> dict[str, Array]:
        """Return all that changes, by name."""
        return {"acted": self.acted, "shared": self.shared, "slots": self.slots}

    def restore(self, state: dict[str, Array]) -> None:
        """Go back to a state."""
        self.acted, self.shared, self.slots = state["acted"], state["shared"], state["slots"]


def _whole(index: Integers, mask: Booleans) -> Arrived:
    return Arrived(index, None if mask.all() else mask)
