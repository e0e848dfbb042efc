"""Features in files: the same for every reader, and nobody can write to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bristle.paper.store import load_features, save_features
from bristle.simulation import FeatureData


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = FeatureData(
        rng.random((20, 3), dtype=np.float32), np.arange(20) % 2, rng.random((5, 3), dtype=np.float32),
        np.arange(5) % 2, ("yes", "no"),
    )  # fmt: skip
    save_features(data, tmp_path / "new")
    found = load_features(tmp_path / "new")
    before = (data.train, data.train_labels, data.test, data.test_labels)
    after = (found.train, found.train_labels, found.test, found.test_labels)
    for ours, theirs in zip(before, after, strict=True):
        np.testing.assert_array_equal(theirs, ours)
        assert type(theirs) is np.ndarray
    assert found.classes == ("yes", "no")
    with pytest.raises(ValueError, match="read-only"):
        found.train[0, 0] = 1
