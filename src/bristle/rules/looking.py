"""Looking at some models only, where many more were received than a rule will use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle.arrays import Array, argsort, spread, take_rows
from bristle.rules.checks import Measure, Measured, measure_models, refusals_of
from bristle.rules.decision import Reason


@dataclass(frozen=True)
class Draw:
    """Randomness for a call, one uniform a model: a generator or uniforms; and how many models it looks at (all)."""

    rng: Any
    looks_at: int | None = None


def examine(
    xp: Any,
    models: Array,
    own: Array | None,
    index: Array | None,
    mask: Array | None,
    draws: Array | None,
    most: int | None,
    measure: Measure,
    radius: float | None,
) -> tuple[Measured, Array | None, Array | None]:
    """Measure models [B, M, F], or those of a pool [P, F]; return which are usable [B, M] and why others are not.

    With `most`, models are looked at in the order of their draws until so many that are fit for use have been
    found. As a rule these are the first ones, and no other is read.
    """
    count = models.shape[1] if index is None else index.shape[1]
    if draws is None or most is None or most >= count:
        measured = measure_models(xp, models, own, measure, radius=radius)
        return measured, *refusals_of(xp, mask, models, measured.fit, index)
    order = argsort(xp, draws if mask is None else xp.where(mask, draws, xp.full_like(draws, 2)))
    if own is not None:
        some = measure_models(xp, models, own, Measure.DISTANCES, picked=order[:, :most])
        if some.fit is None:
            distances = spread(xp, some.distances, order, 0)
            return Measured(distances=distances), *_first(xp, mask, None, mask, order, most)
    measured = measure_models(xp, models, own, measure)
    return measured, *_first(xp, *refusals_of(xp, mask, models, measured.fit, index), mask, order, most)


def _first(
    xp: Any, usable: Array | None, refusals: Array | None, mask: Array | None, order: Array, most: int
) -> tuple[Array, Array]:
    """Leave only the first `most` usable models [B, M] in `order`; the others are not sampled."""
    if usable is None:
        usable = xp.ones(order.shape, dtype=xp.bool, device=order.device)
    found = xp.cumulative_sum(xp.astype(take_rows(xp, usable, order), xp.int64), axis=1)
    # Those before which `most` have been found are not looked at, fit or not.
    earlier = xp.concat([xp.zeros_like(found[:, :1]), found[:, :-1]], axis=1)
    looked = spread(xp, earlier < most, order, False)
    unseen = xp.asarray(int(Reason.NOT_SAMPLED), dtype=xp.int8, device=order.device)
    absent = xp.asarray(int(Reason.ABSENT), dtype=xp.int8, device=order.device)
    refusals = xp.where(looked, unseen if refusals is None else refusals, unseen)
    return usable & looked, refusals if mask is None else xp.where(mask, refusals, absent)
