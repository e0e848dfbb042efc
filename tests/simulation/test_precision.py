from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bristle.learning import HeadState
from bristle.simulation import FeatureData, Precision, Scenario, World


def trained(like: Any, scale: float) -> HeadState:
    xp = torch if isinstance(like, torch.Tensor) else np
    rng = np.random.default_rng(0)
    head, first, root = (xp.asarray(scale * rng.normal(size=(3, 2, 5)).astype(np.float32)) for _ in range(3))
    return HeadState(head, first, root * root, xp.zeros(3, dtype=xp.int64))


@pytest.mark.parametrize("moments", ["float16", "bfloat16"])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_narrow_moments_are_close_and_half_as_large(moments: Any, scale: float) -> None:
    state = trained(torch.zeros(1), scale)
    precision = Precision(moments=moments)
    kept = precision.narrowed(state)
    assert kept.first.element_size() == kept.second.element_size() == 2
    assert kept.head is state.head
    back = precision.widened(kept)
    torch.testing.assert_close(back.first, state.first, rtol=0.01, atol=1e-3 * scale)
    torch.testing.assert_close(back.second, state.second, rtol=0.02, atol=1e-5 * scale**2)
    for values in (kept.first, kept.second):
        torch.testing.assert_close(precision.kept(precision.plain(values, state.head)), values, rtol=0, atol=0)


def test_the_same_type_is_kept_as_it_is() -> None:
    state = trained(np.zeros(1), 1.0)
    assert Precision().narrowed(state) is state
    assert Precision().widened(state) is state


def test_a_type_that_the_library_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="numpy has no type bfloat16"):
        Precision(moments="bfloat16").narrowed(trained(np.zeros(1), 1.0))
    with pytest.raises(ValueError, match="moments must be one of same, float16, bfloat16, not 'float8'"):
        Precision(moments="float8")  # type: ignore[arg-type]


def test_a_world_learns_as_well_with_narrow_moments(data: FeatureData) -> None:
    scenario = Scenario(peers=6, attackers=2, classes_per_peer=3, samples_per_class=3, held_out=10, iterations=60)
    exact = World(scenario, data)
    narrow = World(replace(scenario, precision=Precision(moments="float16"), receivers_at_once=4), data)
    for _ in range(60):
        exact.advance()
        narrow.advance()
    assert narrow.state.trained.second.dtype == np.float16
    assert exact.accuracy().mean() > 0.5
    assert abs(exact.accuracy().mean() - narrow.accuracy().mean()) < 0.03
    again = World(narrow.scenario, data)
    again.restore(narrow.arrays())
    again.advance()
    narrow.advance()
    np.testing.assert_array_equal(again.heads, narrow.heads)
