"""Worlds of very many peers: the same as other worlds, within rounding, however they are cut up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bristle import attacks, rules
from bristle.rules import Rule
from bristle.simulation import (
    All,
    Asynchrony,
    FeatureData,
    LargeWorld,
    Precision,
    RandomNeighbours,
    Ring,
    Scenario,
    World,
    measure,
    on_device,
    run,
)
from bristle.simulation.large.memory import check_memory, suits
from bristle.simulation.measurement import evaluated_peers, measure_large

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")),
]
CLASSES = 6
NARROW = Precision(moments="bfloat16", shared="bfloat16")


def scenario(**options: Any) -> Scenario:
    settings: dict[str, Any] = {
        "peers": 40,
        "attackers": 17,
        "attack": attacks.create("label-flip", classes=CLASSES),
        "attackers_in_graph": True,
        "classes_per_peer": 3,
        "topology": RandomNeighbours(k=6),
        "reuse": True,
        "iterations": 30,
    }
    return Scenario(**{**settings, **options})


def advanced(world: Any, iterations: int) -> Any:
    for _ in range(iterations):
        world.advance()
    return world


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", [rules.Bristle(), rules.FedAvg(), rules.Median(), rules.Mozi()], ids=repr)
def test_it_is_the_world_of_numpy_within_rounding(data: FeatureData, rule: Rule, device: str) -> None:
    plain = World(scenario(rule=rule), data)
    large = LargeWorld(scenario(rule=rule, receivers_at_once=17), on_device(data, device))
    for iteration in range(1, 13):
        latest = plain.advance()
        given = large.advance(weigh=iteration % 4 == 0)
        # Bristle counts samples: where rounding turned one prediction, heads would part for good.
        np.testing.assert_allclose(large.heads.cpu().numpy(), plain.heads, rtol=0, atol=2e-6)
    assert given is not None
    wanted = measure(plain, latest)
    found = measure_large(large, given, peers=evaluated_peers(plain.scenario, None))
    assert found.weight_benign == pytest.approx(wanted.weight_benign, abs=1e-5)
    assert found.weight_malicious == pytest.approx(wanted.weight_malicious, abs=1e-5)
    np.testing.assert_allclose(found.accuracy, wanted.accuracy, atol=0.01)
    np.testing.assert_allclose(found.f1, wanted.f1, atol=0.03)
    np.testing.assert_allclose(found.class_accuracy, wanted.class_accuracy, atol=0.03)
    np.testing.assert_array_equal(found.bytes_sent, wanted.bytes_sent)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("topology", [Ring(reach=2), RandomNeighbours(ratio=0.06)], ids=["ring", "ratio"])
def test_it_suits_other_neighbourhoods(data: FeatureData, topology: Any, device: str) -> None:
    chosen = scenario(topology=topology, peers=150, attackers=0)
    plain = advanced(World(chosen, data), 4)
    large = advanced(LargeWorld(chosen, on_device(data, device)), 4)
    np.testing.assert_allclose(large.heads.cpu().numpy(), plain.heads, rtol=0, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_where_more_are_heard_than_tested_it_is_as_good(data: FeatureData, device: str) -> None:
    # Distances tie but for rounding in the first iterations, so that not all choose the same models.
    chosen = scenario(topology=RandomNeighbours(k=12), peers=150, attackers=0, rule=rules.Bristle(beta=5))
    wanted, found = (run(chosen, some, every=15).rows[0] for some in (data, on_device(data, device)))
    assert 0.6 < wanted["accuracy_mean"] == pytest.approx(found["accuracy_mean"], abs=0.03)
    assert found["weight_benign"] == pytest.approx(wanted["weight_benign"], abs=0.03)


@pytest.mark.parametrize("device", DEVICES)
def test_chunks_change_nothing(data: FeatureData, device: str) -> None:
    moved = on_device(data, device)
    whole, cut = (advanced(LargeWorld(scenario(receivers_at_once=size), moved), 8) for size in (None, 7))
    np.testing.assert_allclose(whole.nodes_heads.cpu(), cut.nodes_heads.cpu(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_sixteen_bits_cost_no_accuracy(data: FeatureData, device: str) -> None:
    moved = on_device(data, device)
    found = []
    for precision in (Precision(), NARROW):
        rows = run(scenario(precision=precision, iterations=40), moved, every=40).rows
        found.append(rows[-1]["accuracy_mean"])
    assert found[0] > 0.85
    assert abs(found[0] - found[1]) < 0.03


def test_sixteen_bits_are_what_is_kept_and_shared(data: FeatureData) -> None:
    world = advanced(LargeWorld(scenario(precision=NARROW), on_device(data, "cpu")), 2)
    assert world.plan.shared == world.plan.heads // 2
    assert world.plan.moments == world.plan.heads
    plain = LargeWorld(scenario(), on_device(data, "cpu")).plan
    assert plain.per_node - world.plan.per_node == 24 * CLASSES * (2 + 2 * 2)


def test_it_is_run_where_data_are_on_a_device(data: FeatureData) -> None:
    seen: list[int] = []
    chosen = scenario(iterations=20)
    wanted, found = run(chosen, data), run(chosen, on_device(data, "cpu"), evaluate_peers=40)
    for mine, theirs in zip(found.rows, wanted.rows, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["accuracy_mean"] == pytest.approx(theirs["accuracy_mean"], abs=0.01)
        assert mine["bytes_sent"] == theirs["bytes_sent"]
        seen.append(mine["iteration"])
    assert seen == [10, 20]
    some = run(chosen, on_device(data, "cpu"), evaluate_peers=10).last()
    assert some["accuracy_mean"] == pytest.approx(found.last()["accuracy_mean"], abs=0.1)


def test_evaluated_peers_are_drawn_once_and_for_all() -> None:
    many = scenario(peers=100_000)
    chosen = evaluated_peers(many, None)
    assert len(np.unique(chosen)) == len(chosen) == 1000
    np.testing.assert_array_equal(chosen, evaluated_peers(many, None))
    # All sets of classes are among them.
    assert len(np.unique(chosen % CLASSES)) == CLASSES
    with pytest.raises(ValueError, match="evaluate_peers must be a whole number of at least 1"):
        evaluated_peers(many, 0)


def test_a_world_that_does_not_fit_is_refused_with_what_would() -> None:
    huge = scenario(peers=10**10, attackers=0)
    with pytest.raises(
        ValueError, match=r"takes [\d,.]+ GB .* but cpu has .* make it [\d,]+ nodes.* bfloat16.* workers"
    ):
        check_memory(huge, classes=10, features=800, samples=70_000, device=torch.device("cpu"))
    check_memory(scenario(), classes=10, features=800, samples=70_000, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topology": All()}, "equally many others"),
        ({"topology": RandomNeighbours(k=3, redraw=True)}, "equally many others"),
        ({"attackers_in_graph": False}, "in the graph"),
        ({"attack": attacks.create("krum")}, "must send what they trained"),
        ({"asynchrony": Asynchrony(loss=0.1)}, "no message be lost"),
        ({"user_shift": 0.1}, "users must not differ"),
        ({"topology": RandomNeighbours(k=70), "peers": 90}, "more others than their rule looks at, which is 48"),
    ],
)
def test_what_it_cannot_do_is_said_and_left_to_other_worlds(data: FeatureData, options: Any, words: str) -> None:
    moved, chosen = on_device(data, "cpu"), replace(scenario(iterations=2), **options)
    assert words in str(suits(chosen, moved))
    with pytest.raises(ValueError, match="cannot be a large world"):
        LargeWorld(chosen, moved)
    with pytest.raises(ValueError, match="evaluate_peers is for large worlds, and this is an ordinary one"):
        run(chosen, moved, evaluate_peers=3)
    assert run(chosen, moved).last()["iteration"] == 2


def test_numpy_data_have_no_large_world(data: FeatureData) -> None:
    assert "give it a device" in str(suits(scenario(), data))
    with pytest.raises(ValueError, match="shared='bfloat16' is for large worlds"):
        run(scenario(precision=NARROW), data)


@pytest.mark.parametrize(
    ("name", "words"), [("cuda:99", "torch finds"), ("tpu?", "there is no device"), ("meta", "run on")]
)
def test_a_device_that_is_not_there_is_named(data: FeatureData, name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        on_device(data, name)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_iterations_are_captured_as_a_graph(data: FeatureData) -> None:
    world = advanced(LargeWorld(scenario(), on_device(data, "cuda")), 3)
    assert world.captured
