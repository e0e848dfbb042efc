from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bristle.simulation import Edges, RandomNeighbours, Ring, Scenario
from bristle.simulation.topology import Neighbourhood, Neighbourhoods


def around(scenario: Scenario, iteration: int = 1) -> Neighbourhood:
    return Neighbourhoods(scenario).at(iteration)


def heard(found: Neighbourhood, attackers: bool) -> list[list[int]]:
    part = found.attackers if attackers else found.peers
    mask = np.ones(part.index.shape, dtype=np.bool) if part.mask is None else part.mask
    return [row[there].tolist() for row, there in zip(part.index, mask, strict=True)]


def test_attackers_beside_the_graph_are_heard_by_all() -> None:
    found = around(Scenario(peers=5, attackers=2, topology=Ring()))
    assert heard(found, attackers=True) == [[0, 1]] * 5
    assert heard(found, attackers=False)[0] == [1, 4]
    assert found.audience.tolist() == [4] * 5, "two on the ring, two attackers"


@given(st.integers(3, 12), st.integers(0, 9), st.integers(0, 9))
def test_attackers_in_the_graph_take_nodes_of_it(peers: int, attackers: int, seed: int) -> None:
    found = around(Scenario(peers=peers, attackers=attackers, topology=Ring(), attackers_in_graph=True, seed=seed))
    benign, malicious = heard(found, attackers=False), heard(found, attackers=True)
    assert all(len(a) + len(b) == 2 for a, b in zip(benign, malicious, strict=True))
    assert all(0 <= other < peers and other != peer for peer, others in enumerate(benign) for other in others)
    assert all(0 <= other < attackers for others in malicious for other in others)
    assert found.audience.tolist() == [2] * peers
    assert all(peer in benign[other] for peer, others in enumerate(benign) for other in others), "a ring goes both ways"


def test_places_in_the_graph_are_drawn() -> None:
    scenarios = [
        Scenario(peers=6, attackers=3, topology=Ring(), attackers_in_graph=True, seed=seed) for seed in range(8)
    ]
    assert len({str(heard(around(scenario), attackers=True)) for scenario in scenarios}) > 4


def test_who_is_heard_by_many_sends_more() -> None:
    found = around(Scenario(peers=3, topology=Edges(edges=((0, 1), (0, 2), (1, 2)))))
    assert found.audience.tolist() == [2, 1, 0]


def test_redrawn_neighbours_change() -> None:
    many = Neighbourhoods(Scenario(peers=12, topology=RandomNeighbours(k=3, redraw=True)))
    assert heard(many.at(1), attackers=False) != heard(many.at(2), attackers=False)
    once = Neighbourhoods(Scenario(peers=12, topology=RandomNeighbours(k=3)))
    assert once.at(1) is once.at(2)
