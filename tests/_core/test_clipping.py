"""Pulling models in: the formula in one pass or two, whatever the number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle._core import linear_algebra as clipping
from bristle._core import threads
from bristle._core.linear_algebra import Pull, clip_about

SIZES = [(1, 3, 5), (2, 40, 9_000), (3, 0, 7), (1, 5, 20_000)]


def within(radius: float, *, alone: bool) -> Pull:
    def factors(squared: Any) -> Any:
        distance = np.sqrt(squared)
        return np.where(distance > radius, radius / np.where(distance > 0, distance, 1), 1)

    return Pull(factors, alone)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(("batch", "count", "width"), SIZES)
@pytest.mark.parametrize("share", [0.0, 0.5, 1e9])
def test_clipping_pulls_in_what_lies_outside(batch: int, count: int, width: int, share: float, alone: bool) -> None:
    rng = np.random.default_rng(2)
    own = rng.standard_normal((batch, width))
    models = own[:, None] + rng.random((batch, count, 1)) * rng.standard_normal((batch, count, width))
    radius = share * width**0.5
    distance = np.linalg.norm(models - own[:, None], axis=-1)
    squared, clipped = clip_about(models, own, within(radius, alone=alone))
    np.testing.assert_allclose(squared, distance**2)
    np.testing.assert_array_equal(clipped[:, 0], own)
    inside = distance <= radius
    np.testing.assert_array_equal(clipped[:, 1:][inside], models[inside])
    scale = np.where(inside, 1, radius / distance)[:, :, None]
    np.testing.assert_allclose(clipped[:, 1:], own[:, None] + scale * (models - own[:, None]), atol=1e-9)


@pytest.mark.parametrize("alone", [True, False])
def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    heads = np.random.default_rng(3).standard_normal((1, 12, 70_001)).astype(np.float32)
    heads[0, 4:] *= 0.5
    pull = within(300, alone=alone)
    answers = [clip_about(heads[:, 1:], heads[:, 0], pull)]
    monkeypatch.setattr(clipping, "THREADED", 1)
    monkeypatch.setattr(threads, "threads", lambda: 3)
    answers.append(clip_about(heads[:, 1:], heads[:, 0], pull))
    for one, other in zip(*answers, strict=True):
        assert one.tobytes() == other.tobytes()


def test_what_is_not_finite_raises_no_warning_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipping, "THREADED", 1)
    monkeypatch.setattr(threads, "threads", lambda: 2)
    heads = np.ones((1, 5, 100), dtype=np.float32)
    heads[0, 3:] = np.inf
    heads[0, 3, 0] = -np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        squared, _ = clip_about(heads[:, 1:], heads[:, 0], within(1, alone=True))
    assert np.isinf(squared[0, 2:]).all()
