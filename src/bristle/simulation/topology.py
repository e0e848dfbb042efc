"""Topologies: seeded graphs of any number of nodes, as padded lists of senders for each receiver."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bristle._core.rng import Stream, draw, pick_distinct
from bristle._core.validation import check_count, check_share

if TYPE_CHECKING:
    from bristle.simulation.scenario import Scenario

Integers = np.ndarray[Any, np.dtype[np.int64]]
Booleans = np.ndarray[Any, np.dtype[np.bool]]


@dataclass(frozen=True, eq=False)
class Senders:
    """The senders that each receiver hears: `index` [N, M], and `mask` [N, M], False for padding (None: no padding)."""

    index: Integers
    mask: Booleans | None = None

    @classmethod
    def where(cls, index: Integers, mask: Booleans) -> Senders:
        """Return the senders at `index` where the mask is True."""
        return cls(index, None if mask.all() else mask)


@dataclass(frozen=True, kw_only=True)
class Topology(ABC):
    """A way to connect nodes. Links are directed."""

    @property
    def fixed(self) -> bool:
        """Whether the graph is the same in every iteration."""
        return True

    @abstractmethod
    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return the senders that each of `nodes` nodes hears in an iteration."""


@dataclass(frozen=True, kw_only=True)
class All(Topology):
    """A full mesh: every node hears all others."""

    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return all others."""
        return Senders(_others(np.broadcast_to(np.arange(nodes - 1), (nodes, max(0, nodes - 1)))))


@dataclass(frozen=True, kw_only=True)
class RandomNeighbours(Topology):
    """Every node hears k random others, or a fraction of all nodes: the paper's connection ratio.

    Parameters
    ----------
    k : int, optional
        Number of others, at most all.
    ratio : float, optional
        Instead of k: this fraction of all nodes, rounded, at least one.
    redraw : bool
        Draw in every iteration, instead of once.
    """

    k: int | None = None
    ratio: float | None = None
    redraw: bool = False

    def __post_init__(self) -> None:
        if (self.k is None) == (self.ratio is None):
            raise ValueError("random neighbours need either k=, their number, or ratio=, the fraction of all peers")
        if self.k is not None:
            check_count("k", self.k, least=1)
        if self.ratio is not None:
            check_share("ratio", self.ratio)

    @property
    def fixed(self) -> bool:
        """Whether they are drawn once."""
        return not self.redraw

    def count(self, nodes: int) -> int:
        """Return the number of others that each of `nodes` nodes hears."""
        return min(self.k if self.k is not None else max(1, round((self.ratio or 0) * nodes)), nodes - 1)

    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return k others of each node."""
        count = self.count(nodes)
        draws = draw(seed, Stream.TOPOLOGY, np.arange(nodes), iteration if self.redraw else 0, count)
        return Senders(_others(pick_distinct(draws, nodes - 1)))


@dataclass(frozen=True, kw_only=True)
class Ring(Topology):
    """Nodes in a circle; each hears the `reach` next ones on either side."""

    reach: int = 1

    def __post_init__(self) -> None:
        check_count("reach", self.reach, least=1)

    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return the neighbours on both sides."""
        if 2 * self.reach >= nodes:
            raise ValueError(
                f"a ring with reach={self.reach} needs at least {2 * self.reach + 1} nodes, not {nodes}; "
                "use a smaller reach, or the topology 'all'"
            )
        steps = np.array([step for step in range(-self.reach, self.reach + 1) if step])
        return Senders(np.sort((np.arange(nodes)[:, None] + steps) % nodes, axis=1))


@dataclass(frozen=True, kw_only=True)
class Grid(Topology):
    """Nodes on a grid as square as can be, row by row; each hears those above, below, left and right of it."""

    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return up to four neighbours of each node."""
        width = math.isqrt(nodes - 1) + 1 if nodes > 1 else 1
        node = np.arange(nodes)
        right = node[(node % width < width - 1) & (node + 1 < nodes)]
        below = node[node + width < nodes]
        pairs = np.concatenate([np.stack([right, right + 1], axis=1), np.stack([below, below + width], axis=1)])
        return _padded(np.concatenate([pairs, pairs[:, ::-1]]), nodes)


@dataclass(frozen=True, kw_only=True)
class SmallWorld(Topology):
    """A ring whose links are rewired at random: Watts and Strogatz, "Collective dynamics", Nature 1998.

    Every link of the ring goes to a random other node instead with probability `rewire`. Links work both ways.

    Parameters
    ----------
    k : int
        Neighbours on the ring, half of them on either side; even.
    rewire : float
        Probability of a shortcut.
    """

    k: int = 4
    rewire: float = 0.1

    def __post_init__(self) -> None:
        check_count("k", self.k, least=2)
        check_share("rewire", self.rewire)
        if self.k % 2:
            raise ValueError(f"k={self.k}: a small world starts from a ring, give an even number of neighbours")

    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return the neighbours after rewiring."""
        Ring(reach=self.k // 2).senders(nodes, seed=seed, iteration=iteration)  # says whether there are enough nodes
        linked: list[set[int]] = [set() for _ in range(nodes)]
        for node in range(nodes):
            for step in range(1, self.k // 2 + 1):
                linked[node].add((node + step) % nodes)
                linked[(node + step) % nodes].add(node)
        draws = draw(seed, Stream.TOPOLOGY, np.arange(nodes), 0, self.k)
        for step in range(1, self.k // 2 + 1):
            for node in range(nodes):
                chance, where = draws[node, 2 * step - 2 : 2 * step]
                old = (node + step) % nodes
                free = nodes - 1 - len(linked[node])
                if chance >= self.rewire or free < 1 or old not in linked[node]:
                    continue
                taken = linked[node] | {node}
                new = [other for other in range(nodes) if other not in taken][int(where * free)]
                linked[node].remove(old)
                linked[old].remove(node)
                linked[node].add(new)
                linked[new].add(node)
        pairs = [(other, node) for node in range(nodes) for other in linked[node]]
        return _padded(np.array(pairs, dtype=np.int64), nodes)


@dataclass(frozen=True, kw_only=True)
class Edges(Topology):
    """An explicit list of directed links: pairs (sender, receiver)."""

    edges: tuple[tuple[int, int], ...]

    def senders(self, nodes: int, *, seed: int, iteration: int) -> Senders:
        """Return the senders listed for each receiver."""
        for edge in self.edges:
            if len(edge) != 2 or not all(0 <= node < nodes for node in edge) or edge[0] == edge[1]:
                raise ValueError(f"edge {list(edge)} must be [sender, receiver], two different nodes below {nodes}")
        pairs = np.array(sorted(set(map(tuple, self.edges))), dtype=np.int64).reshape(-1, 2)
        return _padded(pairs, nodes)


def _others(index: Integers) -> Integers:
    """Return node numbers from positions among a node's others [N, M], which leave out the node itself."""
    return index + (index >= np.arange(len(index))[:, None])


def _padded(pairs: Integers, nodes: int) -> Senders:
    """Make lists of senders from pairs (sender, receiver)."""
    pairs = pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]
    counts = np.bincount(pairs[:, 1], minlength=nodes)
    mask = np.arange(int(counts.max(initial=0))) < counts[:, None]
    index = np.zeros(mask.shape, dtype=np.int64)
    index[mask] = pairs[:, 0]
    return Senders.where(index, mask)


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The senders that each benign peer hears, and the number of its receivers.

    Parameters
    ----------
    peers, attackers : Senders [N, M]
        Benign peers and attackers, both numbered from 0, that each benign peer hears.
    audience : integer array [N]
        Number of benign peers and attackers that each benign peer sends to, absent ones included.
    """

    peers: Senders
    attackers: Senders
    audience: Integers


class Neighbourhoods:
    """The neighbourhood in every iteration; deterministic for a seed."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._nodes = scenario.peers + (scenario.attackers if scenario.attackers_in_graph else 0)
        places = draw(scenario.seed, Stream.PLACES, np.zeros(1), 0, self._nodes)[0]
        # With attackers beside the graph, peers are at the nodes of their own numbers.
        self._who = np.argsort(places, kind="stable") if scenario.attackers_in_graph else np.arange(self._nodes)

    def at(self, iteration: int) -> Neighbourhood:
        """Return the neighbourhood in an iteration."""
        return self._fixed if self._scenario.topology.fixed else self._drawn(iteration)

    @cached_property
    def _fixed(self) -> Neighbourhood:
        return self._drawn(1)

    def _drawn(self, iteration: int) -> Neighbourhood:
        scenario, peers, attackers = self._scenario, self._scenario.peers, self._scenario.attackers
        graph = scenario.topology.senders(self._nodes, seed=scenario.seed, iteration=iteration)
        if not scenario.attackers_in_graph:
            heard = graph.index.ravel() if graph.mask is None else graph.index[graph.mask]
            everyone = np.broadcast_to(np.arange(attackers), (peers, attackers))
            return Neighbourhood(graph, Senders(everyone), np.bincount(heard, minlength=peers) + attackers)
        node_of = np.argsort(self._who)
        who = self._who[graph.index][node_of]
        there = np.ones(who.shape, dtype=np.bool) if graph.mask is None else graph.mask[node_of]
        benign = _left_aligned(who[:peers], there[:peers] & (who[:peers] < peers))
        others = _left_aligned(who[:peers] - peers, there[:peers] & (who[:peers] >= peers))
        audience = np.bincount(who[there], minlength=self._nodes)[:peers]
        return Neighbourhood(benign, others, audience)


def _left_aligned(who: Integers, wanted: Booleans) -> Senders:
    """Keep the wanted entries of each row, ascending, in as few columns as possible."""
    width = int(wanted.sum(axis=1).max(initial=0))
    last = np.iinfo(np.int64).max
    kept = np.sort(np.where(wanted, who, last), axis=1)[:, :width]
    mask = kept < last
    return Senders.where(np.where(mask, kept, 0), mask)
