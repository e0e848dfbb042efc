"""From a list of what strangers sent to arrays that a rule can work with."""

from __future__ import annotations

from collections.abc import Sequence

from bristle.arrays import Array, namespace, to_numpy
from bristle.arrays.namespace import from_numpy, is_array
from bristle.rules.decision import Reason


def stack(own: Array, heads: Sequence[object]) -> tuple[Array, Array, Array]:
    """Return `received` [M, C, D], `mask` [M] and `reasons` [M] for heads of any origin.

    A head that is missing (None), no array, of another shape or dtype than `own` [C, D], or not finite is left
    out of the mask, with its reason, and stands as zeros in `received`, so that no value of it survives.
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


def _judge(own: Array, head: object) -> tuple[Reason, Array]:
    if head is None:
        return Reason.ABSENT, None
    if not is_array(head):
        return Reason.WRONG_DTYPE, None
    values = to_numpy(head)
    if tuple(values.shape) != tuple(own.shape):
        return Reason.WRONG_SHAPE, None
    if values.dtype != to_numpy(own).dtype:
        return Reason.WRONG_DTYPE, None
    xp = namespace(own)
    converted = from_numpy(values, like=own)
    if not bool(xp.all(xp.isfinite(converted))):
        return Reason.NOT_FINITE, None
    return Reason.KEPT, converted
