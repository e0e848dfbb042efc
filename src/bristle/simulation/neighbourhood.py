"""Who hears whom in a world: benign peers, and the attackers among or beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bristle._core.rng import Stream, draw
from bristle.simulation.scenario import Scenario
from bristle.simulation.topology import Booleans, Integers, Senders


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Whom each benign peer hears, and how many hear it.

    Parameters
    ----------
    peers, attackers : Senders [N, M]
        Benign peers and attackers, both numbered from 0, that each benign peer hears.
    audience : integer array [N]
        How many benign peers and attackers each benign peer sends to; also those who are away, which it cannot know.
    """

    peers: Senders
    attackers: Senders
    audience: Integers


class Neighbourhoods:
    """The neighbourhood in every iteration; the same for the same seed."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._fixed: Neighbourhood | None = None
        self._nodes = scenario.peers + (scenario.attackers if scenario.attackers_in_graph else 0)
        places = draw(scenario.seed, Stream.PLACES, np.zeros(1), 0, self._nodes)[0]
        # With attackers beside the graph everyone stands at the node of its own number.
        self._who = np.argsort(places, kind="stable") if scenario.attackers_in_graph else np.arange(self._nodes)

    def at(self, iteration: int) -> Neighbourhood:
        """Return who hears whom in an iteration."""
        if self._fixed is not None:
            return self._fixed
        scenario = self._scenario
        graph = scenario.topology.senders(self._nodes, seed=scenario.seed, iteration=iteration)
        around = self._among(graph) if scenario.attackers_in_graph else self._beside(graph)
        if scenario.topology.fixed:
            self._fixed = around
        return around

    def _beside(self, graph: Senders) -> Neighbourhood:
        peers, attackers = self._scenario.peers, self._scenario.attackers
        everyone = np.broadcast_to(np.arange(attackers), (peers, attackers))
        return Neighbourhood(graph, Senders(everyone), _audience(graph, peers) + attackers)

    def _among(self, graph: Senders) -> Neighbourhood:
        peers = self._scenario.peers
        node_of = np.argsort(self._who)
        who = self._who[graph.index][node_of]
        there = np.ones(who.shape, dtype=np.bool) if graph.mask is None else graph.mask[node_of]
        benign = _left_aligned(who[:peers], there[:peers] & (who[:peers] < peers))
        others = _left_aligned(who[:peers] - peers, there[:peers] & (who[:peers] >= peers))
        audience = np.bincount(who[there], minlength=self._nodes)[:peers]
        return Neighbourhood(benign, others, audience)


def _audience(graph: Senders, nodes: int) -> Integers:
    heard = graph.index.ravel() if graph.mask is None else graph.index[graph.mask]
    return np.bincount(heard, minlength=nodes)


def _left_aligned(who: Integers, wanted: Booleans) -> Senders:
    """Keep the wanted ones of each row, ascending, in as few columns as will do."""
    width = int(wanted.sum(axis=1).max(initial=0))
    last = np.iinfo(np.int64).max
    kept = np.sort(np.where(wanted, who, last), axis=1)[:, :width]
    mask = kept < last
    return Senders(np.where(mask, kept, 0), None if mask.all() else mask)
