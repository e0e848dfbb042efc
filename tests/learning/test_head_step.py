from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

from bristle.learning import training as head_step
from bristle.learning.optimiser import HeadState
from bristle.learning.training import train, train_step

World = tuple[HeadState, Any, Any, Any]


@pytest.fixture(scope="module")
def world() -> World:
    """40 heads of 10 x 800, more than one block of work; peers hold 0 to 9 samples of 6 classes."""
    rng = np.random.default_rng(0)
    features = rng.random((40, 9, 800), dtype=np.float32)
    labels = np.where(rng.random((40, 9)) < 0.8, rng.integers(0, 6, (40, 9)), -1)
    labels[7] = -1
    state = train(HeadState.zeros((40, 10, 800), like=features), features, labels, steps=2, seed=0)
    return state, features, labels, rng.random((40, 9))


def arrays(state: HeadState) -> tuple[Any, Any, Any, Any]:
    return state.head, state.first, state.second, state.steps


def assert_same(found: HeadState, expected: HeadState, tolerance: float = 0.0) -> None:
    for values, wanted in zip(arrays(found), arrays(expected), strict=True):
        np.testing.assert_allclose(np.asarray(values), np.asarray(wanted), rtol=tolerance, atol=tolerance)


def one(state: HeadState, peer: int) -> HeadState:
    return HeadState(*(values[peer] for values in arrays(state)))


@pytest.mark.parametrize("consolidate", [False, True])
def test_blocks_and_grids_of_peers_do_not_show(world: World, consolidate: bool) -> None:
    state, features, labels, draws = world
    together = train_step(state, features, labels, draws, consolidate=consolidate)
    for peer in (0, 7, 15, 16, 39):
        alone = train_step(one(state, peer), features[peer], labels[peer], draws[peer], consolidate=consolidate)
        assert_same(one(together, peer), alone, 1e-6)
    grid = HeadState(*(values.reshape(5, 8, *values.shape[1:]) for values in arrays(state)))
    shaped = train_step(
        grid, features.reshape(5, 8, 9, 800), labels.reshape(5, 8, 9), draws.reshape(5, 8, 9), consolidate=consolidate
    )
    assert shaped.head.shape == (5, 8, 10, 800)
    np.testing.assert_array_equal(shaped.head.reshape(40, 10, 800), together.head)
    np.testing.assert_array_equal(shaped.steps.ravel(), together.steps)


@pytest.mark.parametrize("convert", [torch.asarray, array_api_strict.asarray])
def test_blocks_of_other_libraries_do_not_show(world: World, convert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state, features, labels, draws = world
    inputs = HeadState(*map(convert, arrays(state))), convert(features), convert(labels)
    whole = train_step(*inputs, draws, consolidate=True)
    monkeypatch.setattr(head_step, "block_bytes", lambda array: 7 * 8 * 4 * 8000)
    assert_same(train_step(*inputs, draws, consolidate=True), whole, 1e-6)
    assert_same(whole, train_step(state, features, labels, draws, consolidate=True), 1e-6)


@pytest.mark.parametrize("consolidate", [False, True])
def test_a_step_changes_nothing_but_what_is_donated(world: World, consolidate: bool) -> None:
    state, features, labels, draws = world
    before = HeadState(*map(np.copy, arrays(state)))
    first = train_step(state, features, labels, draws, consolidate=consolidate)
    assert_same(state, before)
    assert_same(train_step(state, features, labels, draws, consolidate=consolidate), first)
    donated = train_step(before, features, labels, draws, consolidate=consolidate, donate=True)
    assert donated.head is before.head
    assert_same(donated, first)
    locked = HeadState(*map(np.copy, arrays(state)))
    locked.second.flags.writeable = False
    assert_same(train_step(locked, features, labels, draws, consolidate=consolidate, donate=True), first)
    assert_same(locked, state)


def test_a_head_larger_than_a_block_trains_as_well() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.random((2, 6, 40_000)), rng.integers(0, 4, (2, 6))
    state = HeadState.zeros((2, 4, 40_000), like=features)
    found = train(state, features, labels, steps=2, seed=0)
    tensor = train(
        HeadState.zeros((2, 4, 40_000), like=torch.asarray(features)),
        torch.asarray(features),
        torch.asarray(labels),
        steps=2,
        seed=0,
    )
    assert_same(found, tensor, 1e-10)


def test_threads_do_not_share_their_work(world: World) -> None:
    state, features, labels, draws = world
    expected = train_step(state, features, labels, draws)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: train_step(state, features, labels, draws), range(12)):
            assert_same(found, expected)


def test_everything_stays_on_the_device_of_its_arrays(world: World) -> None:
    """The strict library refuses to mix devices, as a GPU would."""
    state, features, labels, draws = world
    device = array_api_strict.Device("device1")

    def put(values: Any) -> Any:
        return array_api_strict.asarray(values, device=device)

    there = train_step(HeadState(*map(put, arrays(state))), put(features), put(labels), draws, consolidate=True)
    assert all(values.device == device for values in arrays(there))
    here = train_step(state, features, labels, draws, consolidate=True)
    back = HeadState(
        *(array_api_strict.asarray(v, device=array_api_strict.Device("CPU_DEVICE")) for v in arrays(there))
    )
    assert_same(back, here, 1e-6)
    assert HeadState.zeros((2, 3, 4), like=put(features)).steps.device == device
