"""What a receiver makes of statements: its classifier, and what became of every sender and class, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from bristle._core import Array, to_numpy
from bristle._core.arrays import from_numpy
from bristle.rules.decision import Decision, Reason
from bristle.rules.evidence.location import Booleans, Claims, Integers, Located
from bristle.rules.evidence.scatter import Scatter
from bristle.rules.evidence.statement import Floats
from bristle.rules.evidence.voices import shares_voice


@dataclass(frozen=True, eq=False)
class Answer:
    """One receiver's classifier: scores W x + b, probabilities, and samples of no class that anybody stated.

    Parameters
    ----------
    head, bias : array [C, D], [C]
        Scores are `head @ x + bias`; classes that are not answered have a bias below all others.
    known : integer array
        The classes that are answered.
    locations : array [C, D]
    scatter : Scatter
    calibrate : callable
        Works out the temperature of probabilities, and the squared Mahalanobis distance to the nearest location beyond
        which a sample belongs to none of them: when first asked for, from own samples that are no part of what they
        test.
    """

    head: Floats
    bias: Floats
    known: Integers
    locations: Floats
    scatter: Scatter
    calibrate: Callable[[], tuple[float, float]]

    @cached_property
    def _calibrated(self) -> tuple[float, float]:
        return self.calibrate()

    @property
    def temperature(self) -> float:
        """What scores are divided by for probabilities."""
        return self._calibrated[0]

    @property
    def reach(self) -> float:
        """The squared Mahalanobis distance to the nearest location beyond which `abstains` is true."""
        return self._calibrated[1]

    def probabilities(self, features: Array) -> Floats:
        """Return calibrated probabilities [S, C] of samples [S, D]."""
        scores = to_numpy(features).astype(np.float64) @ self.head.T + self.bias
        scores = scores / self.temperature
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        outside = np.ones(len(self.bias), dtype=bool)
        outside[self.known] = False
        raised[:, outside] = 0
        found: Floats = raised / raised.sum(axis=1, keepdims=True)
        return found

    def distances(self, features: Array) -> Floats:
        """Return the squared Mahalanobis distance [S] of samples to the nearest location that is answered."""
        x = to_numpy(features).astype(np.float64)
        places = self.scatter.vectors(self.locations[self.known])
        found: Floats = self.scatter.vectors(x).distances(places).min(axis=1)
        return found

    def abstains(self, features: Array) -> Booleans:
        """Return which samples [S] look like no class that anybody stated."""
        found: Booleans = self.distances(features) > self.reach
        return found


class EvidenceDecision(Decision):
    """What a receiver made of statements.

    Attributes
    ----------
    head, weights, reasons, state
        As of every decision. A weight is a sender's share of the location of a class.
    bias : array [..., C]
        What is added to the scores of each class.
    class_reasons : integer array [..., M, C]
        A `Reason` code per sender and class.
    errors : array [..., M, C]
        How many standard errors a sender's mean of a class is from the own mean, or, of a class that the receiver does
        not hold, from the location that was chosen; 0 where the sender says nothing.
    answers : list of Answer
        A classifier per receiver, in the order of the batch.
    """

    def __init__(self, parts: Sequence[Weighed], batch: tuple[int, ...], like: Array) -> None:
        def together(values: Sequence[Any], dtype: Any = None) -> Array:
            stacked = np.stack(values).reshape((*batch, *np.shape(values[0])))
            return from_numpy(stacked, like=like, dtype=dtype)

        weights = together([part.weights for part in parts], like.dtype)
        super().__init__(
            head=together([part.answer.head for part in parts], like.dtype),
            weights=lambda: weights,
            reasons=together([part.reasons.astype(np.int8) for part in parts]),
        )
        self.bias = together([part.answer.bias for part in parts], like.dtype)
        self.class_reasons = together([part.class_reasons.astype(np.int8) for part in parts])
        self.errors = together([part.errors for part in parts], like.dtype)
        self.answers = [part.answer for part in parts]
        self._twins = np.stack([part.twins for part in parts]).reshape((*batch, -1))

    def explain(self, model: int | tuple[int, ...], label: int | None = None) -> str:
        """Say in words what became of one sender's statement, or of its mean of one class."""
        position = model if isinstance(model, tuple) else (model,)
        words = super().explain(position)
        reason = Reason(int(self.reasons[position]))
        codes, errors = to_numpy(self.class_reasons)[position], to_numpy(self.errors)[position]
        if label is not None:
            return self._of_class(Reason(int(codes[label])), float(errors[label]), label, int(self._twins[position]))
        if reason is Reason.TOO_DIFFERENT:
            worst = int(errors.argmax())
            return f"refused: its mean of class {worst} is {errors[worst]:.0f} standard errors from mine"
        if reason is Reason.COPY:
            return f"counted once: too much like sender {int(self._twins[position])} to be independent"
        return words

    @staticmethod
    def _of_class(reason: Reason, errors: float, label: int, twin: int) -> str:
        if reason in (Reason.TOO_DIFFERENT, Reason.DISSENTS):
            whose = "mine" if reason is Reason.TOO_DIFFERENT else "where most owners put it"
            return f"{reason.words}: its mean of class {label} is {errors:.0f} standard errors from {whose}"
        if reason is Reason.COPY:
            return f"counted once: too much like sender {twin} to be independent"
        return reason.words


@dataclass(frozen=True, eq=False)
class Weighed:
    """What one receiver made of M senders: the parts of a decision."""

    answer: Answer
    weights: Floats
    reasons: Integers
    class_reasons: Integers
    errors: Floats
    twins: Integers

    def light(self) -> Weighed:
        """Return the same with no more than head and bias of the classifier: for worlds of very many receivers."""
        empty = np.zeros((0, self.answer.head.shape[1]))
        nothing = Scatter(np.ones(empty.shape[1]), empty)
        light = replace(self.answer, locations=empty, scatter=nothing, calibrate=_not_kept)
        return replace(self, answer=light)


@dataclass(frozen=True, eq=False)
class Findings:
    """What vetting and disputes found: errors [N], apart [kept], kept [N], refused [senders], disputed classes."""

    errors: Floats
    apart: Floats
    kept: Booleans
    refused: Booleans
    disputed: Integers


def weighed(
    answer: Answer,
    claims: Claims,
    located: Located,
    weights: Floats,
    reasons: Integers,
    places: Integers,
    found: Findings,
) -> Weighed:
    """Return the parts of a decision: each sender's share of each class, and a reason for each."""
    senders = len(reasons)
    shares = np.zeros((senders, claims.classes))
    class_reasons = np.full((senders, claims.classes), int(Reason.SILENT), dtype=np.int64)
    class_reasons[reasons != int(Reason.KEPT)] = reasons[reasons != int(Reason.KEPT)][:, None]
    deviation = np.zeros((senders, claims.classes))
    from_location = np.zeros(len(claims.label))
    from_location[found.kept] = found.apart
    answered = np.isin(np.arange(claims.classes), answer.known)
    twins = _twins(claims, weights, places, senders)
    for number, (who, label) in enumerate(zip(claims.owner, claims.label, strict=True)):
        if who == 0:
            continue
        place = places[who]
        tested = np.isfinite(found.errors[number])
        deviation[place, label] = found.errors[number] if tested else from_location[number]
        share = located.shares[label, number]
        shares[place, label] = share if answered[label] else 0.0
        if found.refused[who]:
            reason = Reason.TOO_DIFFERENT
        elif label in found.disputed:
            reason = Reason.DISPUTED
        elif weights[number] < 1:
            reason = Reason.SAME_VOICE if shares_voice(claims, number) else Reason.COPY
        elif share <= 0:
            reason = Reason.DISSENTS
        else:
            reason = Reason.KEPT
        class_reasons[place, label] = int(reason)
    for who in range(1, len(places)):
        if found.refused[who]:
            reasons[places[who]] = int(Reason.TOO_DIFFERENT)
        elif twins[places[who]] >= 0:
            reasons[places[who]] = int(Reason.COPY)
        elif not shares[places[who]].any():
            among = (class_reasons[places[who]] == int(Reason.DISPUTED)).any()
            reasons[places[who]] = int(Reason.DISPUTED if among else Reason.DISSENTS)
    return Weighed(answer, shares, reasons, class_reasons, deviation, twins)


def _twins(claims: Claims, weights: Floats, places: Integers, senders: int) -> Integers:
    """Return the sender that each one is too much like in all that both claim, or -1."""
    found = np.full(senders, -1)
    squares = np.diag(claims.products)
    for who in range(1, len(places)):
        mine = np.flatnonzero(claims.owner == who)
        if not len(mine) or (weights[mine] == 1).any() or shares_voice(claims, int(mine[0])):
            continue
        same = np.flatnonzero((claims.label == claims.label[mine[0]]) & (claims.owner != who) & (claims.owner > 0))
        if len(same):
            apart = squares[same] - 2 * claims.products[same, mine[0]]
            found[places[who]] = places[claims.owner[same[int(apart.argmin())]]]
    return found


def _not_kept() -> NoReturn:
    raise ValueError("probabilities were not kept: ask the rule itself, not a world of many peers")
