from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bristle.learning.metrics import accuracy, f1_scores, log_likelihood_loss, predict, samples_per_class

CLASSES = 4
LABELS = hnp.arrays(np.int64, st.integers(1, 25), elements=st.integers(-1, CLASSES - 1))


@given(LABELS, st.integers(0, 99))
@settings(deadline=None)
def test_f1_is_its_formula_and_padding_counts_nowhere(labels: np.ndarray[Any, Any], seed: int) -> None:
    predictions = np.random.default_rng(seed).integers(0, CLASSES, len(labels))
    scores = f1_scores(predictions, labels, CLASSES, np.float64)
    for c in range(CLASSES):
        real = labels >= 0
        tp = ((predictions == c) & (labels == c)).sum()
        wrong = ((predictions == c) & (labels != c) & real).sum() + ((predictions != c) & (labels == c)).sum()
        assert scores[c] == (2 * tp / (2 * tp + wrong) if tp + wrong else 0)
    counts = samples_per_class(labels, CLASSES, np.float64)
    assert counts.tolist() == [(labels == c).sum() for c in range(CLASSES)]


@given(LABELS, st.integers(0, 99))
@settings(deadline=None)
def test_loss_and_accuracy_agree_with_torch(labels: np.ndarray[Any, Any], seed: int) -> None:
    logits = np.random.default_rng(seed).standard_normal((len(labels), CLASSES)) * 5
    real = labels >= 0
    if real.any():
        expected = torch.nn.functional.cross_entropy(torch.asarray(logits[real]), torch.asarray(labels[real]))
        np.testing.assert_allclose(log_likelihood_loss(logits, labels), expected.item(), rtol=1e-9)
        assert accuracy(logits, labels) == (logits[real].argmax(-1) == labels[real]).mean()
    else:
        assert log_likelihood_loss(logits, labels) == 0
        assert accuracy(logits, labels) == 0


def test_huge_outputs_give_a_finite_loss() -> None:
    logits = np.array([[1e30, -1e30, 0], [0, 1e30, 1e30]])
    np.testing.assert_allclose(log_likelihood_loss(logits, np.array([1, 2])), 1e30)


def test_ties_go_to_the_lowest_class_in_every_library() -> None:
    values = np.array([[0.0, 0, 0], [1, 2, 2], [3, 3, 1]])
    for convert in (np.asarray, torch.asarray, array_api_strict.asarray):
        assert np.asarray(predict(convert(values))).tolist() == [0, 1, 0]


def test_batches_broadcast_over_models() -> None:
    rng = np.random.default_rng(0)
    predictions, labels = rng.integers(0, CLASSES, (2, 5, 9)), rng.integers(-1, CLASSES, (2, 1, 9))
    together = f1_scores(predictions, labels, CLASSES, np.float64)
    assert together.shape == (2, 5, CLASSES)
    np.testing.assert_array_equal(together[1, 3], f1_scores(predictions[1, 3], labels[1, 0], CLASSES, np.float64))
