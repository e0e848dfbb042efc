"""Decisions of rules: the new head, the weight of every model in it, and the reason for every model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from bristle._core import Array, namespace, to_numpy


class Reason(IntEnum):
    """Why a received model was kept or not. The value is the code in `Decision.reasons`."""

    KEPT = 0
    ABSENT = 1
    WRONG_SHAPE = 2
    WRONG_DTYPE = 3
    NOT_FINITE = 4
    TOO_LARGE = 5
    TOO_FEW_MODELS = 6
    NOT_USED = 7
    NOT_SAMPLED = 8
    NOTHING_TO_TEST_ON = 9
    WORSE_EVERYWHERE = 10
    UNCERTAIN = 11
    TOO_FAR = 12
    HIGHER_LOSS = 13
    NOT_CHOSEN = 14
    OPPOSED = 15
    CLIPPED = 16
    IMPOSSIBLE = 17
    TOO_DIFFERENT = 18
    COPY = 19
    DISSENTS = 20
    DISPUTED = 21
    SILENT = 22
    LARGE_UPDATE = 23
    SAME_VOICE = 24

    @property
    def words(self) -> str:
        """The reason as a phrase."""
        return _WORDS[self]


_WORDS = {
    Reason.KEPT: "kept",
    Reason.ABSENT: "not received (masked out)",
    Reason.WRONG_SHAPE: "refused: its shape is not that of the own head",
    Reason.WRONG_DTYPE: "refused: its numbers are not of the own head's type",
    Reason.NOT_FINITE: "refused: it holds values that are not finite",
    Reason.TOO_LARGE: "refused: its values are too large to compute with",
    Reason.TOO_FEW_MODELS: "ignored: too few models for the number of attackers that the rule expects",
    Reason.NOT_USED: "ignored: this rule uses no received model",
    Reason.NOT_SAMPLED: "not sampled by the distance-based prioritiser",
    Reason.NOTHING_TO_TEST_ON: "ignored: too few held-out samples to test any class",
    Reason.WORSE_EVERYWHERE: "tested and rejected: no class is better with it",
    Reason.UNCERTAIN: "tested and rejected: it does badly even on its best classes",
    Reason.TOO_FAR: "rejected: too far from the own head",
    Reason.HIGHER_LOSS: "tested and rejected: its loss is higher than the own head's",
    Reason.NOT_CHOSEN: "not chosen: others lie closer together",
    Reason.OPPOSED: "rejected: it points away from the own update",
    Reason.CLIPPED: "kept, but pulled in towards the own head",
    Reason.IMPOSSIBLE: "refused: its counts or its scatter are impossible",
    Reason.TOO_DIFFERENT: "refused: its mean of a class that I hold is too far from mine",
    Reason.COPY: "counted once: too much like another sender to be independent",
    Reason.SAME_VOICE: "counted once with others who came in by the same member",
    Reason.DISSENTS: "left out: most owners of the class put it elsewhere",
    Reason.DISPUTED: "not used: owners of the class disagree, and I cannot test it",
    Reason.SILENT: "says nothing about the class",
    Reason.LARGE_UPDATE: "rejected: its update is among the largest",
}


class Decision:
    """The result of a rule.

    Attributes
    ----------
    head : array [..., C, D]
        The new head. Always finite.
    bias : array [..., C], optional
        Added to the scores `head @ x`; None for rules whose heads have no bias.
    weights : array [..., M, C]
        Weight of each received model in each row; the own head has the rest, so that all sum to 1 per class. For
        coordinate-wise rules, the fraction of the row's coordinates. Computed on first access from the arrays of the
        call: read it before you change those.
    reasons : integer array [..., M]
        A `Reason` code per received model.
    state : mapping of arrays [..., *] or None
        State of the rule, for the next call's `Context`; None if it has none.
    """

    def __init__(
        self, *, head: Array, weights: Callable[[], Array], reasons: Array, state: Mapping[str, Array] | None = None
    ) -> None:
        self.head = head
        self.bias: Array | None = None
        self.reasons = reasons
        self.state = state
        self._weights = weights

    @cached_property
    def weights(self) -> Array:
        """Weight of each received model in each row [..., M, C]."""
        return self._weights()

    def with_refusals(self, refusals: Array) -> Decision:
        """Return the decision with the reasons [..., M] of `rules.stack` in place of "not received"."""
        absent = (self.reasons == int(Reason.ABSENT)) & (refusals != int(Reason.KEPT))
        reasons = namespace(self.reasons).where(absent, refusals, self.reasons)
        return Decision(head=self.head, weights=lambda: self.weights, reasons=reasons, state=self.state)

    def __getstate__(self) -> dict[str, Any]:
        return {"head": self.head, "weights": self.weights, "reasons": self.reasons, "state": self.state}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            head=parts["head"], weights=lambda: parts["weights"], reasons=parts["reasons"], state=parts["state"]
        )

    def explain(self, model: int | tuple[int, ...]) -> str:
        """Return the decision about one received model in words.

        `model` is its position; in a batch, a tuple with the receiver's position first.
        """
        position = model if isinstance(model, tuple) else (model,)
        shape = tuple(self.reasons.shape)
        if len(position) != len(shape) or any(not -n <= i < n for i, n in zip(position, shape, strict=True)):
            raise ValueError(f"there is no model {model!r} in a decision about models of shape {shape}")
        reason = Reason(int(self.reasons[position]))
        if reason not in (Reason.KEPT, Reason.CLIPPED):
            return reason.words
        shares = to_numpy(self.weights)[position]
        best = int(shares.argmax())
        return f"{reason.words}: {shares.mean():.1%} of the head, at most {shares[best]:.1%} (class {best})"

    def __repr__(self) -> str:
        codes, counts = np.unique(to_numpy(self.reasons), return_counts=True)
        counted = ", ".join(f"{n} {Reason(c).name.lower()}" for c, n in zip(codes, counts, strict=True))
        return f"Decision(head={tuple(self.head.shape)}, models={tuple(self.reasons.shape)}: {counted or 'none'})"
