"""A folder of somebody's own: a world file, and data and backbone for it in a module beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BLOBS = """
import numpy as np

from bristle.data import Dataset
from bristle.learning.backbone import CallableBackbone


def blobs():
    rng = np.random.default_rng(0)
    middle = rng.standard_normal((4, {features}))
    y = np.arange({samples}) % 4
    x = (128 + {apart} * middle[y] + {noise} * rng.standard_normal(({samples}, {features}))).clip(0, 255)
    x = x.astype(np.uint8)
    return Dataset(x[:{train}], y[:{train}], x[{train}:], y[{train}:], name="blobs")


def less(x):
    return np.asarray(x, np.float32) - 0.5


same = CallableBackbone(less, name="same", version="1", features={features}, input_shape=({features},))
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Make a folder and go there: own_folder(world, samples=..., train=..., features=..., apart=..., noise=...).

    The world finds four classes as "blobs:blobs", and what makes features of them as "blobs:same".
    """

    def make(world: str, **sizes: int) -> Path:
        (tmp_path / "blobs.py").write_text(BLOBS.format(**sizes))
        (tmp_path / "world.toml").write_text(world)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("BRISTLE_CACHE", str(tmp_path / "cache"))
        monkeypatch.delitem(sys.modules, "blobs", raising=False)
        return tmp_path

    return make
