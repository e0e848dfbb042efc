"""What a clever stranger, or an unusual caller, once got wrong answers with."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from bristle import Context, Evaluation, Pool, rules
from bristle.rules import Reason, chain

SHAPE = (4, 6)


def heads(seed: int, count: int, kind: Any = np.float64) -> Any:
    return np.random.default_rng(seed).standard_normal((count, *SHAPE)).astype(kind)


@pytest.mark.parametrize("size", [-1e14, -1e8, -1e4, 1e14])
@pytest.mark.parametrize("rule", [rules.MeanAroundMedian(f=2), rules.Bulyan(f=2), rules.TrimmedMean(f=2)], ids=repr)
def test_large_values_do_not_wash_out_small_ones(rule: rules.Rule, size: float) -> None:
    honest = heads(0, 12, np.float32)
    attack = np.full((2, *SHAPE), size, dtype=np.float32)
    wide = rule(honest[0].astype(np.float64), np.concatenate([honest[1:], attack]).astype(np.float64)).head
    narrow = rule(honest[0], np.concatenate([honest[1:], attack])).head
    np.testing.assert_allclose(narrow, wide, atol=1e-5)
    assert np.abs(narrow).max() < 5


@pytest.mark.parametrize("name", rules.names(shares="heads"))
def test_attackers_that_cancel_each_other_are_refused(name: str) -> None:
    x = heads(1, 11)
    x[1], x[2] = 1e38, -1e38
    decision = rules.create(name)(x[0], x[1:])
    assert (decision.reasons[:2] == Reason.TOO_LARGE).all()


@pytest.mark.parametrize("rule", [rules.FedAvg(), rules.Median(), rules.Local()], ids=repr)
def test_large_calls_refuse_like_small_ones(rule: rules.Rule) -> None:
    """Many numbers are probed before they are looked at one by one; what is refused, and why, stays the same."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((9, 10, 5000)).astype(np.float32)
    honest = rule(x[0], x[5:])
    x[1], x[2], x[3, 4, 7], x[4] = 1e38, -1e38, np.nan, 1.01e15 / 50_000**0.5
    decision = rule(x[0], x[1:])
    large, odd = Reason.TOO_LARGE, Reason.NOT_FINITE
    assert decision.reasons[:4].tolist() == [large, large, odd, large]
    np.testing.assert_array_equal(decision.reasons[4:], honest.reasons)
    np.testing.assert_allclose(decision.head, honest.head, rtol=1e-5, atol=1e-6)
    x[4] = 0.99e15 / 50_000**0.5
    assert rule(x[0], x[1:]).reasons[3] not in (large, odd)


@pytest.mark.parametrize("name", rules.names(shares="heads"))
def test_arrays_and_pools_draw_the_line_at_the_same_size(name: str) -> None:
    unit = np.full(SHAPE, 1 / np.sqrt(24))
    own = 6e14 * unit
    models = np.stack([1.2e15 * unit, 0.99e15 * unit, -6e14 * unit, 1.01e15 * unit])
    expected = [Reason.TOO_LARGE, None, None, Reason.TOO_LARGE]
    for received in (models, Pool(models[None].reshape(4, *SHAPE), np.arange(4))):
        reasons = rules.create(name)(own, received).reasons
        for code, reason in zip(reasons, expected, strict=True):
            assert (code == Reason.TOO_LARGE) == (reason is Reason.TOO_LARGE)


@pytest.mark.parametrize("name", rules.names(shares="heads"))
def test_nobody_can_be_driven_out_of_bounds(name: str) -> None:
    own = np.zeros(SHAPE)
    rule = rules.create(name)
    for _ in range(8):
        own = rule(own, np.stack([own + 9e14 / np.sqrt(24)] * 3 + [own])).head
    assert np.isfinite(own).all()


def test_a_chain_whose_rule_cannot_work_keeps_the_own_head() -> None:
    x = heads(2, 11)
    x[1:5] = 1e6
    draws = np.linspace(0, 0.9, 10)
    for rule in (rules.Krum(f=4), rules.TrimmedMean(f=4), rules.Bristle()):
        decision = chain(rules.Bucketing(s=2), rule)(x[0], x[1:], rng=draws)
        np.testing.assert_array_equal(decision.head, x[0])
        assert not decision.weights.any()
        assert set(decision.reasons.tolist()) <= {Reason.TOO_FEW_MODELS, Reason.NOTHING_TO_TEST_ON}
    few = chain(rules.NearestNeighbourMixing(f=0), rules.Krum(f=4))(x[0], x[1:6])
    np.testing.assert_array_equal(few.head, x[0])


def test_a_chain_does_not_call_kept_what_it_did_not_use() -> None:
    for seed in range(5):
        x = heads(seed, 10)
        decision = chain(rules.Bucketing(s=2), rules.Krum(f=1))(x[0], x[1:], rng=np.random.default_rng(seed))
        used = (decision.weights > 0).any(axis=-1)
        np.testing.assert_array_equal(decision.reasons == Reason.KEPT, used)


def test_sampling_after_bucketing_favours_no_place() -> None:
    rng = np.random.default_rng(0)
    x = np.broadcast_to(heads(3, 10), (3000, 10, *SHAPE))
    evaluation = Evaluation(np.broadcast_to(heads(4, 2).reshape(1, 8, 6), (3000, 8, 6)), np.zeros((3000, 8), dtype=int))
    rule = chain(rules.Bucketing(s=1), rules.Bristle(beta=3, alpha=1 / 3, kappa=1))
    reasons = rule(x[:, 0], x[:, 1:], evaluation=evaluation, rng=rng).reasons
    sampled = (reasons != Reason.NOT_SAMPLED).mean(axis=0)
    assert abs(sampled.mean() - 1 / 3) < 0.01
    assert np.ptp(sampled) < 0.06


@pytest.mark.parametrize("name", ["krum", "multi-krum", "balance", "nearest-neighbour-averaging", "bulyan"])
def test_one_receivers_odd_head_spoils_nobody_elses_decision(name: str) -> None:
    pool = (3 + 0.1 * heads(5, 16)).astype(np.float32)
    own = pool[:4].copy()
    own[0] += 1000
    index = np.stack([np.arange(4, 16)] * 4)
    rule = rules.create(name, **({"f": 2} if name in ("krum", "multi-krum", "bulyan") else {}))
    together = rule(own, Pool(pool, index))
    for i in range(1, 4):
        alone = rule(own[i], pool[4:])
        np.testing.assert_allclose(together.head[i], alone.head, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(together.reasons[i], alone.reasons)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
def test_labels_of_any_integer_type(kind: Any) -> None:
    rng = np.random.default_rng(6)
    own, received = rng.standard_normal((300, 5)), rng.standard_normal((3, 300, 5))
    features, labels = rng.standard_normal((40, 5)), np.repeat(np.arange(4), 10)
    expected = rules.Bristle()(own, received, evaluation=Evaluation(features, labels))
    found = rules.Bristle()(own, received, evaluation=Evaluation(features, labels.astype(kind)))
    np.testing.assert_array_equal(found.weights, expected.weights)
    on_torch = Evaluation(torch.asarray(features), torch.asarray(labels).to(torch.uint8))
    again = rules.Bristle()(torch.asarray(own), torch.asarray(received), evaluation=on_torch)
    np.testing.assert_allclose(again.weights, expected.weights)


def test_padding_may_hold_anything() -> None:
    x, features = heads(7, 4), np.random.default_rng(7).standard_normal((30, 6))
    labels = np.repeat([0, 1, -1], 10)
    clean = rules.Bristle()(x[0], x[1:], evaluation=Evaluation(features, labels)).head
    features[20:] = np.nan
    np.testing.assert_array_equal(rules.Bristle()(x[0], x[1:], evaluation=Evaluation(features, labels)).head, clean)


def test_bulyan_without_attackers_uses_and_keeps_everyone() -> None:
    x = heads(8, 6)
    decision = rules.Bulyan(f=0)(x[0], x[1:])
    assert (decision.reasons == Reason.KEPT).all()
    np.testing.assert_allclose(decision.head, x.mean(axis=0))


def test_an_answer_is_never_the_own_array_itself() -> None:
    x = heads(9, 3)
    for name in rules.names(shares="heads"):
        assert not np.shares_memory(rules.create(name)(x[0], x[1:1]).head, x[0]), name


def test_a_copy_of_a_decision_stands_alone() -> None:
    x = heads(10, 8)
    decision = rules.Median()(x[0], x[1:])
    copied = copy.deepcopy(decision)
    expected = decision.weights.copy()
    x[:] = 0
    np.testing.assert_array_equal(copied.weights, expected)
    assert copied.explain(2) == decision.explain(2)


def test_reasons_of_stacking_are_not_lost() -> None:
    own = heads(11, 1)[0]
    received, mask, why = rules.stack(own, [own, own * np.nan, own[:2], None, own * 1e38])
    decision = rules.Median()(own, received, mask=mask).with_refusals(why)
    names = [Reason(int(code)).name for code in decision.reasons]
    assert names == ["KEPT", "NOT_FINITE", "WRONG_SHAPE", "ABSENT", "TOO_LARGE"]
    assert "not finite" in decision.explain(1)


def test_strange_tensors_are_refused_not_raised() -> None:
    own = torch.zeros(*SHAPE)
    strangers = [
        torch.zeros(*SHAPE, dtype=torch.bfloat16), torch.zeros(*SHAPE).to_sparse(), torch.zeros(*SHAPE, device="meta"),
        torch.zeros(*SHAPE, dtype=torch.complex64).conj(), torch.zeros(*SHAPE, dtype=torch.float32),
    ]  # fmt: skip
    _, mask, _ = rules.stack(own, strangers)
    assert mask.tolist() == [False, False, False, False, True]
    _, mask, _ = rules.stack(np.zeros(SHAPE, dtype=np.float32), strangers)
    assert mask.tolist() == [False, False, False, False, True]
    packet = np.frombuffer(np.zeros(SHAPE, dtype=np.float32).tobytes(), dtype=np.float32).reshape(SHAPE)
    assert rules.stack(own, [packet])[1].all()


def test_callers_mistakes_are_named() -> None:
    x = heads(12, 5)
    tensor, labels = torch.zeros(10, 6, dtype=torch.float64), np.zeros(10, dtype=int)
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"evaluation": (x, labels)}, "evaluation must be Evaluation"),
        ({"evaluation": Evaluation(tensor, torch.zeros(10, dtype=torch.int64))}, "same library as own"),
        ({"context": {}}, "context must be a Context, not dict"),
        ({"claims": np.ones((4, 4))}, "claims must hold booleans"),
        ({"mask": torch.ones(4, dtype=torch.bool)}, "mask must be an array of the same library"),
        ({"context": Context(previous=np.full(SHAPE, 1e200))}, r"context\.previous is not finite, or its norm"),
    ]
    for options, message in mistakes:
        with pytest.raises(ValueError, match=message):
            rules.Bristle()(x[0], x[1:], **options)
    for field in ("iteration", "total"):
        with pytest.raises(ValueError, match=f"{field} must be a whole number of at least 1"):
            Context(**{field: 0})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nu must be a number above"):
        rules.GeometricMedian(nu=1e-40)


def test_numbers_of_other_libraries_are_numbers() -> None:
    assert rules.Krum(f=np.int64(1)).f == 1  # type: ignore[arg-type]
    assert rules.Bristle(alpha=np.float32(0.5), familiar=[10, 4]).alpha == 0.5  # type: ignore[arg-type]
