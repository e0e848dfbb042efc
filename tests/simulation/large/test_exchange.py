"""One exchange of statements among very many peers: what they decide is what peers of an ordinary world decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bristle import attacks, rules
from bristle._core import to_numpy
from bristle.learning import Evaluation
from bristle.rules.evidence import pool_scatter, state
from bristle.rules.evidence.scatter import Scatter
from bristle.simulation import FeatureData, RandomNeighbours, Scenario, World, on_device
from bristle.simulation.large.exchange import LargeExchange
from bristle.simulation.large.scatter import Sketches, pooled, principal


def scenario(**changes: Any) -> Scenario:
    told = {
        "peers": 40, "attackers": 8, "rule": rules.create("evidence"), "topology": RandomNeighbours(k=10),
        "attack": attacks.create("label-flip", classes=6), "attackers_in_graph": True, "reuse": True, "iterations": 1,
    }  # fmt: skip
    return Scenario(**{**told, **changes})


@pytest.mark.parametrize("attackers", [0, 8])
def test_the_exchange_decides_as_an_ordinary_world_does(data: FeatureData, attackers: int) -> None:
    small = scenario(attackers=attackers)
    large = LargeExchange(small, on_device(data, "cpu"))
    world = World(small, data)
    assert world.exchange is not None
    for node, stated in enumerate(world.exchange.statements):
        mine = large.statement(node)
        np.testing.assert_allclose(mine.rows, stated.rows, atol=1e-5)
        np.testing.assert_array_equal(mine.counts, stated.counts)
        assert mine.factors is not None
        assert stated.factors is not None
        assert mine.factors.shape == stated.factors.shape
        np.testing.assert_allclose(
            mine.diagonal + (mine.factors**2).sum(axis=0), stated.diagonal + (stated.factors**2).sum(axis=0), rtol=1e-3
        )
    found = large.decide()
    decision = world.advance().decision
    accuracy, expected = to_numpy(large.accuracy(found)), to_numpy(world.accuracy())
    assert abs(accuracy.mean() - expected.mean()) < 0.005
    assert np.abs(accuracy - expected).max() < 0.05
    # The same senders are refused, and have the same shares in nearly all heads.
    weights = to_numpy(found.weights)[:, 1:]
    apart = []
    for peer, heard in enumerate(to_numpy(large.index)):
        place = {
            int(who): at
            for at, who in enumerate(np.flatnonzero(world.exchange.known[peer] & (np.arange(40 + attackers) != peer)))
        }
        apart.append(np.abs(weights[peer] - decision.weights[peer, [place[int(who)] for who in heard]]).max())
    assert (np.array(apart) < 0.02).mean() > 0.7


def test_chunks_of_receivers_decide_alike(data: FeatureData) -> None:
    whole = LargeExchange(scenario(), on_device(data, "cpu")).decide()
    parts = LargeExchange(scenario(receivers_at_once=7), on_device(data, "cpu")).decide()
    np.testing.assert_allclose(to_numpy(whole.head), to_numpy(parts.head), atol=2e-3)


def test_statements_in_16_bits_lead_to_the_same_accuracy(data: FeatureData) -> None:
    small = scenario()
    narrow = replace(small, precision=replace(small.precision, shared="bfloat16"))
    exact, rounded = (LargeExchange(one, on_device(data, "cpu")) for one in (small, narrow))
    accuracy = [float(one.accuracy(one.decide()).mean()) for one in (exact, rounded)]
    assert abs(accuracy[0] - accuracy[1]) < 0.01


@pytest.mark.parametrize("features", [24, 300])
def test_the_scatter_is_that_of_the_rule(features: int) -> None:
    rng = np.random.default_rng(features)
    mixing = rng.standard_normal((features, features)) * np.linspace(0.2, 1.5, features)
    held = [Evaluation(rng.standard_normal((24, features)) @ mixing, np.repeat(np.arange(3), 8)) for _ in range(5)]
    stated = [state(one, 3) for one in held]
    own = held[0].features - stated[0].rows[held[0].labels]
    expected = pool_scatter(stated, own)
    factors, diagonal = (np.stack([to_numpy(getattr(one, name)) for one in stated]) for name in ("factors", "diagonal"))
    parts = (factors, diagonal, diagonal + (factors**2).sum(axis=1))
    first, second, third = (torch.as_tensor(values[None], dtype=torch.float32) for values in parts)
    sketches = Sketches(first, second, third, torch.as_tensor(np.array([[one.freedom for one in stated]])))
    found = pooled(torch, sketches, torch.as_tensor(own[None], dtype=torch.float32), torch.tensor([24.0]), 1.0)
    some = rng.standard_normal((6, features))
    scaled, taken = found.vectors(torch, torch.as_tensor(some[None], dtype=torch.float32))
    products = to_numpy(scaled[0] @ scaled[0].T - taken[0] @ taken[0].T)
    exact = expected.vectors(some).products()
    # The rule cuts a sketch in another order of the same factors.
    np.testing.assert_allclose(products, exact, atol=1e-2 * np.abs(exact).max())
    assert isinstance(expected, Scatter)


def test_sketches_are_as_good_as_principal_components() -> None:
    rng = np.random.default_rng(0)
    rest = rng.standard_normal((3, 40, 100)) * np.linspace(0.1, 2, 100)
    sketch = principal(
        torch, torch.as_tensor(rest, dtype=torch.float32), torch.full((3,), 40.0), torch.tensor([12, 8, 12])
    )
    for place, rank in enumerate((12, 8, 12)):
        best = (np.linalg.svd(rest[place], compute_uv=False)[:rank] ** 2).sum() / 40
        kept = float((sketch[place] ** 2).sum())
        assert 0.97 * best < kept < 1.0001 * best
    assert not sketch[1, 8:].any()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rule": rules.create("fedavg")}, "FedAvg exchanges heads"),
        ({"rule": rules.create("evidence", cautious=True)}, "not be cautious"),
        ({"user_shift": 1.0}, "its users must not differ"),
        ({"peers": 100, "attackers": 0, "topology": RandomNeighbours(k=60)}, "fewer than 48"),
    ],
)
def test_what_does_not_suit_is_said(data: FeatureData, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LargeExchange(scenario(**changes), on_device(data, "cpu"))


def test_memory_is_planned_before_anything_is_made(data: FeatureData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bristle.simulation.large.exchange.free_bytes", lambda device: 300_000_000)
    monkeypatch.setattr(LargeExchange, "_place", lambda self: pytest.fail("made"))
    with pytest.raises(ValueError, match=r"an exchange of 30,010 nodes takes .* GB free: make it [\d,]+ nodes"):
        LargeExchange(scenario(peers=30_000, attackers=10), on_device(data, "cpu"))
