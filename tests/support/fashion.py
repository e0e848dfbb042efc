"""A small part of Fashion-MNIST, which is harder than MNIST: see tests/fashion_mnist/LICENSE."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bristle.backbones.backbone import bundled
from bristle.data import Dataset, mnist
from bristle.data.bundled import read_packed
from bristle.simulation import FeatureData, prepare


@lru_cache(maxsize=1)
def clothes() -> Dataset:
    """Return 24 images of each class to train on, and 16 to test on."""
    return read_packed(Path(__file__).parent.parent / "fashion_mnist", name="fashion-mnist, in part")


@lru_cache(maxsize=1)
def features_of_clothes() -> FeatureData:
    """Return their features by the bundled backbone, which has never seen clothes."""
    return prepare(clothes(), bundled())


@lru_cache(maxsize=1)
def features_of_digits() -> FeatureData:
    """Return the features of a few hundred digits."""
    digits = mnist()
    few = Dataset(digits.x_train[:1200], digits.y_train[:1200], digits.x_test[:500], digits.y_test[:500], name="few")
    return prepare(few, bundled())
