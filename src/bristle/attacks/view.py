"""The attackers' view of a round: checked once, reduced to what they know, split into blocks of victims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from operator import itemgetter
from typing import Any

import numpy as np

from bristle._core import Array, Pool, block_bytes, namespace, squared_norms
from bristle._core.arrays import is_array
from bristle._core.validation import check_count
from bristle.learning.metrics import Evaluation
from bristle.rules.checks import LARGEST_NORM


class Knowledge(StrEnum):
    """How much attackers know about a victim, besides their own heads, their memory and the iteration.

    `NOTHING`: no more than that. `INBOX`: also the honest heads that the victim receives this round.
    `EVERYTHING`: also the victim's own head, how its training moves it, and the classes that it can test.
    """

    NOTHING = "nothing"
    INBOX = "inbox"
    EVERYTHING = "everything"


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Everything that K attackers may know before they send to each of the victims [...].

    An attack that knows nothing sends the same to everyone, so that it needs no victims' axes: called with
    `own` [K, C, D], its answer can be shared by all.

    Parameters
    ----------
    own : array [..., K, C, D]
        The heads that the attackers trained themselves, on labels that went through `attack.labels`.
    iteration, total : int
        The current iteration, from 1, and how many there will be.
    inbox : array [..., M, C, D] or Pool, optional
        The honest heads that each victim receives this round. Heads that are not finite count as absent.
    inbox_mask : boolean array [..., M], optional
        False where a victim does not receive a head.
    victim : array [..., C, D], optional
        Each victim's own head.
    update : array [..., C, D], optional
        How its latest training moved each victim's head, in all rows: also those that a rule which consolidates then
        leaves as they were.
    testable : boolean array [..., C], optional
        The classes that each victim can test: its familiar ones.
    sent : array [..., K, C, D], optional
        What the attackers sent in the round before; None in the first.
    held : Evaluation, optional
        Samples [S, D] that the attackers hold, with their true labels: the same for all victims.
    claims : boolean array [N, C], optional
        The classes that each of the N benign members claims, the same for all victims. Claims are public: attacks of
        any knowledge see them. None where peers claim nothing.
    """

    own: Array
    iteration: int = 1
    total: int = 1
    inbox: Array | Pool | None = None
    inbox_mask: Array | None = None
    victim: Array | None = None
    update: Array | None = None
    testable: Array | None = None
    sent: Array | None = None
    held: Evaluation | None = None
    claims: Array | None = None

    def seen_by(self, knows: Knowledge) -> View:
        """Return what attackers with this knowledge see: the same view, with None for the rest."""
        if knows == Knowledge.EVERYTHING:
            return self
        view = replace(self, victim=None, update=None, testable=None)
        return view if knows == Knowledge.INBOX else replace(view, inbox=None, inbox_mask=None)


def check_shapes(view: View) -> tuple[int, ...]:
    """Check the shapes and types of all that the caller gave; return the shape of the batch of victims."""
    own = view.own
    if not is_array(own):
        raise ValueError(f"view.own must be an array (NumPy, torch, ...), not {type(own).__name__}")
    xp = namespace(own)
    if own.dtype not in (xp.float32, xp.float64):
        raise ValueError(f"view.own must be of type float32 or float64, not {own.dtype}; convert it first")
    if own.ndim < 3 or 0 in own.shape[-2:]:
        raise ValueError(f"view.own must be [..., attackers, classes, features], not {tuple(own.shape)}")
    check_count("view.iteration", view.iteration, least=1)
    check_count("view.total", view.total, least=1)
    batch, head = tuple(own.shape[:-3]), tuple(own.shape[-2:])
    _check_array("sent", view.sent, tuple(own.shape), own.dtype, own)
    _check_array("victim", view.victim, (*batch, *head), own.dtype, own)
    _check_array("update", view.update, (*batch, *head), own.dtype, own)
    _check_array("testable", view.testable, (*batch, head[0]), xp.bool, own)
    _check_held(view.held, head[1], own)
    if view.claims is not None:
        members = view.claims.shape[0] if is_array(view.claims) and view.claims.ndim else "members"
        _check_array("claims", view.claims, (members, head[0]), xp.bool, own)
    models = _check_inbox(xp, view.inbox, batch, head, own)
    if view.inbox_mask is not None:
        if models is None:
            raise ValueError("view.inbox_mask is given, but no view.inbox that it belongs to")
        _check_array("inbox_mask", view.inbox_mask, (*batch, models), xp.bool, own)
    return batch


def blocks(
    view: View, batch: tuple[int, ...], draws: Array | None, *, whole: bool = False
) -> Iterator[tuple[View, Array | None]]:
    """Split a view into blocks of victims [B, ...], each with its uniforms; `whole`: into one block of all of them.

    In a block the inbox is a plain array [B, M, C, D] in which absent heads are zero, and the mask is always
    given. What the attack does not see is not looked at.
    """
    xp, (attackers, classes, depth) = namespace(view.own), view.own.shape[-3:]
    for name in ("own", "victim", "update"):
        heads = getattr(view, name)
        if heads is not None and not bool(xp.all(_fits(xp, heads))):
            raise ValueError(f"view.{name} holds values that are not finite or beyond 1e15; pass finite heads")
    size = prod(batch)

    def flat(values: Array) -> Array:
        return xp.reshape(values, (size, *values.shape[len(batch) :]))

    flattened = _mapped(view, flat)
    draws = None if draws is None else flat(draws)
    shared = view.inbox.index if isinstance(view.inbox, Pool) else view.inbox
    models = 0 if shared is None else shared.shape[len(batch)]
    itemsize = 8 if view.own.dtype == xp.float64 else 4
    # Twice, because the mathematics holds about as much again as what comes in and goes out.
    step = max(1, block_bytes(view.own) // (2 * (models + attackers) * classes * depth * itemsize))
    for start in range(0, size, max(1, size) if whole else step):
        rows = slice(start, size if whole else min(start + step, size))
        if rows == slice(0, size):
            yield _with_array(xp, flattened), draws
        else:
            part = itemgetter((rows, ...))
            yield _with_array(xp, _mapped(flattened, part)), None if draws is None else part(draws)


def flatten(xp: Any, heads: Array) -> Array:
    """View heads [..., C, D] as vectors [..., F]."""
    return xp.reshape(heads, (*heads.shape[:-2], heads.shape[-2] * heads.shape[-1]))


PER_VICTIM = ("own", "inbox", "inbox_mask", "victim", "update", "testable", "sent")
"""The fields of a view that have the axes of the victims in front; of a pool, its index has them."""


def _mapped(view: View, change: Callable[[Array], Array]) -> View:
    """Return the view with `change` applied to every array that has the axes of the victims."""
    known = {name: value for name in PER_VICTIM if (value := getattr(view, name)) is not None}
    pool = known.get("inbox")
    if isinstance(pool, Pool):
        known.pop("inbox")
        view = replace(view, inbox=Pool(pool.heads, change(pool.index)))
    return replace(view, **{name: change(value) for name, value in known.items()})


def _with_array(xp: Any, view: View) -> View:
    """Return the view with an array as inbox, with zeros for heads that are absent or unfit, and a mask."""
    inbox = view.inbox
    if inbox is None:
        return view
    if isinstance(inbox, Pool):
        heads = xp.take(inbox.heads, xp.reshape(inbox.index, (-1,)), axis=0)
        inbox = xp.reshape(heads, (*inbox.index.shape, *inbox.heads.shape[1:]))
    fits = _fits(xp, inbox)
    present = fits if view.inbox_mask is None else fits & view.inbox_mask
    if not bool(xp.all(present)):
        inbox = xp.where(present[:, :, None, None], inbox, xp.zeros_like(inbox))
    return replace(view, inbox=inbox, inbox_mask=present)


def _fits(xp: Any, heads: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return squared_norms(xp, flatten(xp, heads)) <= LARGEST_NORM**2


def _check_array(name: str, values: Array | None, shape: tuple[int | str, ...], dtype: Any, own: Array) -> None:
    if values is None:
        return
    if not is_array(values) or tuple(values.shape) != shape or not _same_library(own, values):
        found = f"{type(values).__name__} {tuple(values.shape)}" if is_array(values) else type(values).__name__
        raise ValueError(f"view.{name} must be a {type(own).__name__} of shape {shape}, not {found}")
    if values.dtype != dtype:
        wanted = "boolean" if dtype == namespace(own).bool else f"of type {dtype}"
        raise ValueError(f"view.{name} must be {wanted}, not {values.dtype}; convert it first")


def _check_held(held: Evaluation | None, features: int, own: Array) -> None:
    if held is None:
        return
    samples = int(held.labels.shape[0]) if is_array(held.labels) and held.labels.ndim == 1 else 0
    _check_array("held.features", held.features, (samples, features), own.dtype, own)
    _check_array("held.labels", held.labels, (samples,), held.labels.dtype, own)


def _check_inbox(
    xp: Any, inbox: Array | Pool | None, batch: tuple[int, ...], head: tuple[int, ...], own: Array
) -> int | None:
    """Return how many heads the inbox has room for."""
    if inbox is None:
        return None
    if not isinstance(inbox, Pool):
        if not is_array(inbox) or inbox.ndim != len(batch) + 3:
            found = tuple(inbox.shape) if is_array(inbox) else type(inbox).__name__
            raise ValueError(f"view.inbox must be an array {(*batch, 'models', *head)} or a Pool, not {found}")
        _check_array("inbox", inbox, (*batch, inbox.shape[-3], *head), own.dtype, own)
        return int(inbox.shape[-3])
    heads, index = inbox.heads, inbox.index
    if not is_array(heads) or heads.ndim != 3 or not is_array(index) or index.ndim != len(batch) + 1:
        raise ValueError(f"view.inbox must be a Pool of heads {('heads', *head)} and index {(*batch, 'models')}")
    _check_array("inbox.heads", heads, (heads.shape[0], *head), own.dtype, own)
    _check_array("inbox.index", index, (*batch, index.shape[-1]), index.dtype, own)
    if not xp.isdtype(index.dtype, "integral"):
        raise ValueError(f"view.inbox.index must be integers, not {index.dtype}")
    if prod(index.shape) and not bool(xp.all((index >= 0) & (index < heads.shape[0]))):
        raise ValueError(f"view.inbox.index points outside its {heads.shape[0]} heads; mask absent ones")
    return int(index.shape[-1])


def _same_library(own: Array, values: Array) -> bool:
    try:
        namespace(own, values)
    except TypeError:
        return False
    return True
