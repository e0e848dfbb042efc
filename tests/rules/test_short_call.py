"""A call with nothing to sort out takes a short way to the mathematics, with the long way's answers to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bristle import Pool, rules
from bristle._core import to_numpy
from bristle.rules import Decision, Reason
from bristle.rules.call import Call
from bristle.rules.checks import PROBED, Measure
from bristle.rules.short_call import short_call, short_pool_call

STEPS = (rules.Clipping(tau=2.0), rules.Clipping(f=2), rules.NearestNeighbourMixing(f=2))
NAMES = [name for name in rules.names(shares="heads") if not rules.create(name).stochastic]


def heads_of(seed: int, shape: tuple[int, int, int], dtype: Any, copies: bool) -> Any:
    """Random heads, the own one first; with `copies`, some are equal and some far off."""
    rng = np.random.default_rng(seed)
    models, classes, features = shape
    heads = rng.standard_normal((models + 1, classes, features))
    if copies:
        heads[rng.integers(models + 1, size=2)] = heads[0]
        heads[rng.integers(models + 1)] *= 1e6
    return heads.astype(dtype)


shapes = st.tuples(st.integers(1, 14), st.integers(1, 5), st.integers(1, 40))


def same(short: Decision, long: Decision) -> None:
    for name in ("head", "weights", "reasons"):
        found, expected = getattr(short, name), getattr(long, name)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(to_numpy(found), to_numpy(expected), err_msg=name)


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(0, 1 << 16), shapes, st.sampled_from([np.float32, np.float64]), st.booleans())
def test_rules_answer_the_same_bits(name: str, seed: int, shape: Any, dtype: Any, copies: bool) -> None:
    heads = heads_of(seed, shape, dtype, copies)
    rule, everyone = rules.create(name), np.ones(shape[0], dtype=bool)
    short, long = rule(heads[0], heads[1:]), rule(heads[0], heads[1:], mask=everyone)
    same(short, long)
    tensor = torch.from_numpy(heads)
    of_torch = rule(tensor[0], tensor[1:])
    assert isinstance(of_torch.head, torch.Tensor)
    assert isinstance(of_torch.weights, torch.Tensor)
    np.testing.assert_array_equal(of_torch.head.numpy(), short.head)
    np.testing.assert_array_equal(of_torch.weights.numpy(), short.weights)
    np.testing.assert_array_equal(of_torch.reasons.numpy(), short.reasons)


@pytest.mark.parametrize("step", STEPS, ids=repr)
@given(st.integers(0, 1 << 16), shapes, st.sampled_from([np.float32, np.float64]), st.booleans())
def test_steps_answer_the_same_bits(step: rules.Step, seed: int, shape: Any, dtype: Any, copies: bool) -> None:
    heads = heads_of(seed, shape, dtype, copies)
    short = step(heads[0], heads[1:])
    np.testing.assert_array_equal(short, step(heads[0], heads[1:], mask=np.ones(shape[0], dtype=bool)))
    tensor = torch.from_numpy(heads)
    np.testing.assert_array_equal(step(tensor[0], tensor[1:]).numpy(), short)


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(0, 1 << 16), shapes, st.sampled_from([np.float32, np.float64]), st.booleans())
def test_receivers_of_a_pool_get_the_same_bits(name: str, seed: int, shape: Any, dtype: Any, copies: bool) -> None:
    heads = heads_of(seed, shape, dtype, copies)
    index = np.random.default_rng(seed).integers(len(heads), size=(3, shape[0]))
    rule, own, pool = rules.create(name), heads[[0, 1, 0]], Pool(heads, index)
    assert short_pool_call(own, pool) is not None
    same(rule(own, pool), rule(own, pool, mask=np.ones(index.shape, dtype=bool)))


def test_unusual_pools_take_the_long_way() -> None:
    heads = heads_of(0, (19, 2, 3), np.float32, False)
    own, index = heads[:4], np.arange(16).reshape(4, 4)
    for fit in (index, index + 4):
        assert short_pool_call(own, Pool(heads, fit)) is not None
    for unfit in (index + 5, index - 1, index[:, :0], index[:3], index[:, :1], index.astype(np.int32)):
        assert short_pool_call(own, Pool(heads, unfit)) is None
    assert short_pool_call(own.astype(np.float64), Pool(heads, index)) is None
    assert short_pool_call(own * np.nan, Pool(heads, index)) is None
    assert short_pool_call(own[:, :, :2], Pool(heads, index)) is None
    assert short_pool_call(torch.from_numpy(own), Pool(heads, index)) is None
    for wrong in (np.inf, 1e16):
        assert short_pool_call(own, Pool(np.where(np.arange(20)[:, None, None] == 7, wrong, heads), index)) is None
    with pytest.raises(ValueError, match="points outside its 20 heads"):
        rules.FedAvg()(own, Pool(heads, index + 5))


def test_what_is_unusual_takes_the_long_way() -> None:
    heads = heads_of(0, (4, 2, 3), np.float32, False)
    own, received = heads[0], heads[1:]
    assert short_call(own, received, Measure.NORMS) is not None
    assert short_call(own[None], received[None], Measure.NORMS) is None
    assert short_call(own, received[:0], Measure.NORMS) is None
    assert short_call(own, received.astype(np.float64), Measure.NORMS) is None
    assert short_call(own * np.nan, received, Measure.NORMS) is None
    wide = np.zeros((2, 1, PROBED), dtype=np.float32)
    assert short_call(wide[0], wide[1:], Measure.NORMS) is None
    tensor = torch.from_numpy(heads)
    assert short_call(tensor[0], tensor[1:], Measure.NORMS) is not None
    assert short_call(tensor[0], tensor[1:].requires_grad_(), Measure.NORMS) is None
    assert short_call(tensor[0], received, Measure.NORMS) is None


@pytest.mark.parametrize("measure", list(Measure))
def test_unfit_models_are_refused_as_ever(measure: Measure) -> None:
    heads = heads_of(1, (6, 2, 3), np.float32, False)
    heads[2, 0, 0], heads[4] = np.nan, 1e16
    assert short_call(heads[0], heads[1:], measure) is None
    for rule in map(rules.create, NAMES):
        reasons = rule(heads[0], heads[1:]).reasons
        assert reasons[1] == Reason.NOT_FINITE
        assert reasons[3] == Reason.TOO_LARGE


def test_gradients_reach_the_models() -> None:
    tensor = torch.from_numpy(heads_of(2, (4, 2, 3), np.float32, False)).requires_grad_()
    rules.FedAvg()(tensor[0], tensor[1:]).head.sum().backward()
    assert tensor.grad is not None
    np.testing.assert_allclose(tensor.grad.numpy(), 1 / 5, rtol=1e-6)


def test_answers_share_no_memory_with_what_came_in() -> None:
    heads = heads_of(3, (8, 2, 3), np.float32, False)
    for received in (heads, torch.from_numpy(heads)):
        for rule in map(rules.create, NAMES):
            assert not np.shares_memory(to_numpy(rule(received[0], received[1:]).head), heads)


def test_checks_are_those_of_all_calls() -> None:
    """A head at the very bound is let in by both ways, one beyond it by neither."""
    own, received = np.zeros((1, 2), dtype=np.float64), np.zeros((1, 1, 2))
    for norm, fit in ((0.999e15, True), (1.001e15, False)):
        received[0, 0, 0] = norm
        for measure in Measure:
            assert (short_call(own, received, measure) is not None) == fit
            assert (Call.check(own, received, measure=measure).usable is None) == fit
