from __future__ import annotations

import numpy as np
import pytest
import torch

from bristle._core import keyed_uniforms, uniforms


def test_a_peers_draws_depend_on_no_other_peer() -> None:
    together = keyed_uniforms(7, np.arange(50), 3, 20)
    apart = keyed_uniforms(7, np.array([31]), 3, 20)
    np.testing.assert_array_equal(together[31], apart[0])
    np.testing.assert_array_equal(keyed_uniforms(7, np.arange(50), 3, 8), together[:, :8])


def test_every_part_of_the_key_matters() -> None:
    base = keyed_uniforms(0, np.arange(10), 0, 10)
    for other in (keyed_uniforms(1, np.arange(10), 0, 10), keyed_uniforms(0, np.arange(10), 1, 10)):
        assert not np.isin(base, other).any()
    assert len(np.unique(keyed_uniforms(0, np.arange(1000), 5, 100))) == 100_000


def test_draws_are_uniform_and_uncorrelated() -> None:
    draws = keyed_uniforms(3, np.arange(2000), 11, 50)
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(5000)
    for axis_pair in (np.corrcoef(draws[:, 0], draws[:, 1]), np.corrcoef(draws[0], draws[1])):
        assert abs(axis_pair[0, 1]) < 0.5
    following = keyed_uniforms(3, np.arange(2000), 12, 50)
    assert abs(np.corrcoef(draws.ravel(), following.ravel())[0, 1]) < 0.02


def test_the_known_values_stay_for_good() -> None:
    """Results on disk name their seed: these numbers may never change."""
    expected = [[0.0549424457, 0.9240057758, 0.9727911517], [0.0103810353, 0.2975945448, 0.6380308768]]
    drawn = keyed_uniforms(42, np.array([0, 1]), 1, 3)
    assert drawn.shape == (2, 3)
    np.testing.assert_allclose(drawn, expected, atol=1e-9)


def test_uniforms_come_from_a_generator_or_ready_made() -> None:
    like = torch.zeros(1, dtype=torch.float32)
    drawn = uniforms(np.random.default_rng(4), (2, 3), like=like)
    assert drawn.dtype == torch.float32
    np.testing.assert_allclose(drawn.numpy(), np.random.default_rng(4).random((2, 3)).astype(np.float32))
    ready = np.full((2, 3), 0.25)
    assert uniforms(ready, (2, 3), like=like).dtype == torch.float32
    first, second = (uniforms(None, (4,), like=np.zeros(1)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"rng must be a numpy\.random\.Generator or an array of uniforms, not int"):
        uniforms(5, (3,), like=np.zeros(1))
    with pytest.raises(ValueError, match=r"uniforms of shape \(2,\), but \(3,\) are needed"):
        uniforms(np.zeros(2), (3,), like=np.zeros(1))
