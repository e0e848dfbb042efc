"""What a caller does wrong is said in one line that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bristle import rules
from bristle._core import Pool
from bristle.learning.metrics import Evaluation
from bristle.rules import Context
from bristle.rules.checks import Measure
from bristle.rules.decision import Reason

RNG = np.random.default_rng(0)
OWN = RNG.standard_normal((3, 4))
RECEIVED = RNG.standard_normal((5, 3, 4))
FEATURES, LABELS = RNG.standard_normal((6, 4)), np.array([0, 1, 2, 0, 1, -1])
POOL = Pool(RECEIVED, np.arange(5))


@pytest.mark.parametrize(
    ("own", "received", "message"),
    [
        ([[1.0]], RECEIVED, "own must be an array .* not list; pass arrays of unknown origin through rules.stack"),
        (OWN, [OWN], "received must be an array .* not list"),
        (OWN, torch.zeros(5, 3, 4), "must come from one array library, not ndarray and Tensor"),
        (OWN.astype(np.float16), RECEIVED, "own must be of type float32 or float64, not float16"),
        (OWN.astype(int), RECEIVED, "own must be of type float32 or float64, not int64"),
        (OWN, RECEIVED.astype(np.float32), "received is of type float32, own of type float64"),
        (OWN[0], RECEIVED, r"own must be \[..., classes, features\], not \(4,\)"),
        (OWN[:, :0], RECEIVED[..., :0], r"own must be \[..., classes, features\], not \(3, 0\)"),
        (OWN[:0], RECEIVED[:, :0], r"own must be \[..., classes, features\], not \(0, 4\)"),
        (OWN, RECEIVED[0], r"received has shape \(3, 4\), but own calls for \(models, 3, 4\)"),
        (OWN, RECEIVED[:, :2], r"received has shape \(5, 2, 4\), but own calls for \(models, 3, 4\)"),
        (np.stack([OWN] * 2), RECEIVED[None], r"received has shape \(1, 5, 3, 4\), .* \(2, models, 3, 4\)"),
        (OWN * np.inf, RECEIVED, "own is not finite, or its norm is beyond 1e15; restore it"),
        (OWN / np.linalg.norm(OWN) * 1.02e15, RECEIVED, "own is not finite, or its norm is beyond 1e15"),
        (
            OWN,
            Pool(RECEIVED[0], np.arange(5)),
            r"the pool's heads have shape \(3, 4\), but own calls for \(heads, 3, 4",
        ),
        (OWN, Pool(RECEIVED[:, :2], np.arange(5)), r"heads have shape \(5, 2, 4\), but own calls for \(heads, 3, 4"),
        (OWN, Pool(RECEIVED, torch.arange(5)), "the pool's index must be an array of the same library as own, ndarray"),
        (OWN, Pool(RECEIVED, np.arange(5.0)), "the pool's index must hold integers, not float64"),
        (OWN, Pool(RECEIVED, np.array(1)), r"the pool's index has shape \(\), but own calls for \('models',\)"),
        (OWN, Pool(RECEIVED, np.zeros((2, 5), int)), r"index has shape \(2, 5\), but own calls for \('models',\)"),
        (OWN, Pool(RECEIVED, np.array([0, 5])), "the pool's index points outside its 5 heads; mask absent models"),
        (OWN, Pool(RECEIVED, np.array([0, -1])), "the pool's index points outside its 5 heads"),
    ],
)
def test_heads_that_do_not_fit(own: Any, received: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rules.FedAvg()(own, received)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones(4, bool)}, r"mask must be an array of shape \(5,\), not \(4,\)"),
        ({"mask": np.ones(5)}, "mask must hold booleans, not float64"),
        ({"mask": [True] * 5}, "mask must be an array of the same library as own, ndarray, not list"),
        ({"claims": np.ones((5, 2), bool)}, r"claims must be an array of shape \(5, 3\), not \(5, 2\)"),
        ({"context": Context(senders=np.arange(4))}, r"context.senders must be an array of shape \(5,\)"),
        ({"context": Context(previous=OWN[:2])}, r"context.previous must be an array of shape \(3, 4\)"),
        ({"context": Context(previous=OWN.astype(np.float32))}, "must be of type float64 like own, not float32"),
        ({"context": Context(previous=OWN * np.nan)}, "context.previous is not finite, or its norm is beyond 1e15"),
        ({"evaluation": Evaluation(FEATURES[:5], LABELS)}, r"evaluation holds features \(5, 4\) and labels \(6,\)"),
        ({"evaluation": Evaluation(FEATURES[:, :3], LABELS)}, r"evaluation holds features \(6, 3\)"),
        ({"evaluation": Evaluation(FEATURES[0], LABELS)}, r"evaluation holds features \(4,\)"),
        ({"evaluation": Evaluation(FEATURES, LABELS * 1.0)}, "evaluation labels must be integers, not float64"),
        ({"evaluation": Evaluation(FEATURES, LABELS + 1)}, "evaluation labels must lie between 0 and 2, or be -1"),
        ({"evaluation": Evaluation(FEATURES, LABELS - 1)}, "evaluation labels must lie between 0 and 2, or be -1"),
        ({"evaluation": Evaluation(FEATURES * np.nan, LABELS)}, "features are not finite, or one has a norm beyond"),
        ({"evaluation": Evaluation(FEATURES * 1e15, LABELS)}, "evaluation features are not finite, or one has a norm"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("received", [RECEIVED, POOL], ids=["array", "pool"])
def test_what_goes_along_and_does_not_fit(options: dict[str, Any], message: str, received: Any) -> None:
    with pytest.raises(ValueError, match=message):
        rules.Bristle()(OWN, received, rng=np.random.default_rng(0), **options)


def test_padding_may_hold_anything() -> None:
    features = FEATURES.copy()
    features[LABELS == -1] = np.nan
    labels = np.concatenate([LABELS[:-1].repeat(10), [-1]])
    padded = Evaluation(np.concatenate([features[:-1].repeat(10, axis=0), features[-1:]]), labels)
    plain = Evaluation(padded.features[:-1], labels[:-1])
    with_padding, without = (rules.Bristle(kappa=1)(OWN, RECEIVED, evaluation=held).head for held in (padded, plain))
    np.testing.assert_array_equal(with_padding, without)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_labels_may_be_of_any_integer_type(kind: Any) -> None:
    held = Evaluation(FEATURES[:5], LABELS[:5].astype(kind))
    expected = rules.Bristle(kappa=1)(OWN, RECEIVED, evaluation=Evaluation(FEATURES[:5], LABELS[:5]))
    np.testing.assert_array_equal(rules.Bristle(kappa=1)(OWN, RECEIVED, evaluation=held).head, expected.head)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32])
def test_a_pools_index_may_be_of_any_integer_type(kind: Any) -> None:
    heads = np.random.default_rng(1).standard_normal((100, 3, 4))
    index = np.arange(90)
    expected = rules.Krum(f=2)(OWN, heads[:90])
    decision = rules.Krum(f=2)(OWN, Pool(heads, index.astype(kind)))
    np.testing.assert_allclose(decision.head, expected.head, rtol=1e-10)


@pytest.mark.parametrize("name", rules.names(shares="heads"))
def test_a_batch_of_nobody_is_answered_with_nothing(name: str) -> None:
    decision = rules.create(name)(np.zeros((0, 3, 4)), np.zeros((0, 5, 3, 4)), context=Context(iteration=3))
    assert decision.head.shape == (0, 3, 4)
    assert decision.weights.shape == (0, 5, 3)
    assert decision.reasons.shape == (0, 5)
    assert decision.head.dtype == decision.weights.dtype == np.float64
    assert decision.state is None


def test_a_decision_in_words() -> None:
    received = RECEIVED.copy()
    received[1] = np.nan
    decision = rules.FedAvg()(OWN, received)
    assert repr(decision) == "Decision(head=(3, 4), models=(5,): 4 kept, 1 not_finite)"
    assert repr(rules.FedAvg()(OWN, received[:0])) == "Decision(head=(3, 4), models=(0,): none)"
    assert decision.explain(0).endswith("20.0% of the head, at most 20.0% (class 0)")
    assert decision.explain(-5) == decision.explain(0)
    assert decision.explain((1,)) == decision.explain(1)
    for wrong in (5, -6, (0, 0), ()):
        with pytest.raises(ValueError, match=r"there is no model .* in a decision about models of shape \(5,\)"):
            decision.explain(wrong)
    batch = rules.FedAvg()(np.stack([OWN] * 2), np.stack([received, RECEIVED]))
    assert batch.explain((0, 1)) == decision.explain(1) != batch.explain((1, 1))


def test_what_a_plain_rule_asks_for() -> None:
    assert not rules.FedAvg().consolidates
    assert not rules.FedAvg().stochastic
    for consolidating in (rules.Integrator(), rules.Bristle()):
        assert consolidating.consolidates
    assert not rules.Bristle().uses_claims


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (rules.MeanAroundMedian, {"f": -1}, "f must be"),
        (rules.NearestNeighbourMixing, {"f": -1}, "f must be"),
        (rules.Balance, {"kappa": 0}, "kappa must be"),
        (rules.Integrator, {"familiar": (10, -1)}, "familiar must be a pair"),
        (rules.Integrator, {"foreign": (10, 4, 1)}, "foreign must be a pair"),
        (rules.Integrator, {"foreign": (1.1e6, 4)}, "foreign must be a pair"),
    ],
)
def test_parameters_that_make_no_sense(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_parameters_at_their_bounds_are_fine() -> None:
    assert rules.Integrator(familiar=(10, 0), foreign=(0, 1e6)).familiar == (10, 0)


@pytest.mark.parametrize("codes", [Reason, Measure])
def test_every_code_means_one_thing(codes: Any) -> None:
    assert len(list(codes)) == len(codes.__members__)
