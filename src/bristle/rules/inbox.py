"""Inboxes: the own head and usable models of receivers, and linear algebra on them.

An inbox has the same methods for models in an array, in a pool that many receivers share, and for mixtures of either.
Positions count the own head as 0 and the received models from 1; n = 1 + received.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bristle._core import Array, namespace, take_rows
from bristle._core.arrays import diagonals
from bristle._core.linear_algebra import distances_from, gram_about, mixtures_of
from bristle.learning.metrics import f1_scores, predict

# Numbers sorted at a time in one row of a block: many enough for little overhead, few enough for the cache.
SHORTEST_ROW, LONGEST_ROW = 1 << 13, 1 << 15
BLOCK = 1 << 20


@dataclass
class Inbox(ABC):
    """Receivers that hold the same number of models. `own` is [B, F] with F = classes * features."""

    own: Array
    classes: int

    @property
    def xp(self) -> Any:
        """The array namespace."""
        return namespace(self.own)

    @property
    @abstractmethod
    def received(self) -> int:
        """Number of models of each receiver, without its own."""

    @cached_property
    def gram(self) -> Array:
        """Inner products [B, n, n] of all heads, taken about a fixed point near the own heads."""
        return self._inner_products()

    @abstractmethod
    def _inner_products(self) -> Array: ...

    @abstractmethod
    def distances(self) -> Array:
        """Squared Euclidean distance [B, received] from the own head to each model."""

    @abstractmethod
    def project(self, direction: Array) -> Array:
        """Inner product [B, received] of each model's difference from the own head with `direction` [B, F]."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> list[Array]:
        """Coordinates start..stop-1 of each of the n heads [B, stop - start], to be read only."""

    @abstractmethod
    def combine(self, weights: Array) -> Array:
        """Weighted sum [B, F] of all heads; `weights` [B, n]."""

    @abstractmethod
    def pick(self, position: Array) -> Array:
        """Return one head for each receiver [B, F]; `position` [B]."""

    @abstractmethod
    def combine_rows(self, weights: Array) -> Array:
        """Weighted sum [B, F] of all heads, class by class; `weights` [B, n, C]."""

    @abstractmethod
    def logits(self, features: Array) -> Array:
        """Outputs [B, n, T, C] of all heads for `features` [B, T, D]."""

    def predictions(self, features: Array) -> Array:
        """Return the class that each head predicts [B, n, T] for `features` [B, T, D]."""
        return predict(self.logits(features))

    def f1_scores(self, features: Array, labels: Array) -> Array:
        """Return the F1 of each head in each class [B, n, C].

        `features` [B, T, D] and `labels` [B, T], -1 = padding, are the samples.
        """
        return f1_scores(self.predictions(features), labels[:, None, :], self.classes, self.own.dtype)

    @abstractmethod
    def take(self, index: Array) -> Inbox:
        """Return the inbox with only the received models at `index` [B, m] (0 = first received)."""

    def distinct(self) -> tuple[Inbox, Array] | None:
        """Return one receiver per distinct set of heads, own head included, and its position for each [B].

        For symmetric rules; None if no two receivers are known to hold the same heads.
        """
        return None

    def mixed(self, matrix: Array) -> Inbox:
        """Return the inbox whose heads are the mixtures `matrix` [B, n', n] of these; row 0 is the new own."""
        return MixedInbox(self.combine(matrix[:, 0, :]), self.classes, self, matrix)

    def mixtures(self, matrix: Array) -> Array:
        """Compute mixtures [B, n', F] of the heads; `matrix` [B, n', n]."""
        xp = self.xp
        parts = [matrix @ xp.stack(self.rows(*block), axis=1) for block in self.blocks()]
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-1)

    def mean(self) -> Array:
        """Mean [B, F] of all heads."""
        own, count = self.own, self.received + 1
        return self.combine(self.xp.full((own.shape[0], count), 1 / count, dtype=own.dtype, device=own.device))

    def stacks(self, start: int, stop: int) -> list[Array]:
        """Return `rows` in stacks [k, B, stop - start], with heads that are contiguous in one."""
        return [row[None, :, :] for row in self.rows(start, stop)]

    def squared_distances(self) -> Array:
        """Squared Euclidean distances [B, n, n] between all heads; never negative, zero on the diagonal."""
        xp, gram = self.xp, self.gram
        size = gram.shape[-1]
        if xp is np:
            return _numpy_squared_distances(gram)
        diagonal = xp.linalg.diagonal(gram)
        # Symmetric to the last bit.
        squared = diagonal[:, :, None] + diagonal[:, None, :] - (gram + xp.matrix_transpose(gram))
        off_diagonal = 1 - xp.eye(size, dtype=gram.dtype, device=gram.device)
        return xp.where(squared > 0, squared, xp.zeros_like(squared)) * off_diagonal

    def blocks(self) -> list[tuple[int, int]]:
        """Return the best ranges of coordinates for `rows` and `stacks`."""
        row = max(SHORTEST_ROW, min(BLOCK // (self.received + 1), LONGEST_ROW))
        width = max(1, row // max(1, self.own.shape[0]))
        return [(s, min(s + width, self.own.shape[1])) for s in range(0, self.own.shape[1], width)]

    def _rows(self, flat: Array) -> Array:
        """View heads [..., F] as [..., C, D]."""
        return self.xp.reshape(flat, (*flat.shape[:-1], self.classes, flat.shape[-1] // self.classes))


@dataclass
class ArrayInbox(Inbox):
    """Separate models for every receiver: `everyone` [B, M, F], or only those at `index` [B, received]."""

    everyone: Array
    known_distances: Array | None = None
    known_products: Array | None = None
    known_mean: Array | None = None
    clipped: Array | None = None
    """The own head and all clipped models [B, n, F], if the call requested them."""
    index: Array | None = None

    @cached_property
    def models(self) -> Array:
        """The models [B, received, F]; gathered on first access if they are only some of those received."""
        return self.everyone if self.index is None else take_rows(self.xp, self.everyone, self.index)

    @property
    def received(self) -> int:
        """Number of models of each receiver, without its own."""
        return int(self.everyone.shape[1] if self.index is None else self.index.shape[1])

    def _inner_products(self) -> Array:
        """Inner products about the own head: its row is zero, and near heads keep their digits."""
        xp, (batch, received, _) = self.xp, self.models.shape
        inner = self.known_products
        if inner is None:
            inner = gram_about(xp, self.models, self.own)
        if xp is np:
            products = np.zeros((batch, received + 1, received + 1), dtype=inner.dtype)
            products[:, 1:, 1:] = inner
            return products
        row = xp.zeros((batch, 1, received), dtype=inner.dtype, device=inner.device)
        column = xp.zeros((batch, received + 1, 1), dtype=inner.dtype, device=inner.device)
        return xp.concat([column, xp.concat([row, inner], axis=1)], axis=2)

    def distances(self) -> Array:
        """Squared distance from the own head to each model."""
        if self.known_distances is None:
            return distances_from(self.xp, self.models, self.own)
        return self.known_distances

    def project(self, direction: Array) -> Array:
        """Inner product of each model's difference from the own head with `direction`."""
        column = direction[:, :, None]
        return (self.models @ column)[:, :, 0] - (self.own[:, None, :] @ column)[:, :, 0]

    def rows(self, start: int, stop: int) -> list[Array]:
        """Some coordinates of each head, own head first."""
        return [self.own[:, start:stop], *(self.models[:, i, start:stop] for i in range(self.received))]

    def stacks(self, start: int, stop: int) -> list[Array]:
        """Return some coordinates of the own head, and of all others."""
        models = self.xp.permute_dims(self.models[:, :, start:stop], (1, 0, 2))
        return [self.own[None, :, start:stop], models] if self.received else [self.own[None, :, start:stop]]

    def combine(self, weights: Array) -> Array:
        """Weighted sum of all heads."""
        return self.own * weights[:, :1] + (weights[:, None, 1:] @ self.models)[:, 0, :]

    def mean(self) -> Array:
        """Mean of all heads."""
        return super().mean() if self.known_mean is None else self.known_mean

    def pick(self, position: Array) -> Array:
        """Return one head for each receiver."""
        xp = self.xp
        if xp is np:
            heads, others = self.own.copy(), np.flatnonzero(position)
            heads[others] = self.models[others, position[others] - 1]
            return heads
        among = xp.where(position > 0, position - 1, xp.zeros_like(position))
        chosen = take_rows(xp, self.models, among[:, None])[:, 0, :]
        return xp.where(position[:, None] > 0, chosen, self.own)

    def combine_rows(self, weights: Array) -> Array:
        """Weighted sum of all heads, class by class."""
        xp, (batch, _, width) = self.xp, self.models.shape
        own = self._rows(self.own) * weights[:, 0, :, None]
        # One small product per class: [B, C, 1, received] @ [B, C, received, D].
        by_class = xp.permute_dims(weights[:, 1:, :], (0, 2, 1))[:, :, None, :]
        models = xp.permute_dims(self._rows(self.models), (0, 2, 1, 3))
        return xp.reshape(own + (by_class @ models)[:, :, 0, :], (batch, width))

    def mixtures(self, matrix: Array) -> Array:
        """Compute mixtures of the heads."""
        return mixtures_of(self.xp, matrix, self.own, self.models)

    def logits(self, features: Array) -> Array:
        """Outputs of all heads: one product per receiver."""
        xp, (batch, received, width) = self.xp, self.models.shape
        own = features @ xp.matrix_transpose(self._rows(self.own))
        rows = xp.reshape(self.models, (batch, received * self.classes, width // self.classes))
        products = xp.reshape(features @ xp.matrix_transpose(rows), (batch, features.shape[1], received, self.classes))
        return xp.concat([own[:, None, :, :], xp.permute_dims(products, (0, 2, 1, 3))], axis=1)

    def take(self, index: Array) -> Inbox:
        """Return the inbox with some of the models."""
        among = index if self.index is None else take_rows(self.xp, self.index, index)
        return ArrayInbox(self.own, self.classes, self.everyone, index=among)


@dataclass
class MixedInbox(Inbox):
    """Mixtures `matrix` [B, n', n] of the heads of another inbox: the result of a step before a rule.

    Each row of the matrix sums to 1. Nothing is copied: all methods are linear and delegate to the other inbox.
    """

    base: Inbox
    matrix: Array

    @property
    def received(self) -> int:
        """How many mixtures each receiver holds besides the one that stands for its own head."""
        return int(self.matrix.shape[1]) - 1

    def _inner_products(self) -> Array:
        """A G A^T."""
        return self.matrix @ self.base.gram @ self.xp.matrix_transpose(self.matrix)

    def distances(self) -> Array:
        """Squared distance from the own mixture to each other."""
        return self.squared_distances()[:, 0, 1:]

    def project(self, direction: Array) -> Array:
        """Inner product of each mixture's difference from the own one with `direction`."""
        xp = self.xp
        base = self.base.project(direction)
        own = xp.zeros((base.shape[0], 1), dtype=base.dtype, device=base.device)
        mixed = (self.matrix @ xp.concat([own, base], axis=1)[:, :, None])[:, :, 0]
        return mixed[:, 1:] - mixed[:, :1]

    def rows(self, start: int, stop: int) -> list[Array]:
        """Mixtures of some coordinates, own one first."""
        mixed = self.matrix @ self.xp.stack(self.base.rows(start, stop), axis=1)
        return [mixed[:, i, :] for i in range(self.received + 1)]

    def combine(self, weights: Array) -> Array:
        """Weighted sum of the mixtures."""
        return self.base.combine((weights[:, None, :] @ self.matrix)[:, 0, :])

    def pick(self, position: Array) -> Array:
        """Return one mixture for each receiver."""
        return self.base.combine(take_rows(self.xp, self.matrix, position[:, None])[:, 0, :])

    def combine_rows(self, weights: Array) -> Array:
        """Weighted sum of the mixtures, class by class."""
        return self.base.combine_rows(self.xp.matrix_transpose(self.matrix) @ weights)

    def logits(self, features: Array) -> Array:
        """Outputs of the mixtures: mixtures of the outputs."""
        xp = self.xp
        base = self.base.logits(features)
        flat = xp.reshape(base, (base.shape[0], base.shape[1], -1))
        return xp.reshape(self.matrix @ flat, (flat.shape[0], self.matrix.shape[1], *base.shape[2:]))

    def take(self, index: Array) -> Inbox:
        """Return the inbox with some of the mixtures."""
        rows = take_rows(self.xp, self.matrix[:, 1:, :], index)
        matrix = self.xp.concat([self.matrix[:, :1, :], rows], axis=1)
        return MixedInbox(self.own, self.classes, self.base, matrix)


def _numpy_squared_distances(gram: Array) -> Array:
    """Squared distances in NumPy, with fewer calls, which take most of the time for few heads."""
    diagonal = diagonals(np, gram)
    squared = diagonal[:, :, None] + diagonal[:, None, :]
    squared -= gram + gram.swapaxes(1, 2)
    squared[~(squared > 0)] = 0
    each = np.arange(gram.shape[-1])
    squared[:, each, each] = 0
    return squared
