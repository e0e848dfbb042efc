"""The same answers on a GPU, where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bristle import Evaluation, Pool, rules

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def on_device(array: object) -> torch.Tensor:
    return torch.asarray(array).to("cuda")


@pytest.mark.parametrize("name", rules.names(shares="heads"))
def test_rules_on_cuda_equal_numpy(name: str) -> None:
    rng = np.random.default_rng(0)
    own, received = rng.standard_normal((5, 4, 8)), rng.standard_normal((5, 40, 4, 8))
    received[1, 3] = np.nan
    mask = rng.random((5, 40)) < 0.8
    features, labels = rng.standard_normal((5, 30, 8)), np.tile(np.repeat(np.arange(3), 10), (5, 1))
    draws = rng.random((5, 40))
    rule = rules.create(name)
    expected = rule(own, received, mask=mask, evaluation=Evaluation(features, labels), rng=draws)
    evaluation = Evaluation(on_device(features), on_device(labels))
    index = torch.arange(200, device="cuda").reshape(5, 40)
    pool = Pool(on_device(received).reshape(200, 4, 8), index)
    for inbox in (on_device(received), pool):
        decision = rule(on_device(own), inbox, mask=on_device(mask), evaluation=evaluation, rng=draws)
        assert decision.head.device.type == "cuda"
        np.testing.assert_allclose(decision.head.cpu().numpy(), expected.head, atol=1e-8)
        np.testing.assert_allclose(decision.weights.cpu().numpy(), expected.weights, atol=1e-8)
        np.testing.assert_array_equal(decision.reasons.cpu().numpy(), expected.reasons)
    assert decision.explain((0, 0))


def test_steps_and_chains_on_cuda() -> None:
    x = np.random.default_rng(1).standard_normal((12, 3, 6))
    for step in (rules.NearestNeighbourMixing(f=3), rules.Clipping(f=2), rules.Bucketing(s=2)):
        rule = rules.chain(step, rules.Krum(f=2))
        draws = np.linspace(0, 0.9, 11)
        expected = rule(x[0], x[1:], rng=draws).head
        found = rule(on_device(x[0]), on_device(x[1:]), rng=draws).head
        np.testing.assert_allclose(found.cpu().numpy(), expected, atol=1e-8)
