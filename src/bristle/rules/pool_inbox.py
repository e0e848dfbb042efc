"""The inbox of receivers that share a pool of heads; shared results are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bristle._core import Array, namespace, squared_norms, take_rows, to_numpy
from bristle._core.arrays import from_numpy
from bristle.learning.metrics import predict
from bristle.rules.checks import centre_of
from bristle.rules.inbox import ArrayInbox, Inbox

# Largest squared distance of an own head from the centre, relative to typical distances: 32 bits leave three digits.
PRECISE = 2000
# Products over the whole pool are faster than copies while it has at most so many times the heads of a receiver.
SPARSE = 8
# Numbers of a head that are compared first.
LOOKED_AT = 8


@dataclass
class SharedHeads:
    """The heads [P, F] of a pool, its receivers' own heads [B, F], and results that all receivers share."""

    heads: Array
    own: Array

    @cached_property
    def centre(self) -> Array:
        """The point about which inner products are taken."""
        return centre_of(namespace(self.heads), self.own)

    @cached_property
    def centred(self) -> Array:
        """The heads about the centre."""
        return self.heads - self.centre

    @cached_property
    def gram(self) -> Array:
        """Inner products of all heads about the centre: one matrix [P, P] for every receiver."""
        return self.centred @ namespace(self.heads).matrix_transpose(self.centred)


@dataclass
class PoolInbox(Inbox):
    """Models that receivers share: `shared.heads` [P, F] and for each receiver `index` [B, received].

    Its products run over the whole pool, so it is for receivers that hear a large part of it. For sparse neighbourhoods
    `gathered` returns the equivalent `ArrayInbox`.
    """

    shared: SharedHeads
    index: Array

    @cached_property
    def _exact(self) -> ArrayInbox | None:
        """The gathered models, if products lose precision: for own heads far from the centre, but near others."""
        if not self.received:
            return None
        xp = self.xp
        typical = xp.sort(self._distances, axis=-1)[:, self.received // 2]
        return None if bool(xp.all(self._own_products[1] <= PRECISE * typical)) else self.gathered()

    def gathered(self) -> ArrayInbox:
        """Return the equivalent inbox with a copy of the models for each receiver."""
        xp, (batch, received) = self.xp, self.index.shape
        models = xp.take(self.shared.heads, xp.reshape(self.index, (-1,)), axis=0)
        return ArrayInbox(self.own, self.classes, xp.reshape(models, (batch, received, self.own.shape[1])))

    @property
    def received(self) -> int:
        """Number of models of each receiver, without its own."""
        return int(self.index.shape[1])

    @cached_property
    def _own_products(self) -> tuple[Array, Array]:
        """Inner products about the centre: own with every head of the pool [B, P], and own with own [B]."""
        own = self.own - self.shared.centre
        return own @ self.xp.matrix_transpose(self.shared.centred), squared_norms(self.xp, own)

    def _inner_products(self) -> Array:
        """Inner products gathered from the pool's one matrix."""
        if self._exact is not None:
            return self._exact.gram
        xp, (batch, received) = self.xp, self.index.shape
        products, own = self._own_products
        size = self.shared.heads.shape[0]
        pairs = xp.reshape(self.index[:, :, None] * size + self.index[:, None, :], (-1,))
        inner = xp.take(xp.reshape(self.shared.gram, (-1,)), pairs, axis=0)
        inner = xp.reshape(inner, (batch, received, received))
        cross = take_rows(xp, products, self.index)
        top = xp.concat([own[:, None], cross], axis=1)[:, None, :]
        return xp.concat([top, xp.concat([cross[:, :, None], inner], axis=2)], axis=1)

    def distances(self) -> Array:
        """Squared distance from the own head to each model."""
        return self._distances if self._exact is None else self._exact.distances()

    @cached_property
    def _distances(self) -> Array:
        xp = self.xp
        products, own = self._own_products
        norms = squared_norms(xp, self.shared.centred)
        squared = own[:, None] + norms[None, :] - 2 * products
        squared = xp.where(squared > 0, squared, xp.zeros_like(squared))
        return take_rows(xp, squared, self.index)

    def project(self, direction: Array) -> Array:
        """Inner product of each model's difference from the own head with `direction`."""
        if self._exact is not None:
            return self._exact.project(direction)
        products = direction @ self.xp.matrix_transpose(self.shared.centred)
        own = (self.own - self.shared.centre)[:, None, :] @ direction[:, :, None]
        return take_rows(self.xp, products, self.index) - own[:, :, 0]

    def rows(self, start: int, stop: int) -> list[Array]:
        """Some coordinates of each head, own head first."""
        xp, (batch, received) = self.xp, self.index.shape
        index = xp.reshape(xp.matrix_transpose(self.index), (-1,))
        models = xp.take(self.shared.heads[:, start:stop], index, axis=0)
        models = xp.reshape(models, (received, batch, stop - start))
        return [self.own[:, start:stop], *(models[i, ...] for i in range(received))]

    def combine(self, weights: Array) -> Array:
        """Weighted sum of all heads: one product over the pool."""
        mixed = self._over_pool(weights[:, 1:]) @ self.shared.heads
        mixed += self.own * weights[:, :1]  # in place: allocation costs as much as the sum
        return mixed

    def pick(self, position: Array) -> Array:
        """Return one head for each receiver."""
        xp = self.xp
        among = xp.where(position > 0, position - 1, xp.zeros_like(position))
        heads = xp.take(self.shared.heads, take_rows(xp, self.index, among[:, None])[:, 0], axis=0)
        return xp.where(position[:, None] > 0, heads, self.own)

    def combine_rows(self, weights: Array) -> Array:
        """Weighted sum of all heads, class by class: one product per class over the pool."""
        xp = self.xp
        dense = xp.permute_dims(self._over_pool(weights[:, 1:, :]), (2, 0, 1))
        heads = xp.permute_dims(self._rows(self.shared.heads), (1, 0, 2))
        models = xp.permute_dims(dense @ heads, (1, 0, 2))
        own = self._rows(self.own) * weights[:, 0, :, None]
        return xp.reshape(own + models, self.own.shape)

    def mixtures(self, matrix: Array) -> Array:
        """Compute mixtures: one product over the pool and all own heads."""
        xp, (batch, count, _) = self.xp, matrix.shape
        models = xp.matrix_transpose(self._over_pool(xp.matrix_transpose(matrix[:, :, 1:])))
        diagonal = xp.eye(batch, dtype=matrix.dtype, device=matrix.device)
        own = matrix[:, :, :1] * diagonal[:, None, :]
        weights = xp.reshape(xp.concat([models, own], axis=2), (batch * count, -1))
        mixed = weights @ xp.concat([self.shared.heads, self.own], axis=0)
        return xp.reshape(mixed, (batch, count, self.own.shape[1]))

    def logits(self, features: Array) -> Array:
        """Outputs of all heads: one product of all samples with the whole pool, then gathered."""
        if not self._dense:
            return self.gathered().logits(features)
        xp = self.xp
        own, pool = self._outputs(features)
        outputs = xp.permute_dims(pool, (0, 2, 1, 3))
        return xp.concat([own[:, None, :, :], take_rows(xp, outputs, self.index)], axis=1)

    def predictions(self, features: Array) -> Array:
        """Predictions of all heads: gathered, unlike outputs, which are C times larger."""
        if not self._dense:
            return self.gathered().predictions(features)
        xp = self.xp
        own, pool = self._outputs(features)
        predicted = xp.permute_dims(predict(pool), (0, 2, 1))
        return xp.concat([predict(own)[:, None, :], take_rows(xp, predicted, self.index)], axis=1)

    @property
    def _dense(self) -> bool:
        """Whether receivers hear so much of the pool that a product over all of it wastes little."""
        return bool(self.shared.heads.shape[0] <= 2 * (self.received + 1))

    def _outputs(self, features: Array) -> tuple[Array, Array]:
        """Return the outputs of the own head [B, T, C] and of the whole pool [B, T, P, C]."""
        xp, (batch, samples, depth) = self.xp, features.shape
        own = features @ xp.matrix_transpose(self._rows(self.own))
        rows = xp.reshape(self.shared.heads, (-1, depth))
        flat = xp.reshape(features, (batch * samples, depth)) @ xp.matrix_transpose(rows)
        return own, xp.reshape(flat, (batch, samples, -1, self.classes))

    @cached_property
    def held(self) -> Array | None:
        """Positions in the pool [B, n] of all heads of a receiver, its own first; None if an own head is not there."""
        xp = self.xp
        few = min(LOOKED_AT, int(self.own.shape[1]))
        alike = xp.all(self.own[:, None, :few] == self.shared.heads[None, :, :few], axis=-1)
        found = xp.argmax(xp.astype(alike, xp.int8), axis=-1)
        if not bool(xp.all(self.own == xp.take(self.shared.heads, found, axis=0))):
            return None
        return xp.concat([found[:, None], self.index], axis=1)

    def distinct(self) -> tuple[PoolInbox, Array] | None:
        """Compare receivers by positions in the pool, if it contains all their own heads."""
        xp, batch = self.xp, int(self.own.shape[0])
        if batch < 2 or self.held is None:
            return None
        ordered = to_numpy(xp.sort(self.held, axis=1))
        _, first, which = np.unique(ordered, axis=0, return_index=True, return_inverse=True)
        if len(first) == batch:
            return None
        chosen = from_numpy(first, like=self.index)
        own, index = xp.take(self.own, chosen, axis=0), xp.take(self.index, chosen, axis=0)
        some = PoolInbox(own, self.classes, self.shared, index)
        return some, from_numpy(which.reshape(-1), like=self.index)

    def take(self, index: Array) -> Inbox:
        """Return the inbox with some of the models."""
        return PoolInbox(self.own, self.classes, self.shared, take_rows(self.xp, self.index, index))

    def _over_pool(self, weights: Array) -> Array:
        """Scatter weights [B, received, ...] to the pool [B, P, ...]; a head received twice gets the sum."""
        xp = self.xp
        size = self.shared.heads.shape[0]
        if xp is np and weights.ndim == 2:
            batch = len(weights)
            cells = (self.index + np.arange(0, batch * size, size)[:, None]).ravel()
            return np.bincount(cells, weights.ravel(), batch * size).reshape(batch, size).astype(weights.dtype)
        everyone = xp.arange(size, dtype=self.index.dtype, device=self.index.device)
        heard = xp.astype(self.index[:, :, None] == everyone, weights.dtype)
        if weights.ndim == 2:
            return (weights[:, None, :] @ heard)[:, 0, :]
        return xp.matrix_transpose(heard) @ weights
