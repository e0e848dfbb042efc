"""A peer that exchanges evidence, without a network: its samples, what it states of them, and what it decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bristle._core import to_numpy
from bristle._core.rng import Stream
from bristle.learning.metrics import Evaluation
from bristle.learning.optimiser import HeadState
from bristle.learning.samples import SampleStore
from bristle.peer.step import StepState
from bristle.rules import Decision
from bristle.rules.evidence import Evidence, Statement

if TYPE_CHECKING:  # Reports of simulations read stores, and need no network.
    from bristle.p2p.statements import ReceivedStatement

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

FLOOR = 5
"""The fewest samples of a class that are stated first, or that a later statement adds: a mean of fewer reveals them."""

GROWTH = 0.5
"""Fraction of its stated samples by which a class must change before it is stated anew."""


def hides(held: Integers, before: Integers, left: Integers) -> npt.NDArray[np.bool]:
    """Return of which classes [C] the difference between what is held and what was stated before hides each sample.

    `left` is how many of the samples that were stated are still held: all others of both are in the difference.
    """
    changed = (held - left) + (before - left)
    enough: npt.NDArray[np.bool] = changed >= np.maximum(FLOOR, np.ceil(GROWTH * before))
    return enough


def stated_counts(
    held: Integers,
    before: Integers | None = None,
    left: Integers | None = None,
    earlier: Sequence[tuple[Integers, Integers]] = (),
) -> Integers:
    """Return how many samples of each class [C] the next statement is made of, given how many the last one had.

    Two statements of one peer reveal the difference of their sums: the sum of the samples that came between them, less
    that of those that were removed. So a class is stated anew only when at least `FLOOR` samples have come or gone, and
    `GROWTH` times as many as were stated, and it has `FLOOR` or more: the difference then hides a sample no worse than
    a first statement does, and statements are few. Until then it stays as it was stated; but if any sample of that was
    removed, which `left`, the number of those still held, tells, nothing is stated of it. `earlier` has both numbers
    of statements before the last one, which somebody may have kept.
    """
    last = np.zeros_like(held) if before is None else before
    still = np.minimum(last, held) if left is None else left
    anew = np.all([hides(held, *one) for one in ((last, still), *earlier)], axis=0) & (held >= FLOOR)
    counts: Integers = np.where(anew, held, np.where(still == last, last, 0))
    return counts


class StatedSamples:
    """Which samples were stated last, of each class that was ever stated.

    Parameters
    ----------
    counts : array [2, C]
        How many of these are still held, for training and held out: the first ones.
    sizes : array [C], optional
        How many they were when they were stated; by default, none has been removed since.
    withdrawn : array [C], optional
        Whether a later statement left the class out; by default, none did.
    earlier : sequence of (array [2, C], array [C])
        Counts and sizes of what was stated before: somebody may have kept that. Samples that come and go again must
        not let a later statement differ from it by a few.
    """

    def __init__(
        self,
        counts: Integers,
        sizes: Integers | None = None,
        withdrawn: npt.NDArray[np.bool] | None = None,
        earlier: Sequence[tuple[Integers, Integers]] = (),
    ) -> None:
        self.earlier = tuple(earlier)
        self.counts = counts
        self.sizes: Integers = counts.sum(axis=0) if sizes is None else sizes
        self.withdrawn = np.zeros(counts.shape[1], dtype=np.bool) if withdrawn is None else withdrawn

    @property
    def total(self) -> int:
        """How many samples the last statement is of."""
        return int(self.sizes[~self.withdrawn].sum())

    @property
    def removed(self) -> npt.NDArray[np.bool]:
        """Mask of the classes [C] of which the last statement holds samples that have been removed since."""
        gone: npt.NDArray[np.bool] = (self.counts.sum(axis=0) < self.sizes) & ~self.withdrawn
        return gone

    @classmethod
    def of(cls, samples: SampleStore, *, held_out: bool, before: StatedSamples | None = None) -> StatedSamples:
        """Return what to state now of the samples, where `before` was stated last."""
        held = _counts(samples, held_out=held_out)
        last = cls(np.zeros_like(held)) if before is None else before
        left = np.minimum(last.counts, held)
        total, still = held.sum(axis=0), left.sum(axis=0)
        kept = [(sizes, np.minimum(counts, held).sum(axis=0)) for counts, sizes in last.earlier]
        wanted = stated_counts(total, last.sizes, still, kept)
        anew = (wanted == total) & (wanted > 0)
        # Of what nothing is left, all is in the difference from any later statement.
        replaced = anew & (still > 0) & ((total != last.sizes) | (still != last.sizes))
        earlier = ((left * replaced, last.sizes * replaced),) if replaced.any() else ()
        return cls(
            np.where(anew, held, left),
            np.where(wanted > 0, wanted, last.sizes),
            (wanted == 0) & (last.sizes > 0),
            (*earlier, *last.earlier),
        )

    def same(self, other: StatedSamples) -> bool:
        """Return whether another statement is of the same samples, none of which has been removed."""
        whole = not (self.removed.any() or other.removed.any())
        return whole and all(np.array_equal(mine, theirs) for mine, theirs in zip(self, other, strict=True))

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the counts, the sizes and which classes are withdrawn."""
        yield from (self.counts, self.sizes, self.withdrawn)

    def without(self, gone: Sequence[npt.NDArray[np.bool]], samples: SampleStore) -> StatedSamples:
        """Return the same after some samples are removed: masks of those for training, and of those held out."""
        parts = (samples.training.labels, samples.evaluation.labels)

        def left(counts: Integers) -> Integers:
            rows = [_first(labels, most) for labels, most in zip(parts, counts, strict=True)]
            lost = [
                np.bincount(labels[some][mask[some]], minlength=samples.classes)
                for labels, some, mask in zip(parts, rows, gone, strict=True)
            ]
            return counts - np.stack(lost)

        earlier = [(left(counts), sizes) for counts, sizes in self.earlier]
        return StatedSamples(left(self.counts), self.sizes, self.withdrawn, earlier)

    def chosen(self, samples: SampleStore) -> Evaluation:
        """Return the samples of a statement, none of which has been removed."""
        parts = [(part.features, part.labels) for part in (samples.training, samples.evaluation)]
        stated = np.where(self.withdrawn, 0, self.counts)
        rows = [_first(labels, counts) for (_, labels), counts in zip(parts, stated, strict=True)]
        chosen = [(features[row], labels[row]) for (features, labels), row in zip(parts, rows, strict=True)]
        return _together(chosen)


def _together(parts: Sequence[tuple[Floats, Integers]]) -> Evaluation:
    return Evaluation(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))


def _counts(samples: SampleStore, *, held_out: bool) -> Integers:
    parts = (samples.training.labels, samples.evaluation.labels if held_out else np.zeros(0, np.int64))
    return np.stack([np.bincount(labels, minlength=samples.classes) for labels in parts]).astype(np.int64)


def _first(labels: Integers, counts: Integers) -> Integers:
    """Return the rows of the first so many samples of each class, in their order."""
    rows = [np.flatnonzero(labels == label)[:count] for label, count in enumerate(counts)]
    return np.sort(np.concatenate(rows))


class EvidenceLearner:
    """The samples, the rule and the head of one peer that exchanges evidence.

    It decides when statements or samples have changed, and otherwise rests.

    Parameters
    ----------
    samples : SampleStore
        Its samples; may grow between iterations. New ones count in its own decision at once.
    rule : Evidence
        The rule.
    seed : int
        Seed of the draws.
    state : StepState, optional
        State to continue from.
    iteration : int
        Number of iterations done.
    """

    def __init__(
        self,
        *,
        samples: SampleStore,
        rule: Evidence,
        seed: int,
        state: StepState | None = None,
        iteration: int = 0,
    ) -> None:
        self.samples, self.rule, self.iteration = samples, rule, iteration
        self._seed = seed
        nothing = np.zeros((samples.classes, samples.features), dtype=np.float32)
        begun = _state_of(nothing, np.zeros(samples.classes), 1.0)
        self.state = begun if state is None or set(state.memory or ()) != set(begun.memory or ()) else state
        self._weighed: object = None
        self._forgets = False
        self.voices: Mapping[bytes, bytes] = {}
        """The member that brought in each author, if the rule uses that; other authors count by themselves."""

    @property
    def head(self) -> Floats:
        """The head that is used [C, D]."""
        head: Floats = self.state.head
        return head

    @property
    def bias(self) -> Floats:
        """What is added to the scores of each class [C]."""
        assert self.state.memory is not None
        bias: Floats = self.state.memory["bias"]
        return bias

    def scores(self, features: Floats) -> Floats:
        """Return W x + b, divided by the temperature that makes probabilities of them [n, C]."""
        assert self.state.memory is not None
        found: Floats = (features @ self.head.T + self.bias) / self.state.memory["temperature"]
        return found

    def is_news(self, messages: Sequence[ReceivedStatement]) -> bool:
        """Whether there is something to decide: statements, or own samples, are not those of the last decision."""
        anything = bool(messages) or len(self.samples.training.labels) > 0 or (self._forgets and bool(self.head.any()))
        return anything and self._key(messages) != self._weighed

    def iterate(self, messages: Sequence[ReceivedStatement], *, total: int | None = None) -> Decision:
        """Decide about all statements that are known; `total` is not used."""
        mine = self._mine()
        if not messages and not len(mine.labels):
            nothing = np.zeros_like(self.head)
            self.state, self._weighed = _state_of(nothing, nothing[:, 0], 1.0), self._key(messages)
            return self.rest()
        self.iteration += 1
        own = self.rule.share(mine, self.samples.classes)
        rng = np.random.default_rng([self._seed, int(Stream.MODELS), self.iteration])
        voices = None if self.rule.one_voice is None else [self.voices.get(one.author, one.author) for one in messages]
        decision = self.rule(own, [one.statement for one in messages], evaluation=mine, rng=rng, voices=voices)
        self.state = _state_of(to_numpy(decision.head), to_numpy(decision.bias), decision.answers[0].temperature)
        self._weighed = self._key(messages)
        return decision

    def rest(self) -> Decision:
        """Count an iteration in which there is nothing to decide; return a decision about no senders."""
        self.iteration += 1
        nobody = np.zeros((0, self.samples.classes), dtype=np.float32)
        return Decision(head=self.head, weights=lambda: nobody, reasons=np.zeros(0, dtype=np.int8))

    def go_back(self, state: StepState, iteration: int) -> None:
        """Undo an iteration that could not be kept; what it was about is decided once more."""
        self.state, self.iteration, self._weighed = state, iteration, None

    def keep_only(self, samples: SampleStore) -> None:
        """Go on with fewer samples; what was decided with the others is decided once more."""
        self.samples, self._weighed, self._forgets = samples, None, True

    def own_statement(self, stated: StatedSamples) -> Statement:
        """Return the statement of some of the samples."""
        return self.rule.share(stated.chosen(self.samples), self.samples.classes)

    def may_state(self, releases: int) -> bool:
        """Return whether another statement may be made after so many with noise."""
        return self.rule.privacy is None or releases < self.rule.privacy.releases

    def to_state(self, before: StatedSamples | None) -> StatedSamples:
        """Return which samples to state now, where `before` was stated last."""
        return StatedSamples.of(self.samples, held_out=self.rule.held_out, before=before)

    def _mine(self) -> Evaluation:
        training, held_out = self.samples.training, self.samples.evaluation
        parts = [(training.features, training.labels)]
        if self.rule.held_out:
            parts.append((held_out.features, held_out.labels))
        return _together(parts)

    def _key(self, messages: Sequence[ReceivedStatement]) -> object:
        held = len(self.samples.training.labels), len(self.samples.evaluation.labels)
        return held, frozenset((one.author, one.number, self.voices.get(one.author)) for one in messages)


def _state_of(head: npt.NDArray[Any], bias: npt.NDArray[Any], temperature: float) -> StepState:
    """Return a head in closed form as a state: nothing is trained, and the memory is what belongs to the head."""
    values = np.asarray(head, dtype=np.float32)
    memory = {"bias": np.asarray(bias, dtype=np.float32), "temperature": np.float32(temperature).reshape(())}
    return StepState(HeadState.start(values), values, memory)
