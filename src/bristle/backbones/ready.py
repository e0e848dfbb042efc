"""Backbones that add little: none at all for ready features, and a constant feature for heads with a bias."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from bristle.backbones.base import Array, Backbone, Features, Shape, checked


@dataclass(frozen=True, eq=False)
class NoBackbone:
    """phi(x) = x: for samples that are features already, such as a table's columns or a language model's embeddings.

    Samples of several axes are flattened. Values are used as they are: standardise those of a table first, with the
    same constants for all peers.

    Parameters
    ----------
    features
        How many features a sample has.
    name
        What made them, e.g. `"all-MiniLM-L6-v2"`: features that were made differently are another group's.
    """

    features: int
    name: str = "none"

    def __post_init__(self) -> None:
        if self.features < 1 or not self.name:
            raise ValueError(f"features={self.features}, name={self.name!r}: give at least one feature, and a name")

    @property
    def input_shape(self) -> Shape:
        """Sizes of one sample."""
        return (self.features,)

    @property
    def digest(self) -> str:
        """SHA-256 of the name and the number of features."""
        return hashlib.sha256(json.dumps(["features", self.name, self.features]).encode()).hexdigest()

    def __call__(self, x: Array, /) -> Features:
        """Return the samples `x` `[n, ...]` as features `[n, features]`."""
        samples = np.asarray(x)
        if samples.dtype.kind not in "buif":
            raise ValueError(f"features are numbers, not {samples.dtype}: convert the samples to float32")
        found = int(np.prod(samples.shape[1:]))
        if samples.ndim < 2 or found != self.features:
            raise ValueError(
                f"samples of shape {list(samples.shape[1:])} are not {self.features} features: give "
                f"[samples, {self.features}], or NoBackbone({found})"
            )
        return checked(samples.reshape(len(samples), -1), len(samples), self)


@dataclass(frozen=True, eq=False)
class WithBias:
    """[phi(x), 1]: the features of another backbone and a constant, so that a head's last column is a bias.

    Heads of peers have no bias of their own. Peers that start from a head with one share this backbone.

    Parameters
    ----------
    backbone
        What makes the other features.
    """

    backbone: Backbone

    @property
    def name(self) -> str:
        """The backbone's name."""
        return f"{self.backbone.name} with bias"

    @property
    def digest(self) -> str:
        """SHA-256 of the backbone's digest."""
        return hashlib.sha256(json.dumps(["bias", self.backbone.digest]).encode()).hexdigest()

    @property
    def features(self) -> int:
        """One more than the backbone has."""
        return self.backbone.features + 1

    @property
    def input_shape(self) -> Shape:
        """Sizes of one sample as the backbone wants it."""
        return self.backbone.input_shape

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, features]` of the samples `x` `[n, ...]`; the last one is 1."""
        return self.of(self.backbone(x))

    def of(self, features: Features) -> Features:
        """Return the backbone's features [n, D] with a 1 at the end."""
        return np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1)
