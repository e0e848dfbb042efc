from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.simulation.topology import All, Edges, Grid, RandomNeighbours, Ring, Senders, SmallWorld, Topology


def listed(graph: Senders) -> list[list[int]]:
    mask = np.ones(graph.index.shape, dtype=np.bool) if graph.mask is None else graph.mask
    return [row[there].tolist() for row, there in zip(graph.index, mask, strict=True)]


def senders(topology: Topology, nodes: int, seed: int = 0, iteration: int = 1) -> list[list[int]]:
    return listed(topology.senders(nodes, seed=seed, iteration=iteration))


ANY = st.one_of(
    st.just(All()),
    st.integers(1, 8).map(lambda k: RandomNeighbours(k=k)),
    st.floats(0, 1).map(lambda ratio: RandomNeighbours(ratio=ratio, redraw=True)),
    st.integers(1, 4).map(lambda reach: Ring(reach=reach)),
    st.just(Grid()),
    st.tuples(st.sampled_from([2, 4, 6]), st.floats(0, 1)).map(lambda kr: SmallWorld(k=kr[0], rewire=kr[1])),
)


@given(ANY, st.integers(9, 40), st.integers(0, 5), st.integers(1, 5))
def test_nobody_hears_itself_or_anyone_twice(topology: Topology, nodes: int, seed: int, iteration: int) -> None:
    graph = topology.senders(nodes, seed=seed, iteration=iteration)
    assert graph.index.shape[0] == nodes
    assert ((graph.index >= 0) & (graph.index < nodes)).all(), "masked places are valid positions as well"
    for node, heard in enumerate(listed(graph)):
        assert len(set(heard)) == len(heard)
        assert node not in heard
        assert heard == sorted(heard)
    again = topology.senders(nodes, seed=seed, iteration=iteration)
    assert listed(again) == listed(graph)


@given(st.integers(2, 60), st.integers(1, 70), st.integers(0, 9))
def test_random_neighbours_are_k(nodes: int, k: int, seed: int) -> None:
    assert {len(heard) for heard in senders(RandomNeighbours(k=k), nodes, seed)} == {min(k, nodes - 1)}


def test_random_neighbours_are_fixed_or_redrawn_and_hit_everyone_alike() -> None:
    fixed, redrawn = RandomNeighbours(k=3), RandomNeighbours(k=3, redraw=True)
    assert fixed.fixed
    assert not redrawn.fixed
    assert senders(fixed, 20, iteration=1) == senders(fixed, 20, iteration=2)
    assert senders(redrawn, 20, iteration=1) != senders(redrawn, 20, iteration=2)
    assert senders(fixed, 20, seed=1) != senders(fixed, 20, seed=2)
    heard = np.array([senders(redrawn, 11, iteration=t) for t in range(2000)])
    counts = np.bincount(heard[:, 0].ravel(), minlength=11)[1:]
    assert abs(counts / 2000 - 0.3).max() < 0.05


def test_the_connection_ratio_is_that_of_the_paper() -> None:
    assert {len(heard) for heard in senders(RandomNeighbours(ratio=0.02), 100)} == {2}
    assert {len(heard) for heard in senders(RandomNeighbours(ratio=0.05), 100)} == {5}


def test_a_ring() -> None:
    assert senders(Ring(), 5) == [[1, 4], [0, 2], [1, 3], [2, 4], [0, 3]]


def test_a_grid_of_seven() -> None:
    # 0 1 2
    # 3 4 5
    # 6
    assert senders(Grid(), 7) == [[1, 3], [0, 2, 4], [1, 5], [0, 4, 6], [1, 3, 5], [2, 4], [3]]
    assert senders(Grid(), 1) == [[]]


@given(st.integers(7, 40), st.sampled_from([2, 4, 6]), st.floats(0, 1), st.integers(0, 3))
def test_a_small_world_keeps_its_links_and_they_work_both_ways(nodes: int, k: int, rewire: float, seed: int) -> None:
    heard = senders(SmallWorld(k=k, rewire=rewire), nodes, seed)
    assert sum(map(len, heard)) == nodes * k
    assert all(node in heard[other] for node, others in enumerate(heard) for other in others)
    ring = senders(Ring(reach=k // 2), nodes)
    assert senders(SmallWorld(k=k, rewire=0.0), nodes, seed) == ring


def test_a_small_world_has_shortcuts() -> None:
    assert senders(SmallWorld(k=4, rewire=0.5), 40) != senders(Ring(reach=2), 40)


def test_edges_go_one_way() -> None:
    assert senders(Edges(edges=((0, 1), (2, 1), (0, 1), (1, 0))), 3) == [[1], [0, 2], []]
    assert senders(Edges(edges=()), 2) == [[], []]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (RandomNeighbours, "either k="),
        (lambda: RandomNeighbours(k=2, ratio=0.1), "either k="),
        (lambda: RandomNeighbours(k=0), "k must be a whole number"),
        (lambda: RandomNeighbours(ratio=1.5), "ratio must be a number between 0 and 1"),
        (lambda: SmallWorld(k=3), "even number"),
        (lambda: senders(Ring(reach=2), 4), "at least 5 nodes, not 4"),
        (lambda: senders(Edges(edges=((0, 3),)), 3), "two different nodes below 3"),
        (lambda: senders(Edges(edges=((1, 1),)), 3), "two different nodes below 3"),
    ],
)
def test_impossible_graphs_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
