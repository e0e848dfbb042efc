"""Backbones without a network of their own: ready features, a constant feature for a bias, and random features."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bristle.backbones.base import Array, Backbone, Features, Shape, checked


@dataclass(frozen=True, eq=False)
class NoBackbone:
    """phi(x) = x: for samples that are features already, such as a table's columns or a language model's embeddings.

    Samples of several axes are flattened. Values are not scaled: standardise those of a table first, with the same
    constants for all peers.

    Parameters
    ----------
    features
        Number of features of a sample.
    name
        Source of the features, e.g. `"all-MiniLM-L6-v2"`: peers with features of another source are another group.
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
class Derived(ABC):
    """Features that `of` computes from those of another backbone."""

    backbone: Backbone

    @property
    def input_shape(self) -> Shape:
        """Shape of one sample, as the other backbone takes it."""
        return self.backbone.input_shape

    @abstractmethod
    def of(self, features: Features) -> Features:
        """Return the features [n, features] for features [n, D] of the other backbone."""

    def __call__(self, x: Array, /) -> Features:
        """Return the features `[n, features]` of the samples `x` `[n, ...]`."""
        return self.of(self.backbone(x))


@dataclass(frozen=True, eq=False)
class WithBias(Derived):
    """[phi(x), 1]: the features of another backbone and a constant, so that a head's last column is a bias.

    Heads of peers have no bias. Peers that start from a head with a bias use this backbone.

    Parameters
    ----------
    backbone
        The backbone of the other features.
    """

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
        """One more than those of the backbone."""
        return self.backbone.features + 1

    def of(self, features: Features) -> Features:
        """Return the backbone's features [n, D] with a 1 at the end."""
        return np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1)


@dataclass(frozen=True, eq=False)
class RandomFeatures(Derived):
    """max(0, A phi(x)) with a random A, entries N(0, 1 / D): the arc-cosine kernel of order 1 (Cho and Saul 2009).

    A linear head on these features is a nonlinear one on phi(x): use it if classes have several modes, or without a
    trained backbone. All rules work with it, `evidence` included; heads and statements grow with `count`. Peers of a
    group use the same `count` and `seed`.

    Parameters
    ----------
    backbone
        The backbone phi.
    count
        Number of random features.
    seed
        Seed of A.
    """

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
        """The backbone's name, and the number of random features."""
        return f"{self.count} random features of {self.backbone.name}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the backbone's digest and of A."""
        drawn = hashlib.sha256(self.weights.astype("<f4").tobytes()).hexdigest()
        return hashlib.sha256(json.dumps(["random", self.backbone.digest, self.count, drawn]).encode()).hexdigest()

    @property
    def features(self) -> int:
        """Number of features of a sample."""
        return self.count

    def of(self, features: Features) -> Features:
        """Return random features [n, count] of the backbone's features [n, D]."""
        made: Features = np.maximum(features @ self.weights, np.float32(0))
        return made
