from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle.simulation import FeatureData

CLASSES, FEATURES = 6, 24


@pytest.fixture(scope="session")
def data() -> FeatureData:
    """Made-up features of six classes that a head can tell apart."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((CLASSES, FEATURES))
    labels = np.repeat(np.arange(CLASSES), 250)
    test_labels = np.repeat(np.arange(CLASSES), 40)

    def features(y: Any) -> Any:
        return (truth[y] + 0.8 * rng.standard_normal((len(y), FEATURES))).astype(np.float32)

    return FeatureData(features(labels), labels, features(test_labels), test_labels, tuple("abcdef"))
