"""Random features of another backbone's features, for classes that no linear head can tell apart."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bristle.backbones.base import Array, Backbone, Features, Shape


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """max(0, A phi(x)) with a random A, entries N(0, 1 / D): the arc-cosine kernel of order 1 (Cho and Saul 2009).

    A linear head on these features is a nonlinear one on phi(x): it pays where classes have several modes, or where
    samples are used without a trained backbone. Everything else stays as it is, the rule `evidence` included; heads
    and statements grow with `count`. Peers of a group use the same `count` and `seed`.

    Parameters
    ----------
    backbone
        What makes phi(x).
    count
        How many random features to make.
    seed
        What A is drawn from.
    """

    backbone: Backbone
    count: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.seed < 0:
            raise ValueError(f"count={self.count}, seed={self.seed}: give at least one feature, and a seed from 0 on")

    @cached_property
    def weights(self) -> Features:
        """A, of shape [D, count]."""
        sizes = (self.backbone.features, self.count)
        drawn = np.random.Generator(np.random.PCG64(self.seed)).standard_normal(sizes, dtype=np.float32)
        return drawn / np.float32(np.sqrt(self.backbone.features))

    @property
    def name(self) -> str:
        """The backbone's name, and how many random features there are."""
        return f"{self.count} random features of {self.backbone.name}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the backbone's digest and of A."""
        drawn = hashlib.sha256(self.weights.astype("<f4").tobytes()).hexdigest()
        return hashlib.sha256(json.dumps(["random", self.backbone.digest, self.count, drawn]).encode()).hexdigest()

    @property
    def features(self) -> int:
        """How many features a sample has."""
        return self.count

    @property
    def input_shape(self) -> Shape:
        """Sizes of one sample as the backbone wants it."""
        return self.backbone.input_shape

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, count]` of the samples `x` `[n, ...]`."""
        return self.of(self.backbone(x))

    def of(self, features: Features) -> Features:
        """Return random features [n, count] of the backbone's features [n, D]."""
        made: Features = np.maximum(features @ self.weights, np.float32(0))
        return made
