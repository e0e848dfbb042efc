from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bristle.backbones import CallableBackbone
from bristle.data import Dataset
from bristle.simulation import prepare


def test_dataset_and_backbone_need_not_be_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path))
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 4
    dataset = Dataset(images, labels, images[:12], labels[:12], classes=("a", "b", "c", "d"), name="made up")
    calls = []

    def sums(x: Any) -> Any:
        calls.append(len(x))
        return x.reshape(len(x), 8, 8).sum(axis=2).astype(np.float32)

    backbone = CallableBackbone(sums, name="sums", version="1", features=8, input_shape=(8, 8))
    data = prepare(dataset, backbone, test_samples=10)
    assert data.train.shape == (40, 8)
    assert data.test.shape == (10, 8)
    assert data.classes == ("a", "b", "c", "d")
    paid = len(calls)
    prepare(dataset, backbone, test_samples=10)
    assert len(calls) == paid, "the second time the features come from the cache"
