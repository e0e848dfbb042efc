from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

from bristle._core import keyed_uniforms
from bristle.learning.optimiser import HeadState, TrainingSettings, adam_update
from bristle.learning.training import full_step, train_step


def test_many_steps_equal_adam_of_torch_on_the_same_batches() -> None:
    rng = np.random.default_rng(1)
    peers, samples, depth = 4, 12, 50
    counts = np.array([12, 7, 3, 1])
    labels = np.where(np.arange(samples) < counts[:, None], rng.integers(0, 10, (peers, samples)), -1)
    features = rng.random((peers, samples, depth), dtype=np.float32) * 3
    state = HeadState.zeros((peers, 10, depth), like=features)
    models = [torch.zeros(10, depth, requires_grad=True) for _ in range(peers)]
    optimisers = [torch.optim.Adam([model], lr=1e-3, weight_decay=5e-3) for model in models]
    loss = torch.nn.CrossEntropyLoss()
    for iteration in range(1, 401):
        draws = keyed_uniforms(3, np.arange(peers), iteration, samples)
        state = train_step(state, features, labels, draws)
        for peer, (model, optimiser) in enumerate(zip(models, optimisers, strict=True)):
            real = np.flatnonzero(labels[peer] >= 0)
            batch = real[np.argsort(draws[peer, real])[:5]]
            optimiser.zero_grad()
            outputs = torch.asarray(features[peer, batch]) @ model.T
            torch.autograd.backward(loss(outputs, torch.asarray(labels[peer, batch])))
            optimiser.step()
    expected = np.stack([model.detach().numpy() for model in models])
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(state.head, expected, atol=1e-5)
    assert state.steps.tolist() == [400] * peers


@pytest.mark.parametrize("settings", [TrainingSettings(), TrainingSettings(beta1=0, beta2=0, l2=0, learning_rate=0.1)])
def test_one_step_is_the_formula_with_every_peer_at_its_own_step(settings: TrainingSettings) -> None:
    rng = np.random.default_rng(0)
    head, first, gradient = rng.standard_normal((3, 5, 2, 7))
    second, steps = rng.random((5, 2, 7)), np.array([0, 1, 5, 1000, 10**6])
    everything = np.ones((5, 2), dtype=np.bool)
    after = adam_update(HeadState(head, first, second, steps), gradient, settings, rows=everything)
    g = gradient + settings.l2 * head
    m = settings.beta1 * first + (1 - settings.beta1) * g
    v = settings.beta2 * second + (1 - settings.beta2) * g**2
    t = (steps + 1)[:, None, None]
    unbiased = m / (1 - settings.beta1**t), v / (1 - settings.beta2**t)
    expected = head - settings.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + settings.epsilon)
    np.testing.assert_allclose(after.head, expected, rtol=1e-12)
    np.testing.assert_allclose(after.first, m, rtol=1e-12)
    np.testing.assert_allclose(after.second, v, rtol=1e-12)
    assert (after.steps == steps + 1).all()


def test_the_passes_in_numpy_do_the_same_as_the_formula_in_any_library() -> None:
    """Head states far apart in scale; `full_step` takes the passes, the other library the formula."""
    rng = np.random.default_rng(0)
    scale = 10.0 ** np.arange(-3, 3)[:, None, None]
    state = HeadState(
        scale * rng.standard_normal((6, 3, 8)),
        scale * rng.standard_normal((6, 3, 8)),
        scale**2 * rng.random((6, 3, 8)),
        np.arange(6),
    )
    features, labels = rng.standard_normal((6, 20, 8)), rng.integers(0, 3, (6, 20))
    settings = TrainingSettings(learning_rate=0.3, l2=0.1, beta1=0.5, beta2=0.7, epsilon=1e-2)
    found = full_step(state, features, labels, settings=settings)
    for convert in (torch.asarray, array_api_strict.asarray):
        other: Any = full_step(
            HeadState(convert(state.head), convert(state.first), convert(state.second), convert(state.steps)),
            convert(features),
            convert(labels),
            settings=settings,
        )
        for ours, theirs in ((found.head, other.head), (found.first, other.first), (found.second, other.second)):
            np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-10, atol=1e-12)


def test_states_start_at_zero_in_the_library_that_is_asked_for() -> None:
    for convert in (np.asarray, torch.asarray, array_api_strict.asarray):
        like = convert(np.ones(3, dtype=np.float32))
        state = HeadState.zeros((2, 3, 4, 5), like=like)
        assert type(state.head) is type(like)
        assert state.head.dtype == like.dtype
        assert tuple(state.steps.shape) == (2, 3)
        for values in (state.head, state.first, state.second, state.steps):
            assert not np.asarray(values).any()


def test_mistakes_are_named() -> None:
    for message, options in (
        ("beta1=-0.1: give a number from 0 to below 1", {"beta1": -0.1}),
        ("beta2=1.0", {"beta2": 1.0}),
        ("batch=0: give at least 1", {"batch": 0}),
        ("l2=-1", {"l2": -1}),
        ("learning_rate=nan", {"learning_rate": float("nan")}),
        ("epsilon=0", {"epsilon": 0}),
    ):
        with pytest.raises(ValueError, match=message):
            TrainingSettings(**options)
    with pytest.raises(ValueError, match=r"heads have the shape \[..., classes, features\], not \[5\]"):
        HeadState.start(np.zeros(5))
