"""One iteration: what changes, what must not, and that a batch is many peers alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import Evaluation, Pool, rules
from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.peer import StepState, step

CLASSES, FEATURES, PEERS, KEPT = 5, 6, 4, 12


def scene(seed: int = 0) -> tuple[StepState, Any, Samples, Evaluation, Any]:
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((CLASSES, FEATURES))
    labels = np.stack([[(p + j) % CLASSES for j in range(3) for _ in range(KEPT)] for p in range(PEERS)])
    features = truth[labels] + 0.3 * rng.standard_normal((*labels.shape, FEATURES))
    heads = truth + rng.standard_normal((PEERS, CLASSES, FEATURES))
    received = truth + 0.5 * rng.standard_normal((PEERS, 6, CLASSES, FEATURES))
    evaluation = Evaluation(features[:, ::-1].copy(), labels[:, ::-1].copy())
    return (
        StepState.start(HeadState.start(heads)),
        received,
        Samples(features, labels),
        evaluation,
        rng.random(labels.shape),
    )


@pytest.mark.parametrize("rule", [rules.Bristle(), rules.FedAvg(), rules.Mozi(), rules.Local()], ids=repr)
def test_a_batch_of_peers_is_each_of_them_alone(rule: rules.Rule) -> None:
    state, received, samples, evaluation, draws = scene()
    together, _ = step(
        state, received, rule=rule, samples=samples, evaluation=evaluation, batch_draws=draws,
        model_draws=np.full((PEERS, 6), 0.5),
    )  # fmt: skip
    for p in range(PEERS):
        mine = StepState.start(HeadState.start(state.head[p]))
        alone, _ = step(
            mine, received[p], rule=rule, samples=Samples(samples.features[p], samples.labels[p]),
            evaluation=Evaluation(evaluation.features[p], evaluation.labels[p]), batch_draws=draws[p],
            model_draws=np.full(6, 0.5),
        )  # fmt: skip
        np.testing.assert_allclose(together.head[p], alone.head, atol=1e-12)
        np.testing.assert_allclose(together.previous[p], alone.previous, atol=1e-12)


def test_bristle_shifts_rows_and_leaves_untrained_ones_to_integration() -> None:
    state, received, samples, evaluation, draws = scene(1)
    after, decision = step(
        state, received, rule=rules.Bristle(), samples=samples, evaluation=evaluation, batch_draws=draws,
        model_draws=np.full((PEERS, 6), 0.5),
    )  # fmt: skip
    shifted = decision.head - decision.head.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(after.previous, shifted)
    for p in range(PEERS):
        foreign = [c for c in range(CLASSES) if c not in samples.labels[p]]
        trained = [c for c in range(CLASSES) if c in samples.labels[p]]
        np.testing.assert_array_equal(after.head[p, foreign], after.previous[p, foreign])
        assert (after.head[p, trained] != after.previous[p, trained]).all()


def test_baselines_train_the_plain_head() -> None:
    state, received, samples, _, draws = scene(2)
    after, decision = step(state, received, rule=rules.FedAvg(), samples=samples, batch_draws=draws)
    np.testing.assert_array_equal(after.previous, decision.head)
    assert (after.head != after.previous).any(axis=-1).all()  # The softmax pushes every row.


def test_moments_persist_from_one_iteration_to_the_next() -> None:
    state, received, samples, _, draws = scene(3)
    once, _ = step(state, received, rule=rules.Local(), samples=samples, batch_draws=draws)
    twice, _ = step(once, received, rule=rules.Local(), samples=samples, batch_draws=draws)
    assert once.trained.steps.tolist() == [1] * PEERS
    assert twice.trained.steps.tolist() == [2] * PEERS
    assert (twice.trained.first != once.trained.first).any()


def test_nobody_answered() -> None:
    state, received, samples, evaluation, draws = scene(4)
    empty = Pool(received[0], np.zeros((PEERS, 0), dtype=np.int64))
    after, decision = step(
        state, empty, rule=rules.Bristle(), samples=samples, evaluation=evaluation, batch_draws=draws,
        model_draws=np.zeros((PEERS, 0)),
    )  # fmt: skip
    assert decision.reasons.shape == (PEERS, 0)
    assert np.isfinite(after.head).all()
