"""Looking at some models only, where many more were received than a rule will use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bristle._core import Array, argsort, spread, take_rows
from bristle._core.linear_algebra import Pull
from bristle.rules.checks import Measure, Measurements, measure_models, refusals_of
from bristle.rules.decision import Reason

# Fewer values are sorted as a whole.
SORTED = 256


@dataclass(frozen=True)
class Draw:
    """Randomness for a call, one uniform a model: a generator or uniforms; and how many models it looks at (all)."""

    rng: Any
    max_candidates: int | None = None


def examine(
    xp: Any,
    models: Array,
    own: Array | None,
    index: Array | None,
    mask: Array | None,
    draws: Array | None,
    most: int | None,
    measure: Measure,
    pull: Pull | None,
) -> tuple[Measurements, Array | None, Array | None]:
    """Measure models [B, M, F], or those of a pool [P, F]; return which are usable [B, M] and why others are not.

    With `most`, models are looked at in the order of their draws until so many that are fit for use have been
    found. As a rule these are the first ones, and no other is read.
    """
    count = models.shape[1] if index is None else index.shape[1]
    if draws is None or most is None or most >= count:
        measured = measure_models(xp, models, own, measure, pull=pull)
        return measured, *refusals_of(xp, mask, models, measured.fit, index)
    wanted = draws if mask is None else xp.where(mask, draws, xp.full_like(draws, 2))
    order = _smallest(xp, wanted, most)
    if own is not None:
        some = measure_models(xp, models, own, Measure.DISTANCES, picked=order[:, :most])
        if some.fit is None:
            looked = spread(xp, xp.ones_like(order[:, :most], dtype=xp.bool), order, False)
            usable = looked if mask is None else looked & mask
            distances = spread(xp, some.distances, order, 0)
            return Measurements(distances=distances), usable, _unseen(xp, looked, None, mask)
    order = argsort(xp, wanted)
    measured = measure_models(xp, models, own, measure)
    usable, refusals = refusals_of(xp, mask, models, measured.fit, index)
    if usable is None:
        usable = xp.ones(order.shape, dtype=xp.bool, device=order.device)
    found = xp.cumulative_sum(xp.astype(take_rows(xp, usable, order), xp.int64), axis=1)
    # Those before which `most` have been found are not looked at, fit or not.
    earlier = xp.concat([xp.zeros_like(found[:, :1]), found[:, :-1]], axis=1)
    looked = spread(xp, earlier < most, order, False)
    return measured, usable & looked, _unseen(xp, looked, refusals, mask)


def _smallest(xp: Any, values: Array, count: int) -> Array:
    """Return the stable ascending order of values [B, n]; only the first `count` places are sure to be right."""
    if xp is not np or values.shape[1] < SORTED:
        return argsort(xp, values)
    order = np.argpartition(values, count - 1, axis=-1)
    first = np.sort(order[:, :count], axis=-1)
    found = np.take_along_axis(values, first, axis=-1)
    if np.any(np.count_nonzero(values <= np.max(found, axis=-1, keepdims=True), axis=-1) > count):
        return argsort(xp, values)  # Others are equal to the last one: the first of them in place should go.
    order[:, :count] = np.take_along_axis(first, argsort(xp, found), axis=-1)
    return order


def _unseen(xp: Any, looked: Array, refusals: Array | None, mask: Array | None) -> Array:
    """Give a reason to the models [B, M] that are not looked at, and leave the other refusals as they are."""
    unseen = xp.full_like(looked, int(Reason.NOT_SAMPLED), dtype=xp.int8)
    reasons = unseen if refusals is None else xp.where(looked, refusals, unseen)
    return reasons if mask is None else xp.where(mask, reasons, xp.full_like(unseen, int(Reason.ABSENT)))
