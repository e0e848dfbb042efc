"""Fused operations of large worlds on CUDA devices: one pass over memory each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from bristle._core import Array, namespace
from bristle.learning import TrainingSettings

# Largest number of models for which a weighted sum is unrolled; more would take long to compile.
MOST_MODELS = 64


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


class Fused:
    """The kernels for CUDA devices. Results equal those of the plain operations within rounding."""

    def __init__(self) -> None:
        from bristle.simulation.large import kernels  # noqa: PLC0415

        self._kernels = kernels

    def outputs(self, pool: Array, index: Array, table: Array, rows: Array, classes: int) -> Array:
        """Return <table[rows], pool[index]> [B, T, n, C]; `pool` [P, F], `index` [B, n], `rows` [B, T]."""
        (batch, heads), samples, features = index.shape, rows.shape[1], table.shape[1]
        out = table.new_empty((batch, samples, heads, classes), dtype=namespace(table).float32)
        narrow = table.element_size() == 2
        tile = min(128, _power(heads * classes))
        grid = (batch, -(-heads * classes // tile))
        self._kernels.outputs_kernel[grid](
            pool, index.contiguous(), table, rows.contiguous(), out, features, classes, heads, samples,
            SAMPLES=_power(samples), ROWS=tile, DEPTH=64 if narrow else 32, PRECISION="ieee" if narrow else "tf32x3",
            num_warps=4, num_stages=4,
        )  # fmt: skip
        return out

    def predictions(self, outputs: Array) -> Array:
        """Return the class with the largest of the `outputs` [B, T, n, C]: [B, n, T]."""
        batch, samples, heads, classes = outputs.shape
        out = outputs.new_empty((batch, heads, samples), dtype=namespace(outputs).int64)
        rows, block = batch * samples * heads, 128
        self._kernels.best_kernel[(-(-rows // block),)](
            outputs, out, rows, heads, samples, classes, ROWS=block, CLASSES=_power(classes, 1), num_warps=4
        )
        return out

    def combine(self, own: Array, pool: Array, index: Array, weights: Array, classes: int) -> Array:
        """Return the weighted sums [B, F] of own heads [B, F] and `pool[index]`; `weights` [B, n, C] or [B, n, 1]."""
        batch, models = index.shape
        features = own.shape[1] // classes
        if models > MOST_MODELS:
            raise ValueError(f"a weighted sum of {models} models is not fused: at most {MOST_MODELS} are")
        out = own.new_empty(own.shape)
        self._kernels.combine_kernel[(batch * classes,)](
            own, pool, index.contiguous(), weights.contiguous(), out, features, classes, weights.shape[2],
            MODELS=models, DEPTH=_power(features), num_warps=2,
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
        head: Array,
        new_head: Array,
        moments: Moments,
        batches: Batches,
        pace: tuple[Array, Array],
        settings: TrainingSettings,
        *,
        level: bool,
    ) -> None:
        """Train `head` [B, C, D] into `new_head`, which may be the same; with `level`, on rows about their means."""
        peers, classes, features = head.shape
        rates, epsilons = pace
        self._kernels.train_kernel[(peers,)](
            head, new_head, moments.first, moments.second, batches.table, batches.rows, batches.labels,
            batches.shares, batches.trained, rates, epsilons, settings.l2, settings.beta1, settings.beta2,
            features, classes, batches.rows.shape[1],
            CLASSES=_power(classes), SAMPLES=_power(batches.rows.shape[1], 1), DEPTH=_power(features), LEVEL=level,
            ROOT=moments.root, UNROLL=2, num_warps=4,
        )  # fmt: skip


def fused_for(array: Array) -> Fused | None:
    """Return the kernels for the device of a torch tensor; None if there are none."""
    return Fused() if array.device.type == "cuda" and find_spec("triton") is not None else None


def _power(number: int, least: int = 16) -> int:
    """Return the smallest power of two that is not below a number."""
    return max(least, 1 << (int(number) - 1).bit_length())
