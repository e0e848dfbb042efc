"""A fast path for calls with few ordinary models, for one receiver or for several that share a pool.

The checks and bookkeeping of `Call` cost more than averaging ten heads of 8,000 numbers. A call without mask and state
skips them. The mathematics is the same code, with the same results to the bit. Everything unusual, errors
included, is left to `Call`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from bristle._core import Array, Pool, block_bytes
from bristle._core.linear_algebra import Pull
from bristle.rules.call import Task
from bristle.rules.checks import PROBED, Measure, fits, measure_models
from bristle.rules.inbox import ArrayInbox, Inbox
from bristle.rules.pool_inbox import SPARSE, PoolInbox, SharedHeads

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
NOTHING = Task(evaluation=None, claims=None, previous=None, senders=None, draws=None, iteration=1, total=1)


class ShortCall(NamedTuple):
    """Receivers and their models, all fit for use; `torch` is the library of the call if that is torch."""

    inbox: Inbox
    torch: Any

    def restore(self, values: Array, shape: tuple[int, ...]) -> Array:
        """Return a result for the receivers [B, ...] in the shape and the library of the call."""
        values = values.reshape(shape)
        if self.torch is None:
            return values
        return self.torch.from_numpy(values if values.flags.writeable else values.copy())


def short_call(own: Array, received: Array, measure: Measure, pull: Pull | None = None) -> ShortCall | None:
    """Return a short call for NumPy arrays or torch tensors on the CPU; None if anything is unusual."""
    torch = None
    if type(own) is not np.ndarray:
        torch = sys.modules.get("torch")
        if torch is None or type(own) is not torch.Tensor or type(received) is not torch.Tensor:
            return None
        if not (_is_plain(own, torch) and _is_plain(received, torch)):
            return None
        own, received = own.numpy(), received.numpy()
    elif type(received) is not np.ndarray:
        return None
    if own.ndim != 2 or received.ndim != 3 or received.shape[1:] != own.shape or not 0 < received.size < PROBED:
        return None
    if own.dtype not in FLOATS or received.dtype != own.dtype:
        return None
    flat, models = own.reshape(1, -1), received.reshape(1, len(received), -1)
    if not fits(flat):
        return None
    measured = measure_models(np, models, flat, measure, pull=pull)
    if measured.fit is not None:
        return None
    inbox = ArrayInbox(flat, len(own), models, measured.distances, measured.products, measured.mean, measured.clipped)
    return ShortCall(inbox, torch)


def short_pool_call(own: Array, pool: Pool) -> ShortCall | None:
    """Return a short call for receivers that hear a large part of a pool of NumPy arrays; None if not so."""
    heads, index = pool.heads, pool.index
    if not type(own) is type(heads) is type(index) is np.ndarray:
        return None
    if own.ndim != 3 or heads.ndim != 3 or own.shape[1:] != heads.shape[1:] or not 0 < heads.size < PROBED:
        return None
    if own.dtype not in FLOATS or heads.dtype != own.dtype or index.dtype != np.int64:
        return None
    if index.ndim != 2 or len(index) != len(own) or not index.size:
        return None
    models = index.shape[1]
    at_once = len(own) * (models + 1) * max(own[0].size, models + 1) * own.itemsize
    if len(heads) > SPARSE * (models + 1) or at_once > block_bytes(own):
        return None
    if np.minimum.reduce(index, axis=None) < 0 or np.maximum.reduce(index, axis=None) >= len(heads):
        return None
    flat_own, flat = own.reshape(len(own), -1), heads.reshape(len(heads), -1)
    if not fits(flat_own) or measure_models(np, flat, None, Measure.NORMS).fit is not None:
        return None
    return ShortCall(PoolInbox(flat_own, own.shape[1], SharedHeads(flat, flat_own), index), None)


def _is_plain(tensor: Any, torch: Any) -> bool:
    """Return whether NumPy can share the tensor's memory, and the tensor needs no gradient."""
    return (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and tensor.dtype in (torch.float32, torch.float64)
        and not tensor.is_neg()
    )
