"""Asynchrony and mailboxes: the newest head of each sender that has arrived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, namespace
from bristle._core.rng import Stream, draw
from bristle._core.validation import check_count, check_share
from bristle.simulation.topology import Booleans, Integers, Senders


@dataclass(frozen=True, kw_only=True)
class Asynchrony:
    """Slow, late and absent peers, and lost and delayed messages.

    Parameters
    ----------
    slow : float
        Fraction of the peers, drawn at random, that act only in every `period`-th iteration.
    period : int
        Iterations between actions of slow peers.
    late : float
        Fraction of the peers, drawn at random, that join late: each in an iteration drawn from 2 to `join_by`.
    join_by : int
        Iteration by which all have joined.
    leaving : float
        Fraction of the peers, drawn at random, that leave once, each in an iteration drawn from the whole run.
    away : int, optional
        Iterations until they return; None: never.
    absences : tuple of (peer, first, last)
        Further iterations in which certain peers are absent, both ends included.
    loss : float
        Probability that a message is lost.
    delay : (int, int)
        Smallest and largest additional delay of a benign peer's message, in iterations. Messages of attackers may be
        lost, but are never late.
    """

    slow: float = 0.0
    period: int = 4
    late: float = 0.0
    join_by: int = 100
    leaving: float = 0.0
    away: int | None = None
    absences: tuple[tuple[int, int, int], ...] = ()
    loss: float = 0.0
    delay: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        for name, share in (("slow", self.slow), ("late", self.late), ("leaving", self.leaving), ("loss", self.loss)):
            check_share(name, share)
        check_count("period", self.period, least=1)
        check_count("join_by", self.join_by, least=2)
        if self.away is not None:
            check_count("away", self.away, least=1)
        if len(self.delay) != 2 or not 0 <= self.delay[0] <= self.delay[1]:
            raise ValueError(f"delay={list(self.delay)}: give the smallest and the largest delay, e.g. [0, 3]")
        for absence in self.absences:
            if len(absence) != 3 or absence[0] < 0 or not 1 <= absence[1] <= absence[2]:
                raise ValueError(f"absence {list(absence)} must be [peer, first iteration, last iteration]")

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the next iteration."""
        return not self.loss and not self.delay[1]

    @property
    def depth(self) -> int:
        """Number of iterations of heads that are kept: all that can still arrive."""
        if self.reliable:
            return 1  # The last head that a peer shared is its present one.
        return self.delay[1] + (self.period if self.slow else 1)


class Schedule:
    """When each of `peers` peers is present, and when it acts; deterministic for a seed."""

    def __init__(self, asynchrony: Asynchrony, *, peers: int, total: int, seed: int) -> None:
        absent_peer = max((peer for peer, _, _ in asynchrony.absences), default=0)
        if absent_peer >= peers:
            raise ValueError(f"absences name peer {absent_peer}, but peers are numbered from 0 to {peers - 1}")
        self._absences = asynchrony.absences
        draws = draw(seed, Stream.SCHEDULE, np.arange(peers), 0, 4)
        order = draw(seed, Stream.SCHEDULE, np.arange(peers), 1, 3)
        slow, late, leaving = (
            _chosen(order[:, column], share)
            for column, share in enumerate((asynchrony.slow, asynchrony.late, asynchrony.leaving))
        )
        self.period = np.where(slow, asynchrony.period, 1)
        self._phase = _whole_rounds(draws[:, 0], 0, self.period - 1)
        self._joins = np.where(late, _whole_rounds(draws[:, 1], 2, asynchrony.join_by), 1)
        never = np.iinfo(np.int64).max
        self._leaves = np.where(leaving, _whole_rounds(draws[:, 2], 1, total), never)
        returns = never if asynchrony.away is None else self._leaves + (asynchrony.away if leaving.any() else 0)
        self._returns = np.where(leaving, returns, never)

    def present(self, iteration: int) -> Booleans:
        """Return which peers are present [peers]."""
        there: Booleans = (iteration >= self._joins) & ((iteration < self._leaves) | (iteration >= self._returns))
        for peer, first, last in self._absences:
            there[peer] &= not first <= iteration <= last
        return there

    def acting(self, iteration: int) -> Booleans:
        """Return which peers are present and act [peers]."""
        turn: Booleans = (iteration + self._phase) % self.period == 0
        return turn & self.present(iteration)


def _chosen(draws: Any, share: float) -> Booleans:
    """Choose this fraction of the peers, rounded: those with the smallest draws."""
    chosen = np.zeros(len(draws), dtype=np.bool)
    chosen[np.argsort(draws, kind="stable")[: round(share * len(draws))]] = True
    return chosen


def _whole_rounds(draws: Any, least: int, most: Any) -> Integers:
    """Return integers from `least` to `most`, both included, from uniforms."""
    numbers: Integers = least + np.floor(draws * (np.asarray(most) - least + 1)).astype(np.int64)
    return numbers


NEVER = -(1 << 40)


class Mailbox:
    """The heads of benign peers in transit.

    A message of iteration s arrives in iteration s + 1, or later by its delay, or never. An acting receiver takes the
    newest message of each sender that has arrived since the receiver last acted.

    Parameters
    ----------
    asynchrony : Asynchrony
        Loss and delay of messages.
    heads : array [N, C, D]
        Heads shared before the first iteration.
    present : boolean array [N]
        Which peers share them.
    seed : int
        Seed of loss and delay.
    """

    def __init__(self, asynchrony: Asynchrony, heads: Array, present: Booleans, *, seed: int) -> None:
        self._asynchrony, self._seed = asynchrony, seed
        self.depth = asynchrony.depth
        peers = len(present)
        self.acted = np.zeros(peers, dtype=np.int64)
        """The last iteration in which each peer acted or was absent."""
        self.shared = np.full((self.depth, peers), NEVER, dtype=np.int64)
        """Iteration of the heads in each slot; `NEVER` where a peer shared none."""
        self.shared[0, present] = 0
        xp = namespace(heads)
        self.slots: Array = heads if self.depth == 1 else xp.stack([heads] * self.depth, axis=0)

    @property
    def heads(self) -> Array:
        """All heads that may be received [P, C, D]; `arrived` returns positions in them."""
        return namespace(self.slots).reshape(self.slots, (-1, *self.slots.shape[-2:]))

    def put(self, heads: Array, acting: Booleans, iteration: int) -> None:
        """Store the heads that acting peers share in an iteration."""
        self.acted[acting] = iteration
        if self.depth == 1:
            self.slots = heads
            self.shared[0, acting] = iteration
            return
        slot = iteration % self.depth
        self.slots[slot, ...] = heads
        self.shared[slot] = np.where(acting, iteration, NEVER)

    def absent(self, present: Booleans, iteration: int) -> None:
        """Mark all messages up to an iteration as missed by absent peers."""
        self.acted[~present] = iteration

    def arrived(self, senders: Senders, present: Booleans, iteration: int) -> Senders:
        """Return the heads that arrive at each peer in an iteration, as positions in `heads`."""
        index, known = senders.index, self.acted[:, None]
        reachable = present[index] if senders.mask is None else present[index] & senders.mask
        if self._asynchrony.reliable:
            return Senders.where(index, reachable & (self.shared[0][index] + 1 > known))
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
        return Senders.where(position, reachable & (arrival > known))

    def kept(self, index: Integers, iteration: int) -> Booleans | None:
        """Return the mask of the attackers' messages [N, M] that are not lost in an iteration; None: all arrive."""
        if not self._asynchrony.loss:
            return None
        kept: Booleans = self._fates(len(self.acted) + index, iteration)[..., 0] >= self._asynchrony.loss
        return kept

    def _arrival(self, index: Integers, sent: int) -> Integers:
        """Return the iterations in which messages arrive [N, M]; `-NEVER` for lost ones."""
        least, most = self._asynchrony.delay
        fates = self._fates(index, sent)
        comes: Integers = sent + 1 + least + np.floor(fates[..., 1] * (most - least + 1)).astype(np.int64)
        return np.where(fates[..., 0] < self._asynchrony.loss, -NEVER, comes)

    def _fates(self, index: Integers, sent: int) -> Any:
        """Draw two uniforms for each link [N, M, 2], independent of its position in the index."""
        receivers = np.arange(len(index), dtype=np.int64)[:, None]
        links = (receivers << 31) + index
        return draw(self._seed, Stream.MESSAGES, links.ravel(), sent, 2).reshape(*index.shape, 2)

    def state(self) -> dict[str, Array]:
        """Return all arrays that change, by name."""
        return {"acted": self.acted, "shared": self.shared, "slots": self.slots}

    def restore(self, state: dict[str, Array]) -> None:
        """Restore what `state` returned."""
        self.acted, self.shared, self.slots = state["acted"], state["shared"], state["slots"]
