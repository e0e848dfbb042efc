"""The inbox of receivers that each hear few of very many heads: positions in a pool, gathered as late as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from bristle._core import Array, namespace, take_rows
from bristle._core.short_rows import has_kernels, order_on_device
from bristle.rules.inbox import ArrayInbox, Inbox
from bristle.simulation.large.fused import MOST_CLASSES, Fused, WeightedSum


@dataclass(frozen=True)
class TableRows:
    """Samples [B, T, D] given as rows [B, T] of a table [N, D]."""

    table: Array
    rows: Array

    def gathered(self, dtype: Any) -> Array:
        """Return a copy of the samples."""
        return self.table[self.rows].to(dtype)

    def __matmul__(self, other: Array) -> Array:
        return self.gathered(other.dtype) @ other


def _of_copies(name: str) -> Any:
    """Return a method that delegates to the inbox with the models copied out."""
    return lambda inbox, *asked: getattr(inbox.gathered, name)(*asked)


@dataclass
class SparseInbox(Inbox):
    """An inbox of receivers of one pool, of torch tensors.

    The questions of Bristle and FedAvg are answered from the pool itself if there are fused kernels for the device; for
    others the models are copied out.

    Parameters
    ----------
    pool : array [P, F]
        All heads as shared, perhaps in a narrow type.
    index : integer array [B, received]
        Positions of each receiver's models in the pool.
    who : integer array [B]
        Position of the receiver's own head in the pool; it is tested in the same precision as the models.
    fused : Fused, optional
        Kernels for the device.
    defers : bool
        Whether weighted sums are returned as `WeightedSum`, for training to compute them as it reads them.
    """

    pool: Array
    index: Array
    who: Array
    fused: Fused | None = None
    defers: bool = False

    @property
    def xp(self) -> Any:
        """The array namespace."""
        return _prompt(namespace(self.own))

    @property
    def received(self) -> int:
        """Number of models of each receiver, without its own."""
        return int(self.index.shape[1])

    @cached_property
    def gathered(self) -> ArrayInbox:
        """The same inbox with the models copied out."""
        return ArrayInbox(self.own, self.classes, self.pool[self.index].to(self.own.dtype))

    # Rare questions go to the copies.
    _inner_products = _of_copies("_inner_products")
    distances = _of_copies("distances")
    project = _of_copies("project")
    rows = _of_copies("rows")
    stacks = _of_copies("stacks")
    pick = _of_copies("pick")

    def combine(self, weights: Array) -> Any:
        """Return the weighted sum of all heads."""
        return self.gathered.combine(weights) if self.fused is None else self._sum(self.fused, weights[:, :, None])

    def combine_rows(self, weights: Array) -> Any:
        """Return the weighted sum of all heads, class by class."""
        return self.gathered.combine_rows(weights) if self.fused is None else self._sum(self.fused, weights)

    def _sum(self, fused: Fused, weights: Array) -> Any:
        asked = WeightedSum(self.own, self.pool, self.index, weights)
        return asked if self.defers else fused.combine(asked, self.classes)

    def logits(self, features: Any) -> Array:
        """Return the outputs of all heads for samples that are rows of a table."""
        return self.own_logits(features).permute(0, 2, 1, 3)

    def f1_scores(self, features: Any, labels: Array) -> Array:
        """Return the F1 of each head in each class, for samples that are rows of a table."""
        if self.fused is None or self.classes > MOST_CLASSES:
            return super().f1_scores(features, labels)
        table, rows = features.table, features.rows
        return self.fused.f1_scores(self.pool, self._everyone, table, rows, labels, self.classes)

    @property
    def _everyone(self) -> Array:
        """Positions of all heads in the pool [B, n], own head first."""
        return namespace(self.index).concat([self.who[:, None], self.index], axis=1)

    def own_logits(self, features: TableRows) -> Array:
        """Return the outputs of all heads [B, T, n, C], own head first."""
        if self.fused is not None:
            return self.fused.outputs(self.pool, self._everyone, features.table, features.rows, self.classes)
        shared = ArrayInbox(self.pool[self.who].to(self.own.dtype), self.classes, self.gathered.models)
        return shared.logits(features.gathered(self.own.dtype)).permute(0, 2, 1, 3)

    def take(self, index: Array) -> Inbox:
        """Return the inbox with some of the models."""
        return replace(self, index=take_rows(namespace(self.index), self.index, index))


# Rows of up to so many values are put in order by comparing each with each, which a device does sooner than it sorts.
COMPARED = 32
_NAMESPACES: dict[str, Any] = {}


def _prompt(xp: Any) -> Any:
    """Return a namespace that does two things otherwise than torch's own, because a device would wait for them.

    An array of one number is filled, not copied from the processor's memory: that would wait for all that the device
    has been given to do, and a graph of work cannot be captured over it. And short rows are put in order by a kernel.
    """
    if xp.__name__ not in _NAMESPACES:
        filled, ordered = xp.asarray, xp.argsort

        def asarray(values: Any, **options: Any) -> Array:
            return xp.full((), values, **options) if isinstance(values, int | float) else filled(values, **options)

        def argsort(values: Array, *, axis: int = -1, **options: Any) -> Array:
            short = axis == -1 and values.shape[-1] <= COMPARED and options == {"stable": True}
            return order_on_device(values) if short and has_kernels(values) else ordered(values, axis=axis, **options)

        _NAMESPACES[xp.__name__] = SimpleNamespace(**{**vars(xp), "asarray": asarray, "argsort": argsort})
    return _NAMESPACES[xp.__name__]
