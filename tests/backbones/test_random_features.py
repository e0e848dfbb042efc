from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bristle import Evaluation
from bristle.backbones import Backbone, CallableBackbone, NoBackbone, RandomFeatures, extract
from bristle.rules.evidence import Evidence


def test_features_follow_the_formula_and_depend_on_the_seed_alone() -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    made = RandomFeatures(NoBackbone(3), count=7, seed=1)
    np.testing.assert_allclose(made(x), np.maximum(x @ made.weights, 0), rtol=1e-6)
    np.testing.assert_array_equal(made(x), RandomFeatures(NoBackbone(3), count=7, seed=1)(x))
    assert (made.features, made.input_shape, made.name) == (7, (3,), "7 random features of none")
    others: list[Backbone] = [
        RandomFeatures(NoBackbone(3), count=7),
        RandomFeatures(NoBackbone(3), count=8, seed=1),
        NoBackbone(3),
    ]
    assert made.digest not in {other.digest for other in others}
    with pytest.raises(ValueError, match="count=0, seed=0: give at least one feature"):
        RandomFeatures(NoBackbone(3), count=0)


def test_their_inner_products_are_those_of_the_arc_cosine_kernel() -> None:
    x, y = np.array([[1, 0, 2]], np.float32), np.array([[-1, 1, 1]], np.float32)
    made = RandomFeatures(NoBackbone(3), count=200_000)
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    angle = np.arccos((x @ y.T)[0, 0] / lengths)
    kernel = lengths * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi * 3)
    assert (made(x) @ made(y).T)[0, 0] / made.count == pytest.approx(kernel, rel=0.02)


def test_the_inner_backbone_is_asked_once_for_cached_samples(tmp_path: Path) -> None:
    calls = []

    def doubled(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> object:
        calls.append(len(x))
        return 2 * x

    inner = CallableBackbone(doubled, name="doubled", version="1", features=3, input_shape=(3,))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = extract(RandomFeatures(inner, count=5), x, cache=tmp_path)
    np.testing.assert_array_equal(extract(RandomFeatures(inner, count=5), x, cache=tmp_path), first)
    np.testing.assert_array_equal(first, RandomFeatures(inner, count=5).of(2 * x))
    assert len(calls) == 1


def test_evidence_tells_classes_of_two_modes_apart() -> None:
    """Each class lies on both sides of the other one: no linear head does better than chance."""
    rng = np.random.default_rng(0)
    places = np.array([[[3.0, 0.0], [-3.0, 0.0]], [[0.0, 3.0], [0.0, -3.0]]])

    def sample(count: int) -> Evaluation:
        labels, modes = rng.integers(0, 2, size=(2, count))
        return Evaluation((places[labels, modes] + rng.normal(size=(count, 2))).astype(np.float32), labels)

    people, fresh = [sample(60) for _ in range(4)], sample(400)
    rule = Evidence()

    def accuracy(backbone: NoBackbone | RandomFeatures) -> float:
        own, *others = (Evaluation(backbone(np.asarray(one.features)), one.labels) for one in people)
        decision = rule(rule.share(own, 2), [rule.share(other, 2) for other in others], evaluation=own)
        scores = backbone(np.asarray(fresh.features)) @ np.asarray(decision.head).T + np.asarray(decision.bias)
        return float((scores.argmax(axis=1) == fresh.labels).mean())

    assert accuracy(NoBackbone(2)) < 0.7
    assert accuracy(RandomFeatures(NoBackbone(2), count=100)) > 0.9
