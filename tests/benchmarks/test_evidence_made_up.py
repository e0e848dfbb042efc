"""Data that no backbone made: each kind can be drawn, and peers learn more together than alone."""

from __future__ import annotations

import numpy as np
import pytest

from evidence_made_up import CLASSES, KINDS, TESTED, compared, made, run


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_finite_samples_of_all_classes(kind: str) -> None:
    data = made(kind, 0)
    assert np.isfinite(np.asarray(data.train)).all()
    assert (np.bincount(np.asarray(data.test_labels)) == TESTED).all()
    assert len(data.classes) == CLASSES


def test_peers_learn_more_together_than_alone() -> None:
    data = made("classes close together", 0)
    world, accuracy = run(data, 0)
    alone, _, regression = compared(world, data)
    assert accuracy.min() > alone + 0.1
    assert accuracy.mean() > regression - 0.05
