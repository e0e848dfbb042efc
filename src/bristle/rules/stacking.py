"""From a list of what strangers sent to arrays that a rule can work with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bristle._core import Array, namespace, to_numpy
from bristle._core.arrays import from_numpy, is_array
from bristle.rules.checks import fits
from bristle.rules.decision import Reason


def stack(own: Array, heads: Sequence[object]) -> tuple[Array, Array, Array]:
    """Return `received` [M, C, D], `mask` [M] and `reasons` [M] for heads of any origin.

    `rule(own, received, mask=mask).with_refusals(reasons)` decides and remembers why some were left out.

    A head that is missing (None), no array, of another shape or dtype than `own` [C, D], not finite or too large is
    left out of the mask, with its reason, and stands as zeros in `received`, so that no value of it survives.
    """
    if not is_array(own) or own.ndim != 2:
        raise ValueError("own must be one head, an array [classes, features]")
    xp = namespace(own)
    found = [_judge(own, head) for head in heads]
    zero = xp.zeros_like(own)
    rows = [head if reason is Reason.KEPT else zero for reason, head in found]
    received = xp.stack(rows) if rows else xp.zeros((0, *own.shape), dtype=own.dtype, device=own.device)
    codes = [int(reason) for reason, _ in found]
    reasons = xp.asarray(codes, dtype=xp.int8, device=own.device)
    return received, reasons == int(Reason.KEPT), reasons


def _judge(own: Array, head: Any) -> tuple[Reason, Array]:
    if head is None:
        return Reason.ABSENT, None
    if not is_array(head):
        return Reason.WRONG_DTYPE, None
    if tuple(head.shape) != tuple(own.shape):
        return Reason.WRONG_SHAPE, None
    try:
        # Through NumPy, whatever it is: sparse, quantised and storage-less tensors end here.
        values = from_numpy(to_numpy(head), like=own)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return Reason.WRONG_DTYPE, None
    if values.dtype != own.dtype:
        return Reason.WRONG_DTYPE, None
    xp = namespace(own)
    if not bool(xp.all(xp.isfinite(values))):
        return Reason.NOT_FINITE, None
    if not fits(xp.reshape(values, (own.shape[0] * own.shape[1],))):
        return Reason.TOO_LARGE, None
    return Reason.KEPT, values
