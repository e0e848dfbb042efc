"""Checks of a rule's arguments; errors are a ValueError with what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np

from bristle._core import Array, Pool, namespace, squared_norms, take_rows
from bristle._core.arrays import is_array, largest
from bristle._core.linear_algebra import Pull, clip_about, distances_from, gram_about, probe, squares
from bristle.learning.metrics import Evaluation
from bristle.rules.decision import Reason


class Measure(IntEnum):
    """What a rule measures of the models, from cheap to expensive; the same numbers reveal unfit models.

    `NORMS` for rules that need nothing; `MEAN` of all models; `DISTANCES` from the own head; `PRODUCTS` of all models
    with each other.
    """

    NORMS = 1
    MEAN = 2
    DISTANCES = 3
    PRODUCTS = 4


# A head with a larger norm is refused: its square, and sums of such squares, must fit a 32-bit float.
LARGEST_NORM = 1e15
# Numbers of one receiver from which on two products are cheaper than norms.
PROBED = 1 << 18


@dataclass(frozen=True)
class Measurements:
    """Mask of the models fit for use (None: all), and the measurements behind it: [B, M], [B, M, M], [B, F], ...

    `clipped` [B, 1 + M, F] are the own head and all clipped models, if requested.
    """

    fit: Array | None = None
    distances: Array | None = None
    products: Array | None = None
    mean: Array | None = None
    clipped: Array | None = None


def measure_models(
    xp: Any,
    models: Array,
    own: Array | None,
    measure: Measure,
    *,
    pull: Pull | None = None,
    picked: Array | None = None,
) -> Measurements:
    """Find the models fit for use, ‖x‖ ≤ 1e15, by the rule's own measure; without `own` [B, F] by norms.

    With a `pull`, models are also clipped about the own head (in NumPy). With `picked` [B, m], only the distances of
    these models are computed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if own is None or measure <= Measure.MEAN:
            return _by_norms(xp, models, own if measure is Measure.MEAN else None)
        products = clipped = None
        if pull is not None and xp is np:
            distances, clipped = clip_about(models, own, pull)
        elif measure is Measure.PRODUCTS and xp is np:  # Other libraries would need the memory of all at once.
            products = gram_about(xp, models, own)
            distances = xp.linalg.diagonal(products)
        else:
            distances = distances_from(xp, models, own, picked)
        fit = None
        if prod(distances.shape):
            # Models near a small own head are small themselves; otherwise norms are computed.
            reach = LARGEST_NORM - largest(xp, squares(own) if xp is np else squared_norms(xp, own)) ** 0.5
            if not (reach > 0 and largest(xp, distances) <= reach * reach):
                fit = _fit(xp, models if picked is None else take_rows(xp, models, picked))
        return Measurements(fit, distances, products, clipped=clipped)


def _by_norms(xp: Any, models: Array, own: Array | None) -> Measurements:
    """Check models by their norms, and with `own` [B, F] also compute the mean (in NumPy)."""
    total, surely_fit = None, False
    if xp is np and models.ndim == 3:
        if models.shape[1] * models.shape[2] >= PROBED:
            surely_fit, total = probe(models, summed=own is not None)
        elif own is not None:
            total = np.add.reduce(models, axis=1)
    if total is not None:
        total += own
        total /= models.shape[1] + 1
    return Measurements(None if surely_fit else _fit(xp, models), mean=total)


def _fit(xp: Any, models: Array) -> Array | None:
    fit = squared_norms(xp, models) <= LARGEST_NORM**2
    return None if bool(xp.all(fit)) else fit


def same_library(own: Array, heads: Array) -> Any:
    """Return the namespace of all arrays; raise if they are of different libraries."""
    for name, array in (("own", own), ("received", heads)):
        if not is_array(array):
            raise ValueError(
                f"{name} must be an array (NumPy, torch, ...), not {type(array).__name__}; "
                "pass arrays of unknown origin through rules.stack(own, heads) first"
            )
    try:
        return namespace(own, heads)
    except TypeError:
        raise ValueError(
            f"own and received must come from one array library, not {type(own).__name__} and {type(heads).__name__}"
        ) from None


def check_floats(xp: Any, own: Array, heads: Array) -> None:
    """Raise unless own and received are of the same type, float32 or float64."""
    if own.dtype not in (xp.float32, xp.float64):
        raise ValueError(f"own must be of type float32 or float64, not {own.dtype}; convert it first")
    if heads.dtype != own.dtype:
        raise ValueError(f"received is of type {heads.dtype}, own of type {own.dtype}; convert one of them")


def check_array(received: Array, batch: tuple[int, ...], head: tuple[int, int]) -> int:
    """Return M of received heads [..., M, C, D]; raise if they do not fit the own head."""
    shape = tuple(received.shape)
    if len(shape) != len(batch) + 3 or shape[: len(batch)] != batch or shape[-2:] != tuple(head):
        expected = ", ".join(map(str, (*batch, "models", *head)))
        raise ValueError(f"received has shape {shape}, but own calls for ({expected})")
    return int(shape[-3])


def check_pool(xp: Any, pool: Pool, batch: tuple[int, ...], head: tuple[int, int]) -> int:
    """Raise a ValueError unless the value is a pool that matches own, and return M."""
    if pool.heads.ndim != 3 or tuple(pool.heads.shape[1:]) != tuple(head):
        expected = ", ".join(map(str, ("heads", *head)))
        raise ValueError(f"the pool's heads have shape {tuple(pool.heads.shape)}, but own calls for ({expected})")
    index = check_like("the pool's index", pool.index, pool.heads)
    if not xp.isdtype(index.dtype, "integral"):
        raise ValueError(f"the pool's index must hold integers, not {index.dtype}")
    if tuple(index.shape[:-1]) != batch or index.ndim == 0:
        raise ValueError(f"the pool's index has shape {tuple(index.shape)}, but own calls for {(*batch, 'models')}")
    if prod(index.shape) and not bool(xp.all((index >= 0) & (index < pool.heads.shape[0]))):
        raise ValueError(f"the pool's index points outside its {pool.heads.shape[0]} heads; mask absent models")
    return int(index.shape[-1])


def take_flags(xp: Any, flags: Array, index: Array) -> Array:
    """Gather one flag per head of a pool [P] for every receiver [B, M]."""
    return xp.reshape(xp.take(flags, xp.reshape(index, (-1,)), axis=0), index.shape)


def centre_of(xp: Any, own: Array) -> Array:
    """Return the point about which a pool's inner products are taken: the most central of some own heads.

    Received heads have no influence: about their mean, one huge head would cost the others all their digits.
    """
    size = own.shape[0]
    if size < 3:
        return own[0, :] if size else xp.zeros((own.shape[1],), dtype=own.dtype, device=own.device)
    some = own[:: -(-size // 16), :]
    squared = xp.sum(xp.stack([squared_norms(xp, some - some[i, :]) for i in range(some.shape[0])]) ** 0.5, axis=0)
    return some[int(xp.argmin(squared)), :]


def fits(vectors: Array) -> bool:
    """Return whether all vectors [..., F] are finite and small enough to compute with.

    The bound has a margin, since rounding may carry a mean of the largest models slightly beyond it.
    """
    xp = namespace(vectors)
    with np.errstate(over="ignore", invalid="ignore"):
        # If the sum over all is small, each is.
        if xp is np and squares(vectors.reshape(-1)) <= LARGEST_NORM**2:
            return True
        small = squared_norms(xp, vectors) <= 1.01 * LARGEST_NORM**2
    return bool(small) if small.ndim == 0 else bool(xp.all(small))


def zeroed(xp: Any, heads: Array, fit: Array | None) -> Array:
    """Replace unfit heads by zeros, since a NaN spreads in products even with weight 0."""
    if fit is None:
        return heads
    return xp.where(fit[:, None], heads, xp.zeros_like(heads))


def check_mask(xp: Any, mask: Array | None, own: Array, shape: tuple[int, ...]) -> Array | None:
    """Raise a ValueError unless the value is a boolean mask [..., M], and flatten it."""
    if mask is None:
        return None
    check_shape("mask", mask, own, shape)
    if mask.dtype != xp.bool:
        raise ValueError(f"mask must hold booleans, not {mask.dtype}")
    return xp.reshape(mask, (prod(shape[:-1]), shape[-1]))


def refusals_of(
    xp: Any, mask: Array | None, flat: Array, heads_fit: Array | None, index: Array | None
) -> tuple[Array | None, Array | None]:
    """Return which models are usable [B, M] and the reasons for the others, or None where all are."""
    if heads_fit is None and (mask is None or bool(xp.all(mask))):
        return None, None
    if heads_fit is None:
        assert mask is not None
        return mask, xp.full_like(mask, int(Reason.ABSENT), dtype=xp.int8)
    finite = xp.all(xp.isfinite(flat), axis=-1)
    finite = finite if index is None else take_flags(xp, finite, index)
    usable = heads_fit if index is None else take_flags(xp, heads_fit, index)
    refusals = xp.where(finite, _code(xp, Reason.TOO_LARGE, flat), _code(xp, Reason.NOT_FINITE, flat))
    if mask is None:
        return usable, refusals
    return usable & mask, xp.where(mask, refusals, _code(xp, Reason.ABSENT, flat))


def _code(xp: Any, reason: Reason, like: Array) -> Array:
    return xp.asarray(int(reason), dtype=xp.int8, device=like.device)


def check_previous(xp: Any, previous: Array, own: Array, size: int) -> Array:
    """Raise a ValueError unless the value is a finite head like the own one, and flatten it."""
    check_shape("context.previous", previous, own, tuple(own.shape))
    if previous.dtype != own.dtype:
        raise ValueError(f"context.previous must be of type {own.dtype} like own, not {previous.dtype}")
    previous = xp.reshape(previous, (size, own.shape[-2] * own.shape[-1]))
    if not fits(previous):
        raise ValueError("context.previous is not finite, or its norm is beyond 1e15")
    return previous


def check_evaluation(
    xp: Any, evaluation: Evaluation, batch: tuple[int, ...], classes: int, own: Array, depth: int
) -> Evaluation:
    """Return the samples with one batch axis; raise if they do not fit the own head."""
    if not isinstance(evaluation, Evaluation):
        raise ValueError(
            f"evaluation must be Evaluation(features [..., T, D], labels [..., T]), not {type(evaluation).__name__}"
        )
    features = check_like("evaluation.features", evaluation.features, own)
    labels = check_like("evaluation.labels", evaluation.labels, own)
    samples = features.shape[-2] if features.ndim >= 2 else 0
    if tuple(features.shape) != (*batch, samples, depth) or tuple(labels.shape) != (*batch, samples):
        raise ValueError(
            f"evaluation holds features {tuple(features.shape)} and labels {tuple(labels.shape)}, but own calls "
            f"for {(*batch, 'samples', depth)} and {(*batch, 'samples')}"
        )
    if not xp.isdtype(labels.dtype, "integral"):
        raise ValueError(f"evaluation labels must be integers, not {labels.dtype}")
    labels = xp.astype(labels, xp.int64, copy=False)  # Small and unsigned types have no room for -1 or many classes.
    if prod(labels.shape) and not bool(xp.all((labels >= -1) & (labels < classes))):
        raise ValueError(f"evaluation labels must lie between 0 and {classes - 1}, or be -1 for padding")
    features = xp.astype(features, own.dtype, copy=False)
    if not fits(features):
        # Padding may hold anything.
        features = xp.where((labels >= 0)[..., None], features, xp.zeros_like(features))
        if not fits(features):
            raise ValueError("evaluation features are not finite, or one has a norm beyond 1e15")
    size = prod(batch)
    return Evaluation(xp.reshape(features, (size, samples, depth)), xp.reshape(labels, (size, samples)))


def check_like(name: str, values: Array, own: Array) -> Array:
    """Raise a ValueError unless the value is an array of the same library as `own`."""
    if is_array(values):
        try:
            namespace(own, values)
        except TypeError:
            pass
        else:
            return values
    raise ValueError(
        f"{name} must be an array of the same library as own, {type(own).__name__}, not {type(values).__name__}"
    )


def check_shape(name: str, values: Array, own: Array, shape: tuple[int, ...]) -> Array:
    """Raise a ValueError unless the value is an array of `shape`, of the same library as `own`."""
    if tuple(check_like(name, values, own).shape) != shape:
        raise ValueError(f"{name} must be an array of shape {shape}, not {tuple(values.shape)}")
    return values
