"""Fused operations of large worlds on CUDA devices: one pass over memory each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from bristle._core import Array, namespace
from bristle.learning import TrainingSettings

# Largest number of models for which a weighted sum is unrolled; more would take long to compile.
MOST_MODELS = 64
# Largest number of classes for which F1 is fused: the outputs of a head must fit the rows of one product.
MOST_CLASSES = 128


@dataclass(frozen=True)
class Batches:
    """Mini-batches of B peers, as rows of a table.

    Parameters
    ----------
    table : array [N, D]
        The samples.
    rows, labels : integer array [B, b]
        Rows of each peer's mini-batch, and their classes.
    shares : array [B, b]
        Weight of each sample in the mean loss; 0 for padding.
    trained : boolean array [B, C]
        The rows of the head that are trained.
    """

    table: Array
    rows: Array
    labels: Array
    shares: Array
    trained: Array


@dataclass(frozen=True)
class Moments:
    """Adam's moments [B, C, D], changed in place; with `root`, the second one is stored as its root."""

    first: Array
    second: Array
    root: bool


@dataclass(frozen=True)
class WeightedSum:
    """Weighted sums of own heads [B, F] and `pool[index]`, computed where they are used.

    Parameters
    ----------
    own : array [B, F]
        Own heads.
    pool : array [P, F]
        All heads as shared.
    index : integer array [B, n]
        Positions of each receiver's models in the pool.
    weights : array [B, 1 + n, C] or [B, 1 + n, 1]
        Weights of the own head and of the models, class by class or of whole heads.
    """

    own: Array
    pool: Array
    index: Array
    weights: Array


class Fused:
    """The kernels for CUDA devices. Results equal those of the plain operations within rounding."""

    def __init__(self) -> None:
        from bristle.simulation.large import kernels  # noqa: PLC0415

        self._kernels = kernels

    def outputs(self, pool: Array, index: Array, table: Array, rows: Array, classes: int) -> Array:
        """Return <table[rows], pool[index]> [B, T, n, C]; `pool` [P, F], `index` [B, n], `rows` [B, T]."""
        (batch, heads), samples, features = index.shape, rows.shape[1], table.shape[1]
        out = table.new_empty((batch, samples, heads, classes), dtype=namespace(table).float32)
        tile = min(128, _power(heads * classes))
        grid = (batch, -(-heads * classes // tile))
        self._kernels.outputs_kernel[grid](
            pool, index.contiguous(), table, rows.contiguous(), out, features, classes, heads, samples,
            SAMPLES=_power(samples), ROWS=tile, **_product(table), num_warps=4, num_stages=4,
        )  # fmt: skip
        return out

    def f1_scores(self, pool: Array, index: Array, table: Array, rows: Array, labels: Array, classes: int) -> Array:
        """Return F1 [B, n, C] of the heads `pool[index]` on the samples `table[rows]`; `labels` [B, T], -1 = padding.

        At most `MOST_CLASSES` classes.
        """
        (batch, heads), samples, features = index.shape, rows.shape[1], table.shape[1]
        out = table.new_empty((batch, heads, classes), dtype=namespace(table).float32)
        together = min(heads, MOST_CLASSES // classes)
        self._kernels.f1_kernel[(batch, -(-heads // together))](
            pool, index.contiguous(), table, rows.contiguous(), labels.contiguous(), out,
            features, classes, heads, samples, HEADS=together, ROWS=_power(together * classes),
            SPACES=_power(together, 1), CLASSES=_power(classes, 2), SAMPLES=min(64, _power(samples)),
            **_product(table), num_warps=8, num_stages=3,
        )  # fmt: skip
        return out

    def combine(self, asked: WeightedSum, classes: int) -> Array:
        """Return weighted sums [B, F]."""
        own, (batch, models) = asked.own, asked.index.shape
        features = own.shape[1] // classes
        if models > MOST_MODELS:
            raise ValueError(f"a weighted sum of {models} models is not fused: at most {MOST_MODELS} are")
        out = own.new_empty(own.shape)
        self._kernels.combine_kernel[(batch * classes,)](
            own, asked.pool, asked.index.contiguous(), asked.weights.contiguous(), out,
            features, classes, asked.weights.shape[2], MODELS=models, DEPTH=_power(features), num_warps=2,
        )  # fmt: skip
        return out

    def batches(self, draws: Array, labels: Array, index: Array, size: int) -> tuple[Array, Array, Array]:
        """Pick mini-batches of the samples with the smallest `draws` [B, S]: labels, rows and shares [B, size]."""
        peers, samples = labels.shape
        batch_labels, batch_rows = labels.new_full((peers, size), -1), index.new_zeros((peers, size))
        shares = draws.new_zeros((peers, size))
        width = _power(samples, 1)
        block = max(1, min(64, 8192 // width**2))
        self._kernels.batch_kernel[(-(-peers // block),)](
            draws, labels, index, batch_labels, batch_rows, shares, peers, samples, size,
            PEERS=block, SAMPLES=width, num_warps=4,
        )  # fmt: skip
        return batch_labels, batch_rows, shares

    def train(
        self,
        head: Array | WeightedSum,
        new_head: Array,
        moments: Moments,
        batches: Batches,
        pace: tuple[Array, Array],
        settings: TrainingSettings,
        *,
        level: bool,
    ) -> None:
        """Train heads [B, C, D] into `new_head`, where own heads may lie; with `level`, on rows about their means."""
        peers, classes, features = new_head.shape
        samples, mixes = batches.rows.shape[1], isinstance(head, WeightedSum)
        # Where nothing is mixed, what stands for a pool, positions and weights is never read.
        mixed = head if isinstance(head, WeightedSum) else WeightedSum(head, head, batches.rows, new_head)
        # A head that is trained where it lies needs no copy before.
        keeps = mixes or level or mixed.own.data_ptr() != new_head.data_ptr()
        rates, epsilons = pace
        self._kernels.train_kernel[(peers,)](
            mixed.own, mixed.pool, mixed.index.contiguous(), mixed.weights.contiguous(), new_head,
            moments.first, moments.second, batches.table, batches.rows, batches.labels, batches.shares, batches.trained,
            rates, epsilons, settings.l2, settings.beta1, settings.beta2,
            features, classes, samples, mixed.weights.shape[2], MODELS=mixed.index.shape[1],
            CLASSES=_power(classes), SAMPLES=_power(samples, 1), DEPTH=_power(features), MIX=mixes, LEVEL=level,
            KEEP=keeps, ROOT=moments.root, UNROLL=1 if mixes else 2, num_warps=4,
        )  # fmt: skip


def fused_for(array: Array) -> Fused | None:
    """Return the kernels for the device of a torch tensor; None if there are none."""
    return Fused() if array.device.type == "cuda" and find_spec("triton") is not None else None


def _product(table: Array) -> dict[str, Any]:
    """Return how products with a table are taken: in 16 bits as they are, in 32 with three of 19 bits each."""
    narrow = table.element_size() == 2
    return {"DEPTH": 64 if narrow else 32, "PRECISION": "ieee" if narrow else "tf32x3"}


def _power(number: int, least: int = 16) -> int:
    """Return the smallest power of two that is not below a number."""
    return max(least, 1 << (int(number) - 1).bit_length())
