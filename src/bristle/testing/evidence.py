"""What every rule whose peers exchange evidence promises, as one check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from bristle._core import Array, to_numpy
from bristle.learning.metrics import Evaluation
from bristle.rules import Reason
from bristle.rules.evidence import Evidence, EvidenceDecision, Statement
from bristle.testing.expectation import expect, expect_refused

CLASSES, FEATURES, RECEIVERS, SENDERS, SAMPLES, HELD = 5, 12, 3, 8, 8, 3
TOLERANCE = 1e-7
"""Of heads, beside their largest number: statements in another order are summed in another order."""


@dataclass(frozen=True, eq=False)
class EvidenceInputs:
    """Samples of receivers and the statements of all: each holds three of five classes."""

    samples: Evaluation
    own: Statement
    received: Statement
    mask: Array | None = None

    def call(self, rule: Evidence, received: Any = None) -> EvidenceDecision:
        """Call the rule."""
        theirs = self.received if received is None else received
        return rule(self.own, theirs, mask=self.mask, evaluation=self.samples)

    def receiver(self, i: int) -> EvidenceInputs:
        """Return the same for one receiver, without the batch axis."""
        samples = Evaluation(self.samples.features[i], self.samples.labels[i])
        return EvidenceInputs(samples, self.own[i], self.received[i], None if self.mask is None else self.mask[i])

    def senders(self, index: Any) -> EvidenceInputs:
        """Return the same with only the statements at `index`, in that order."""
        mask = None if self.mask is None else self.mask[..., index]
        return replace(self, received=_some(self.received, index), mask=mask)

    def map(self, change: Callable[[Array], Array]) -> EvidenceInputs:
        """Apply `change` to every array."""
        samples = Evaluation(change(self.samples.features), change(self.samples.labels))
        mask = None if self.mask is None else change(self.mask)
        return EvidenceInputs(samples, _changed(self.own, change), _changed(self.received, change), mask)

    def arrays(self) -> list[Array]:
        """Return all arrays."""
        parts = [getattr(one, name) for one in (self.own, self.received) for name in _PARTS]
        return [self.samples.features, self.samples.labels, *parts, *([] if self.mask is None else [self.mask])]


_PARTS = ("rows", "counts", "factors", "diagonal")


def check_evidence(rule: Evidence, *, seed: int = 0) -> None:
    """Check that a rule keeps what all rules that share evidence promise; an AssertionError says what it does not keep.

    Repeatable, and inputs stay as they are; batched equals looped, and a list equals a batch; the order of senders
    changes nothing; absent statements and statements that cannot be used change nothing and carry a reason in words;
    nobody, nobody in common and nothing of its own leave a finite answer; weights are shares; NumPy equals torch where
    installed; a caller's mistake is a ValueError.
    """
    scene = _scene(rule, np.random.default_rng(seed))
    answer = scene.call(rule)
    _check_answer(scene, answer)
    _check_unchanged_and_repeatable(rule, scene, answer)
    _check_batch_and_list(rule, scene, answer)
    _check_order(rule, scene, answer, np.random.default_rng(seed))
    _check_absent(rule, scene)
    _check_hostile(rule, scene)
    _check_few(rule, scene)
    _check_mistakes(rule, scene)
    _check_torch(rule, scene, answer)


def _scene(rule: Evidence, rng: np.random.Generator) -> EvidenceInputs:
    centres = 3 * rng.standard_normal((CLASSES, FEATURES))

    def samples(first: int) -> Evaluation:
        labels = np.repeat((first + np.arange(HELD)) % CLASSES, SAMPLES)
        return Evaluation(centres[labels] + rng.standard_normal((len(labels), FEATURES)), labels)

    mine = [samples(first) for first in range(RECEIVERS)]
    theirs = [Statement.stack([rule.share(samples(j), CLASSES) for j in range(SENDERS)]) for _ in mine]
    features, labels = np.stack([one.features for one in mine]), np.stack([one.labels for one in mine])
    own = Statement.stack([rule.share(one, CLASSES) for one in mine])
    return EvidenceInputs(Evaluation(features, labels), own, _together(theirs))


def _together(statements: Sequence[Statement]) -> Statement:
    return Statement(*(np.stack([getattr(one, name) for one in statements]) for name in _PARTS))


def _changed(statement: Statement, change: Callable[[Array], Array]) -> Statement:
    return Statement(*(change(getattr(statement, name)) for name in _PARTS))


def _some(received: Statement, index: Any) -> Statement:
    """Return some of the senders [..., M]: the axis before the last one or two, whatever there is before."""
    rows, counts, factors, diagonal = (getattr(received, name) for name in _PARTS)
    return Statement(rows[..., index, :, :], counts[..., index, :], factors[..., index, :, :], diagonal[..., index, :])


def _check_answer(scene: EvidenceInputs, answer: EvidenceDecision) -> None:
    head, weights, reasons = _parts(answer)
    bias, by_class, errors = map(to_numpy, (answer.bias, answer.class_reasons, answer.errors))
    each = (RECEIVERS, SENDERS, CLASSES)
    expect(head.shape == scene.own.rows.shape, f"the head has shape {head.shape}, own rows {scene.own.rows.shape}")
    expect(head.dtype == scene.own.rows.dtype, f"the head is of type {head.dtype}, own rows {scene.own.rows.dtype}")
    expect(bias.shape == (RECEIVERS, CLASSES), f"the bias has shape {bias.shape}, not {(RECEIVERS, CLASSES)}")
    expect(np.isfinite(head).all() and np.isfinite(bias).all(), "head or bias are not finite")
    expect(np.isfinite(errors).all() and (errors >= 0).all(), "a number of standard errors is not finite, or negative")
    for name, found in (("weights", weights), ("class_reasons", by_class), ("errors", errors)):
        expect(found.shape == each, f"{name} have shape {found.shape}, not {each}")
    expect(reasons.shape == each[:2], f"reasons have shape {reasons.shape}, not {each[:2]}")
    expect((weights >= -TOLERANCE).all(), "a weight is negative")
    expect((weights.sum(axis=1) <= 1 + TOLERANCE).all(), "the senders' shares of a class sum to more than 1")
    expect(not weights[to_numpy(scene.received.counts) == 0].any(), "a sender has weight in a class that it lacks")
    for code in np.unique(np.concatenate([reasons.ravel(), by_class.ravel()])):
        Reason(int(code))
    refused = reasons == int(Reason.TOO_DIFFERENT)
    expect(not weights[refused].any(), "a sender has weight, but its reason says that it was refused")
    for place in np.ndindex(RECEIVERS, SENDERS):
        expect(answer.explain(place), "a sender's fate is not explained")
        expect(all(answer.explain(place, label) for label in range(CLASSES)), "a claim's fate is not explained")
    features, labels = scene.samples.features, scene.samples.labels
    right = [(x @ w.T + b).argmax(axis=-1) == y for x, y, w, b in zip(features, labels, head, bias, strict=True)]
    expect(np.mean(right) > 0.8, "classes that are well apart, and that nobody lies about, are not distinguished")


def _check_unchanged_and_repeatable(rule: Evidence, scene: EvidenceInputs, answer: EvidenceDecision) -> None:
    copy = scene.map(np.copy)
    again = copy.call(rule)
    expect(all(a.tobytes() == b.tobytes() for a, b in zip(_all(again), _all(answer), strict=True)), "other bits again")
    same = all(np.array_equal(a, b) for a, b in zip(copy.arrays(), scene.arrays(), strict=True))
    expect(same, "the rule has changed an input")


def _check_batch_and_list(rule: Evidence, scene: EvidenceInputs, answer: EvidenceDecision) -> None:
    for i in range(RECEIVERS):
        one = scene.receiver(i)
        expected = tuple(part[i] for part in _all(answer))
        _assert_same(one.call(rule), expected, "one receiver differs from a batch")
        listed = [one.received[j] for j in range(SENDERS)]
        _assert_same(one.call(rule, listed), expected, "a list differs from a batch")
    nested = scene.map(lambda array: np.stack([array, array])).call(rule)
    expect(to_numpy(nested.head).shape == (2, *scene.own.rows.shape), "two batch axes do not come back")
    _assert_same(nested, tuple(np.stack([part, part]) for part in _all(answer)), "two batch axes differ from one")


def _check_order(rule: Evidence, scene: EvidenceInputs, answer: EvidenceDecision, rng: np.random.Generator) -> None:
    order = rng.permutation(SENDERS)
    head, weights, reasons, bias = _all(answer)
    expected = (head, weights[:, order], reasons[:, order], bias)
    _assert_same(scene.senders(order).call(rule), expected, "the order of senders matters")


def _check_absent(rule: Evidence, scene: EvidenceInputs) -> None:
    absent, present = [1, 4, 6], [0, 2, 3, 5, 7]
    mask = np.ones((RECEIVERS, SENDERS), dtype=bool)
    mask[:, absent] = False
    decision = replace(scene, mask=mask).call(rule)
    _check_left_out(decision, scene.senders(present).call(rule), absent, present, Reason.ABSENT, "absent statements")


def _check_left_out(
    decision: EvidenceDecision,
    without: EvidenceDecision,
    out: list[int],
    rest: list[int],
    reason: Reason | None,
    what: str,
) -> None:
    """Check that some senders were left out for a reason, and that nothing else is as if they were not there."""
    head, weights, reasons, bias = _all(decision)
    expected = _all(without)
    codes = reasons[..., out]
    refused = ~np.isin(codes, (int(Reason.KEPT), int(Reason.COPY), int(Reason.SAME_VOICE)))
    expect(refused.all() if reason is None else (codes == int(reason)).all(), f"{what}: not refused")
    expect(not weights[..., out, :].any(), f"{what}: a sender that is left out has weight")
    by_class = to_numpy(decision.class_reasons)[..., out, :]
    expect((by_class == codes[..., None]).all(), f"{what}: reasons by class say something else")
    found = (head, weights[..., rest, :], reasons[..., rest], bias)
    _assert_alike(found, expected, f"{what}: others are not as if it were not there")


def hostile(statement: Statement) -> dict[str, Any]:
    """Return unusable statements by what is wrong with them, derived from a good one."""
    classes, features = statement.rows.shape
    rows, counts = np.array(statement.rows, copy=True), np.array(statement.counts, copy=True)
    factors, diagonal = np.array(statement.factors, copy=True), np.array(statement.diagonal, copy=True)
    held = int(np.flatnonzero(counts)[0])
    wrong = rows.copy()
    wrong[held, 0] = np.nan
    return {
        "NaN in a mean": replace(statement, rows=wrong),
        "an infinite mean": replace(statement, rows=np.full_like(rows, -np.inf)),
        "NaN in the scatter": replace(statement, factors=np.full_like(factors, np.nan)),
        "means of 1e38": replace(statement, rows=np.full_like(rows, 1e38)),
        "factors of 1e38": replace(statement, factors=np.full_like(factors, 1e38)),
        "variances of 1e38": replace(statement, diagonal=np.full_like(diagonal, 1e38)),
        "negative counts": replace(statement, counts=-counts),
        "fractional counts": replace(statement, counts=counts + 0.5 * (counts > 0)),
        "NaN samples": replace(statement, counts=np.full_like(counts, np.nan)),
        "10^9 samples": replace(statement, counts=1e9 * (counts > 0)),
        "no samples at all": replace(statement, counts=0 * counts),
        "negative variances": replace(statement, diagonal=diagonal - diagonal.max() - 1),
        "too many features": replace(statement, rows=np.zeros((classes, features + 1))),
        "too many classes": replace(statement, rows=np.zeros((classes + 1, features)), counts=np.ones(classes + 1)),
        "counts of another shape": replace(statement, counts=np.ones((classes, 1))),
        "a full matrix for a diagonal": replace(statement, diagonal=np.eye(features)),
        "factors of another size": replace(statement, factors=np.ones((2, features - 1))),
        "one factor without its axis": replace(statement, factors=np.ones(features)),
        "more factors than features": replace(statement, factors=np.ones((features + 1, features))),
        "no scatter": replace(statement, factors=None, diagonal=None),
        "texts": replace(statement, rows=np.full(rows.shape, "1")),
        "objects": replace(statement, rows=np.full(rows.shape, None)),
        "complex numbers": replace(statement, rows=rows + 1j),
        "lists": replace(statement, counts=[1] * classes),
        "no statement": "statement",
    }


def _check_hostile(rule: Evidence, scene: EvidenceInputs) -> None:
    one = scene.receiver(0)
    theirs: list[Any] = [one.received[j] for j in range(SENDERS)]
    place, rest = 3, [j for j in range(SENDERS) if j != 3]
    without = one.call(rule, [theirs[j] for j in rest])
    for what, statement in hostile(theirs[place]).items():
        try:
            decision = one.call(rule, [*theirs[:place], statement, *theirs[place + 1 :]])
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__} instead of a reason: {error}") from error
        _check_left_out(decision, without, [place], rest, None, what)
        expect("refused" in decision.explain(place), f"{what}: explained as {decision.explain(place)!r}")
    everybody = one.call(rule, list(hostile(theirs[place]).values()))
    _assert_alike(_all(everybody)[::3], _all(one.call(rule, []))[::3], "with nobody but those, it is not as if alone")


def _check_few(rule: Evidence, scene: EvidenceInputs) -> None:
    one = scene.receiver(0)
    theirs = [one.received[j] for j in range(SENDERS)]
    alone = one.call(rule, [])
    expect(np.isfinite(_parts(alone)[0]).all(), "without others the head is not finite")
    known = set(alone.answers[0].known.tolist())
    held = set(np.flatnonzero(to_numpy(one.own.counts)).tolist())
    expect(known == held, f"alone it answers {sorted(known)}, and holds {sorted(held)}")
    _assert_alike(_all(one.call(rule, [theirs[0]])), _all(one.senders([0]).call(rule)), "one sender is not one sender")
    foreign = [replace(each, counts=np.where(to_numpy(one.own.counts) > 0, 0.0, each.counts)) for each in theirs]
    foreign = [each for each in foreign if each.counts.any()]
    decision = one.call(rule, foreign)
    expect(np.isfinite(_parts(decision)[0]).all(), "with nobody in common the head is not finite")
    nothing = Evaluation(np.zeros((0, FEATURES)), np.zeros(0, dtype=np.int64))
    newcomer = rule(rule.share(nothing, CLASSES), theirs, evaluation=nothing)
    expect(np.isfinite(_parts(newcomer)[0]).all(), "without own samples the head is not finite")
    single = Evaluation(one.samples.features[:1], one.samples.labels[:1])
    expect(
        np.isfinite(_parts(rule(rule.share(single, CLASSES), theirs, evaluation=single))[0]).all(),
        "with a single own sample the head is not finite",
    )
    constant = Evaluation(np.ones((4, FEATURES)), np.array([0, 0, 1, 1]))
    expect(
        np.isfinite(_parts(rule(rule.share(constant, CLASSES), theirs, evaluation=constant))[0]).all(),
        "with own samples that are all alike the head is not finite",
    )


def _check_mistakes(rule: Evidence, scene: EvidenceInputs) -> None:
    one = scene.receiver(0)
    heads = np.zeros((CLASSES, FEATURES))
    nothing = Evaluation(np.zeros((0, FEATURES)), np.zeros(0, dtype=np.int64))
    broken = replace(one.own, rows=np.full_like(one.own.rows, np.nan))
    mistakes: list[tuple[str, Callable[[], object]]] = [
        ("heads", lambda: rule(heads, heads[None], evaluation=one.samples)),  # type: ignore[arg-type]
        ("heads from others", lambda: rule(one.own, heads[None], evaluation=one.samples)),  # type: ignore[arg-type]
        ("no samples", lambda: rule(one.own, one.received)),
        ("samples of another size", lambda: rule(one.own, one.received, evaluation=scene.samples)),
        ("an own statement with NaN", lambda: rule(broken, one.received, evaluation=one.samples)),
        ("nothing at all", lambda: rule(rule.share(nothing, CLASSES), [], evaluation=nothing)),
        (
            "a mask of another length",
            lambda: rule(one.own, one.received, mask=np.ones(2, bool), evaluation=one.samples),
        ),
    ]
    expect_refused(mistakes)


def _check_torch(rule: Evidence, scene: EvidenceInputs, answer: EvidenceDecision) -> None:
    if find_spec("torch") is None:
        return
    import torch  # noqa: PLC0415 - only where it is installed

    decision = scene.map(torch.asarray).call(rule)
    for name in ("head", "bias", "weights", "reasons", "class_reasons", "errors"):
        expect(isinstance(getattr(decision, name), torch.Tensor), f"torch tensors in, but {name} is none")
    _assert_same(decision, _all(answer), "torch differs from NumPy")
    narrow = scene.map(lambda array: array.astype(np.float32) if array.dtype == np.float64 else array)
    head = _parts(narrow.call(rule))[0]
    expect(head.dtype == np.float32, f"32 bits in, {head.dtype} out")
    expect(np.allclose(head, _parts(answer)[0], atol=1e-3 * np.abs(head).max()), "32 bits differ by more than rounding")


def _parts(decision: EvidenceDecision) -> tuple[Any, Any, Any]:
    return to_numpy(decision.head), to_numpy(decision.weights), to_numpy(decision.reasons)


def _all(decision: EvidenceDecision) -> tuple[Any, ...]:
    return (*_parts(decision), to_numpy(decision.bias))


def _assert_same(decision: EvidenceDecision, expected: tuple[Any, ...], message: str) -> None:
    _assert_alike(_all(decision), expected, message)


def _assert_alike(found: tuple[Any, ...], expected: tuple[Any, ...], message: str) -> None:
    for one, other in zip(found, expected, strict=True):
        if one.dtype.kind == "i":
            expect(np.array_equal(one, other), f"{message} (reasons)")
        else:
            size = max(1.0, float(np.abs(other).max(initial=0)))
            expect(one.shape == other.shape and np.abs(one - other).max(initial=0) <= TOLERANCE * size, message)
