"""The kernels, run by Triton's interpreter on tensors of the processor, against plain operations.

`test_kernels.py` runs this file in a process of its own: the interpreter must be chosen before triton is imported. What
it does to bfloat16 is not what devices do (it truncates, and multiplies bits as integers), so 16 bits are float16 here
wherever products or rounding matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bristle import attacks, rules
from bristle._core import namespace
from bristle.learning import TrainingSettings
from bristle.learning.metrics import f1_scores, predict
from bristle.learning.optimiser import HeadState, paces
from bristle.learning.training import Batch, head_step, mean_shift
from bristle.rules import Rule
from bristle.rules.bristle import Integrator
from bristle.rules.bristle_kernel import weigh_on_device
from bristle.simulation import FeatureData, LargeWorld, Precision, RandomNeighbours, Scenario, on_device
from bristle.simulation.large import world as large_world
from bristle.simulation.large.fused import MOST_CLASSES, Batches, Fused, Moments, WeightedSum

# Receivers, heads, classes, features, samples: the world of docs/scale.md first, then what divides by nothing.
SIZES = [
    (2, 11, 10, 800, 40),
    (3, 3, 7, 37, 5),
    (2, 1, 3, 16, 1),
    (2, 4, 40, 20, 70),
    (2, 30, 9, 33, 17),
    (1, 2, MOST_CLASSES, 20, 6),
    (2, 5, 2, 8, 3),
    (1, 2, 1, 8, 3),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_f1_is_that_of_plain_predictions_to_the_bit(size: tuple[int, ...], dtype: Any) -> None:
    batch, heads, classes, features, samples = size
    draw = torch.Generator().manual_seed(0)
    # Small whole numbers tie often, and their products are exact.
    pool = torch.randint(-2, 3, (heads + 2, classes * features), generator=draw).to(dtype)
    table = torch.randint(-2, 3, (50, features), generator=draw).to(dtype)
    pool[0] = 0
    index = torch.randint(0, heads + 2, (batch, heads), generator=draw)
    index[0, 0] = 0
    rows = torch.randint(0, 50, (batch, samples), generator=draw)
    labels = torch.randint(-1, classes, (batch, samples), generator=draw)
    labels[-1, samples // 2 :] = -1
    outputs = torch.einsum("btd,bncd->btnc", table[rows].float(), pool[index].float().view(batch, heads, classes, -1))
    torch.testing.assert_close(Fused().outputs(pool, index, table, rows, classes), outputs, rtol=0, atol=0)
    wanted = f1_scores(predict(outputs).permute(0, 2, 1), labels[:, None, :], classes, torch.float32)
    found = Fused().f1_scores(pool, index, table, rows, labels, classes)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("score", ["split", "literal", "leave-out", "cubic"])
@pytest.mark.parametrize("size", [(20, 11, 10, 40, 3), (9, 2, 3, 10, 3), (5, 20, 7, 12, 2), (3, 5, 1, 4, 3)], ids=str)
def test_weights_are_those_of_plain_operations_and_the_same_are_zero(size: tuple[int, ...], score: Any) -> None:
    batch, heads, classes, samples, phi = size
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (batch, samples), generator=draw)
    guesses = torch.randint(0, classes, (batch, heads, samples), generator=draw)
    guesses = torch.where(torch.rand(guesses.shape, generator=draw) < 0.6, labels[:, None, :], guesses)
    f1 = f1_scores(guesses, labels[:, None, :], classes, torch.float32)
    f1[1, :, 1:] = 0  # Mean and deviation of 1 and 0 are the same: no certainty, to the bit.
    known = torch.nn.functional.one_hot(labels, classes).sum(dim=1) >= 3
    known[0] = False
    integrator = Integrator(score=score, phi=phi, kappa=3)
    weights, certainty = integrator.weigh(namespace(f1), f1, known)
    found, sure = weigh_on_device(integrator, f1, known)
    torch.testing.assert_close(found, weights, rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(sure, certainty, rtol=0, atol=1e-6)
    assert torch.equal(found > 0, weights > 0)
    assert torch.equal(sure > 0, certainty > 0)


def test_peers_without_held_out_samples_have_no_f1() -> None:
    labels = torch.full((1, 3), -1)
    found = Fused().f1_scores(torch.ones(2, 12), torch.tensor([[0, 1]]), torch.ones(1, 4), labels * 0, labels, 3)
    torch.testing.assert_close(found, torch.zeros(1, 2, 3))


@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("models", [0, 1, 5])
def test_weighted_sums_are_those_of_plain_operations(models: int, by_class: bool) -> None:
    asked, wanted = _asked(models, by_class=by_class, classes=3, features=37)
    torch.testing.assert_close(Fused().combine(asked, 3), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("level", [True, False])
@pytest.mark.parametrize("models", [None, 0, 4])
@pytest.mark.parametrize(("classes", "features", "samples"), [(10, 800, 5), (3, 37, 1), (17, 16, 9)])
def test_training_is_that_of_plain_operations(
    classes: int, features: int, samples: int, models: int | None, level: bool, in_place: bool
) -> None:
    draw = torch.Generator().manual_seed(1)
    asked, mixed = _asked(models or 0, by_class=True, classes=classes, features=features)
    peers, shape = len(mixed), (len(mixed), classes, features)
    start = (asked.own if models is None else mixed).view(shape).clone()
    new_head = asked.own.view(shape) if in_place else torch.full(shape, float("nan"))
    first, root = (torch.rand(shape, generator=draw) for _ in range(2))
    second = root * root
    table = torch.rand(20, features, generator=draw)
    rows = torch.randint(0, 20, (peers, samples), generator=draw)
    labels = torch.randint(0, classes, (peers, samples), generator=draw)
    labels[0, samples // 2 + 1 :] = -1
    labels[1] = -1
    trained = torch.rand(peers, classes, generator=draw) < 0.5
    trained[1] = False  # Who holds nothing trains nothing.
    settings, steps = TrainingSettings(), torch.tensor([3, 0, 7])
    count = (labels >= 0).sum(dim=1, keepdim=True)
    shares = torch.where(labels >= 0, 1 / count.clamp(min=1), 0).float()
    pace = paces(namespace(start), (steps + 1).clamp(min=1), torch.float32, settings)
    before = HeadState(mean_shift(start) if level else start, first.clone(), second.clone(), steps)
    wanted = head_step(before, Batch(labels, table, rows), trained, settings, donate=False)
    Fused().train(
        asked.own.view(shape) if models is None else asked,
        new_head,
        Moments(first, root, root=True),
        Batches(table, rows, labels, shares, trained),
        pace,
        settings,
        level=level,
    )
    torch.testing.assert_close(new_head, wanted.head, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first, wanted.first, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(root, wanted.second.sqrt(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("samples", "size"), [(8, 5), (3, 5), (1, 1), (9, 2)])
def test_mini_batches_are_the_smallest_draws(samples: int, size: int) -> None:
    draw = torch.Generator().manual_seed(2)
    draws = torch.randint(0, 4, (7, samples), generator=draw) / 4  # Draws that tie.
    labels = torch.randint(-1, 3, (7, samples), generator=draw)
    index = torch.randint(0, 99, (7, samples), generator=draw)
    chosen = (labels >= 0) & large_world._smallest(draws, labels >= 0, size)
    found, rows, shares = Fused().batches(draws, labels, index, size)
    for peer in range(7):
        count = int(chosen[peer].sum())
        assert found[peer, :count].tolist() == labels[peer][chosen[peer]].tolist()
        assert rows[peer, :count].tolist() == index[peer][chosen[peer]].tolist()
        assert (found[peer, count:] == -1).all()
        np.testing.assert_allclose(shares[peer].sum(), 1 if count else 0, rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "precision"),
    [
        (rules.Bristle(), Precision()),
        (rules.Bristle(beta=3), Precision()),
        (rules.FedAvg(), Precision(shared="bfloat16")),
        (rules.Local(), Precision()),
        (rules.Mozi(), Precision()),
    ],
    ids=repr,
)
def test_a_world_of_kernels_is_the_world_of_plain_operations(
    rule: Rule, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    truth, labels = rng.standard_normal((6, 24)), rng.integers(0, 6, 400)
    x = (truth[labels] + rng.standard_normal((400, 24))).astype(np.float32)
    data = on_device(FeatureData(x, labels, x[:50], labels[:50], tuple("abcdef")), "cpu")
    scenario = Scenario(
        peers=9,
        attackers=4,
        attack=attacks.create("label-flip", classes=6),
        attackers_in_graph=True,
        classes_per_peer=3,
        topology=RandomNeighbours(k=4),
        reuse=True,
        receivers_at_once=5,
        rule=rule,
        precision=precision,
    )
    plain = LargeWorld(scenario, data)
    monkeypatch.setattr(large_world, "fused_for", lambda _: Fused())
    monkeypatch.setattr(large_world, "CAPTURED", ())
    fused = LargeWorld(scenario, data)
    for _ in range(2):
        assert fused.advance(weigh=True) == pytest.approx(plain.advance(weigh=True), abs=1e-5)
    torch.testing.assert_close(fused.nodes_heads, plain.nodes_heads, rtol=0, atol=2e-6)


def _asked(models: int, *, by_class: bool, classes: int, features: int) -> tuple[WeightedSum, Any]:
    """Return a weighted sum for three receivers, and what it is."""
    draw = torch.Generator().manual_seed(3)
    own = torch.randn(3, classes * features, generator=draw)
    pool = torch.randn(6, classes * features, generator=draw).to(torch.bfloat16)
    index = torch.randint(0, 6, (3, models), generator=draw)
    weights = torch.rand(3, 1 + models, classes if by_class else 1, generator=draw)
    weights[:, 1:] *= torch.rand(weights[:, 1:].shape, generator=draw) < 0.5
    everyone = torch.cat([own[:, None], pool[index].float()], dim=1).view(3, 1 + models, classes, features)
    return WeightedSum(own, pool, index, weights), (weights[..., None] * everyone).sum(dim=1).view(3, -1)
