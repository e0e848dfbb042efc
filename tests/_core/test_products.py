from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bristle._core import namespace
from bristle._core.linear_algebra import distances_from, gram_about, mixtures_of, probe, pull_in

SIZES = [(1, 3, 5), (2, 40, 9_000), (3, 0, 7), (1, 5, 20_000)]


@pytest.mark.parametrize("convert", [np.asarray, torch.asarray])
@pytest.mark.parametrize(("batch", "count", "width"), SIZES)
def test_products_are_their_formulas(batch: int, count: int, width: int, convert: Any) -> None:
    rng = np.random.default_rng(0)
    models, own = rng.standard_normal((batch, count, width)), rng.standard_normal((batch, width))
    matrix, scale = rng.random((batch, 4, count + 1)), rng.choice([1.0, 0.5], (batch, count))
    everyone = np.concatenate([own[:, None], models], axis=1)
    difference = models - own[:, None]
    m, o = convert(models), convert(own)
    xp = namespace(m)
    np.testing.assert_allclose(distances_from(xp, m, o), (difference**2).sum(-1))
    picked = np.stack([rng.permutation(count)[: count // 2] for _ in range(batch)])
    some = np.take_along_axis((difference**2).sum(-1), picked, axis=1)
    np.testing.assert_allclose(distances_from(xp, m, o, convert(picked)), some)
    np.testing.assert_allclose(gram_about(xp, m, o), difference @ difference.swapaxes(1, 2), atol=1e-8)
    np.testing.assert_allclose(mixtures_of(xp, convert(matrix), o, m), matrix @ everyone, atol=1e-10)
    moved = np.concatenate([own[:, None], own[:, None] + scale[:, :, None] * difference], axis=1)
    np.testing.assert_allclose(pull_in(xp, o, m, convert(scale)), moved, atol=1e-12)


def test_near_models_keep_their_digits() -> None:
    """In 32 bits, inner products about the own head see distances that those about zero would lose."""
    rng = np.random.default_rng(1)
    own = 100 + rng.standard_normal((1, 4000)).astype(np.float32)
    models = own[:, None] + 1e-3 * rng.standard_normal((1, 6, 4000)).astype(np.float32)
    exact = ((models.astype(np.float64) - own.astype(np.float64)[:, None]) ** 2).sum(-1)
    np.testing.assert_allclose(np.diagonal(gram_about(np, models, own), axis1=1, axis2=2), exact, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_probe_sees_every_model_that_is_too_large(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    models = rng.standard_normal((2, 3, 70_000)).astype(dtype)
    small, total = probe(models, summed=True)
    assert small
    assert total is not None
    np.testing.assert_allclose(total, models.sum(axis=1), atol=1e-4)
    assert probe(models) == (True, None)
    spread_out = np.full(70_000, 1e15 / 70_000**0.5)
    spread_out[::2] *= -1  # As large as it may be, in no coordinate alone, and summing to nothing.
    two = np.zeros(70_000)
    two[[5, 60_000]] = 7.1e14, -7.1e14
    with np.errstate(over="ignore", invalid="ignore"):
        for value in (np.nan, np.inf, -np.inf, 1e38, spread_out, two):
            for one in (0, 2):
                hostile = models.copy()
                hostile[1, one] = value
                assert not probe(hostile)[0]
                hostile = models.copy()
                hostile[0, one, 69_999] = np.max(value) if np.ndim(value) else value
                assert not probe(hostile)[0]


def test_two_that_cancel_do_not_pass_a_probe() -> None:
    models = np.zeros((1, 2, 200_000), dtype=np.float32)
    models[0, 0], models[0, 1] = 1e38, -1e38
    with np.errstate(over="ignore", invalid="ignore"):
        assert not probe(models, summed=True)[0]
