"""`check_rule`: a conformance test for rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np

from bristle._core import Array, Pool, to_numpy
from bristle.learning.metrics import Evaluation
from bristle.rules import Context, Decision, Reason, Rule, State
from bristle.rules.evidence import Evidence
from bristle.testing.evidence import check_evidence
from bristle.testing.expectation import expect, expect_refused, other_libraries

TOLERANCE = 1e-8
CLASSES, FEATURES, RECEIVERS, SAMPLES = 4, 6, 3, 36


@dataclass(frozen=True)
class RuleInputs:
    """Random inputs for a call with a batch of receivers."""

    own: Array
    received: Array
    mask: Array | None
    features: Array
    labels: Array
    previous: Array
    draws: Array
    claims: Array
    senders: Array

    def call(self, rule: Rule, received: Any = None, state: State | None = None) -> Decision:
        """Call the rule with everything that a rule may be given."""
        return rule(
            self.own,
            self.received if received is None else received,
            mask=self.mask,
            evaluation=Evaluation(self.features, self.labels),
            claims=self.claims,
            context=Context(iteration=3, total=10, previous=self.previous, senders=self.senders, state=state),
            rng=self.draws,
        )

    def receiver(self, i: int) -> RuleInputs:
        """Return the same inputs for one receiver, without the batch axis."""
        return self.map(lambda array: array[i, ...])

    def models(self, index: Any) -> RuleInputs:
        """Return the same inputs with only the models at `index`, in that order."""
        names = ("received", "mask", "draws", "claims", "senders")
        known = {name: values for name in names if (values := getattr(self, name)) is not None}
        return replace(self, **{name: values[:, index] for name, values in known.items()})

    def map(self, change: Callable[[Array], Array]) -> RuleInputs:
        """Apply `change` to every array."""
        return RuleInputs(**{name: None if array is None else change(array) for name, array in vars(self).items()})


def check_rule(rule: Rule, *, seed: int = 0) -> None:
    """Check that a rule keeps what all rules promise; an AssertionError says what it does not keep.

    Deterministic; batched equals looped; a pool equals an array; the order of senders changes nothing; absent,
    non-finite and huge models change nothing and carry a reason; no models, one model and too few models leave a
    finite head; weights are shares; inputs stay as they are; NumPy equals torch and the strict array API where
    installed; a caller's mistake is a ValueError; memory is kept per receiver and changes nothing but by the state that
    is passed; a rule that expects f attackers holds against f.

    A rule whose peers exchange evidence is checked with statements instead: see `check_evidence`.
    """
    if isinstance(rule, Evidence):
        check_evidence(rule, seed=seed)
        return
    rng = np.random.default_rng(seed)
    scene = _scene(rng, models=max(12, 4 * _expected_attackers(rule) + 6))
    answer = scene.call(rule)
    _check_answer(scene, answer)
    _check_unchanged_and_repeatable(rule, scene, answer)
    _check_batch_and_pool(rule, scene, answer)
    _check_order(rule, scene, answer, rng)
    _check_refusals(rule, scene)
    _check_few_models(rule, scene)
    _check_mistakes(rule, scene)
    _check_libraries(rule, scene, answer)
    _check_small_numbers(rule, scene, answer)
    _check_nobody(rule, scene)
    _check_memory(rule, scene)
    _check_breakdown(rule, rng)


def _expected_attackers(rule: Rule) -> int:
    return int(vars(rule).get("f") or 0)


def _scene(rng: np.random.Generator, *, models: int) -> RuleInputs:
    truth = rng.standard_normal((CLASSES, FEATURES))
    labels = np.repeat(np.arange(3), SAMPLES // 3)  # Three classes can be tested, one cannot.
    features = truth[labels] + rng.standard_normal((RECEIVERS, SAMPLES, FEATURES))
    own = truth + rng.standard_normal((RECEIVERS, CLASSES, FEATURES))
    noise = rng.uniform(0.3, 2, (RECEIVERS, models, 1, 1))
    return RuleInputs(
        own=own,
        received=truth + noise * rng.standard_normal((RECEIVERS, models, CLASSES, FEATURES)),
        mask=None,
        features=features,
        labels=np.tile(labels, (RECEIVERS, 1)),
        previous=own - 0.3 * rng.standard_normal(own.shape),
        draws=rng.random((RECEIVERS, models)),
        claims=rng.random((RECEIVERS, models, CLASSES)) < 0.5,
        senders=np.argsort(rng.random((RECEIVERS, models)), axis=1) + 100,
    )


def _check_answer(scene: RuleInputs, answer: Decision) -> None:
    head, weights, reasons = map(to_numpy, (answer.head, answer.weights, answer.reasons))
    models = scene.received.shape[1]
    expect(head.shape == scene.own.shape, f"head has shape {head.shape}, own {scene.own.shape}")
    expect(head.dtype == scene.own.dtype, f"head is of type {head.dtype}, own of type {scene.own.dtype}")
    expect(np.isfinite(head).all(), "the head is not finite")
    expected = (RECEIVERS, models, CLASSES)
    expect(weights.shape == expected, f"weights have shape {weights.shape}, not {expected}")
    expect(reasons.shape == expected[:2], f"reasons have shape {reasons.shape}, not {expected[:2]}")
    expect((weights >= -TOLERANCE).all(), "a weight is negative")
    expect((weights.sum(axis=1) <= 1 + TOLERANCE).all(), "the models' shares of a row sum to more than 1")
    for code in np.unique(reasons):
        Reason(int(code))
    used = (weights > TOLERANCE).any(axis=-1)
    kept = np.isin(reasons, (Reason.KEPT, Reason.CLIPPED))
    expect((kept | ~used).all(), "a model has weight, but its reason says that it was not kept")
    explained = [answer.explain((i, j)) for i in range(RECEIVERS) for j in range(models)]
    expect(all(explained), "a model's fate is not explained")


def _check_unchanged_and_repeatable(rule: Rule, scene: RuleInputs, answer: Decision) -> None:
    copy = scene.map(np.copy)
    again = copy.call(rule)
    expect(to_numpy(again.head).tobytes() == to_numpy(answer.head).tobytes(), "the same inputs give other bits")
    for name, array in vars(scene).items():
        expect(array is None or np.array_equal(array, vars(copy)[name]), f"the rule has changed its input {name}")
    seeded = [rule(scene.own, scene.received, rng=np.random.default_rng(5)).head for _ in range(2)]
    expect(to_numpy(seeded[0]).tobytes() == to_numpy(seeded[1]).tobytes(), "the same seed gives other bits")


def _check_batch_and_pool(rule: Rule, scene: RuleInputs, answer: Decision) -> None:
    for i in range(RECEIVERS):
        alone = scene.receiver(i).call(rule)
        _assert_same(alone, (answer.head[i], answer.weights[i], answer.reasons[i]), "one receiver differs from a batch")
    receivers, models = scene.draws.shape
    heads = scene.received.reshape(-1, CLASSES, FEATURES)
    index = np.arange(receivers * models).reshape(receivers, models)
    for spare in (0, 20 * len(heads)):  # Dense and sparse pools take different ways.
        everyone = np.concatenate([heads, np.zeros((spare, CLASSES, FEATURES))])
        _assert_same(scene.call(rule, Pool(everyone, index)), _parts(answer), "a pool differs from an array")
    twice = scene.map(lambda array: np.stack([array, array]))
    nested = twice.call(rule)
    expect(to_numpy(nested.head).shape == (2, *scene.own.shape), "two batch axes do not come back")
    _assert_same(nested, tuple(np.stack([a, a]) for a in _parts(answer)), "two batch axes differ from one")


def _check_order(rule: Rule, scene: RuleInputs, answer: Decision, rng: np.random.Generator) -> None:
    order = rng.permutation(scene.received.shape[1])
    head, weights, reasons = _parts(answer)
    expected = (head, weights[:, order], reasons[:, order])
    _assert_same(scene.models(order).call(rule), expected, "the order of senders matters")


def _check_refusals(rule: Rule, scene: RuleInputs) -> None:
    bad = (1, 4, 6)
    good = [j for j in range(scene.received.shape[1]) if j not in bad]
    expected = scene.models(good).call(rule)
    received = scene.received.copy()
    received[:, bad[0], 0, 0], received[:, bad[1], 1], received[:, bad[2]] = np.nan, -np.inf, 1e38
    codes = (Reason.NOT_FINITE, Reason.NOT_FINITE, Reason.TOO_LARGE)
    poisoned = replace(scene, received=received)
    mask = np.ones(scene.draws.shape, dtype=bool)
    mask[:, bad] = False
    absent = replace(poisoned, mask=mask)
    pool = Pool(received.reshape(-1, CLASSES, FEATURES), np.arange(received[..., 0, 0].size).reshape(mask.shape))
    for decision, reasons in (
        (poisoned.call(rule), codes),
        (poisoned.call(rule, pool), codes),
        (absent.call(rule), (Reason.ABSENT,) * 3),
    ):
        head, weights, given = _parts(decision)
        expect(np.isfinite(head).all(), "a model that is unfit for use has reached the head")
        expect(np.allclose(head, _parts(expected)[0], atol=TOLERANCE), "a model that is left out changes the head")
        expect(not weights[:, bad].any(), "a model that is left out has weight")
        expect((given[:, bad] == np.array(reasons)).all(), f"refused for {given[0, bad]}, not for {reasons}")
        expect(np.array_equal(given[:, good], _parts(expected)[2]), "a model that is left out changes others' reasons")
    uneven = replace(poisoned, mask=np.tril(np.ones(mask.shape, dtype=bool), k=5))
    whole = uneven.call(rule)
    for i in range(RECEIVERS):
        _assert_same(uneven.receiver(i).call(rule), tuple(a[i] for a in _parts(whole)), "receivers with gaps differ")


def _check_few_models(rule: Rule, scene: RuleInputs) -> None:
    for count in (0, 1, 2):
        decision = scene.models(list(range(count))).call(rule)
        expect(np.isfinite(_parts(decision)[0]).all(), f"{count} models give a head that is not finite")
        if count == 0:
            expect(np.array_equal(_parts(decision)[0], scene.own), "without models the own head must stay")
    nobody = replace(scene, mask=np.zeros(scene.draws.shape, dtype=bool)).call(rule)
    expect(np.array_equal(_parts(nobody)[0], scene.own), "with every model masked the own head must stay")
    try:
        alone = rule(scene.own, scene.received)
    except Exception as error:
        raise AssertionError(
            f"called without evaluation, context and randomness it raises {type(error).__name__}: {error}; "
            "a rule that lacks something answers with stay()"
        ) from error
    expect(np.isfinite(_parts(alone)[0]).all(), "a call with heads alone gives a head that is not finite")


def _check_mistakes(rule: Rule, scene: RuleInputs) -> None:
    own, received = scene.own, scene.received
    broken = own.copy()
    broken[0, 0, 0] = np.nan
    mistakes: list[tuple[str, Callable[[], object]]] = [
        ("features of another size", lambda: rule(own, received[..., :-1])),
        ("another batch", lambda: rule(own[:-1], received)),
        ("another type", lambda: rule(own, received.astype(np.float32))),
        ("integers", lambda: rule(own.astype(int), received.astype(int))),
        ("a list", lambda: rule(own, list(received))),
        ("an own head with NaN", lambda: rule(broken, received)),
        ("a mask of another shape", lambda: rule(own, received, mask=np.ones(3, dtype=bool))),
        ("a mask of numbers", lambda: rule(own, received, mask=np.ones(scene.draws.shape))),
        ("an index out of range", lambda: rule(own, Pool(received[0], np.full((RECEIVERS, 2), 10**6)))),
        ("labels out of range", lambda: rule(own, received, evaluation=Evaluation(scene.features, scene.labels + 9))),
        ("claims of another shape", lambda: rule(own, received, claims=scene.claims[:, :1])),
    ]
    expect_refused(mistakes)


def _check_libraries(rule: Rule, scene: RuleInputs, answer: Decision) -> None:
    for library in other_libraries():
        name, decision = library.__name__, scene.map(library.asarray).call(rule)
        xp = array_api_compat.array_namespace(library.asarray(scene.own))
        expect(array_api_compat.array_namespace(decision.head) is xp, f"{name} arrays in, others out")
        _assert_same(decision, _parts(answer), f"{name} differs from NumPy")


def _check_small_numbers(rule: Rule, scene: RuleInputs, answer: Decision) -> None:
    """In 32 bits, and with positions in a pool of any integer type."""
    narrow = scene.map(lambda array: array.astype(np.float32) if array.dtype == np.float64 else array)
    head = _parts(narrow.call(rule))[0]
    expect(head.dtype == np.float32, f"32-bit heads in, {head.dtype} out")
    expect(np.allclose(head, _parts(answer)[0], atol=1e-3), "32 bits differ from 64 by more than rounding")
    heads = scene.received.reshape(-1, CLASSES, FEATURES)
    for kind in (np.int16, np.int32, np.uint8):
        if len(heads) <= np.iinfo(kind).max:
            index = np.arange(len(heads)).reshape(scene.draws.shape).astype(kind)
            _assert_same(scene.call(rule, Pool(heads, index)), _parts(answer), f"an index of {kind.__name__} differs")
    for size in (-1e14, 1e14):
        received = narrow.received.copy()
        received[:, 0] = size / CLASSES / FEATURES
        decision = replace(narrow, received=received).call(rule)
        expect(np.isfinite(_parts(decision)[0]).all(), "a huge model makes the head non-finite")


def _check_nobody(rule: Rule, scene: RuleInputs) -> None:
    empty = scene.map(lambda array: array[:0])
    decision = empty.call(rule)
    shapes = tuple(part.shape for part in _parts(decision))
    models = scene.draws.shape[1]
    expected = ((0, CLASSES, FEATURES), (0, models, CLASSES), (0, models))
    expect(shapes == expected, f"a batch of no receivers gives shapes {shapes}, not {expected}")


def _check_memory(rule: Rule, scene: RuleInputs) -> None:
    """Check that a batch with its state equals its receivers alone, and that without state the rule starts afresh."""
    first = scene.call(rule)
    if first.state is None:
        return
    second = scene.call(rule, state=first.state)
    expect(second.state is not None, "the rule forgets everything in its second call")
    for name, values in first.state.items():
        expect(values.shape[0] == RECEIVERS, f"state {name!r} has shape {values.shape}, not receivers first")
    for i in range(RECEIVERS):
        mine = {name: values[i, ...] for name, values in first.state.items()}
        alone = scene.receiver(i).call(rule, state=mine)
        expected = (second.head[i], second.weights[i], second.reasons[i])
        _assert_same(alone, expected, "one receiver with memory differs from a batch")
        for name, values in (alone.state or {}).items():
            same = np.allclose(values, (second.state or {})[name][i], rtol=0, atol=TOLERANCE)
            expect(same, f"one receiver remembers another {name!r} than in a batch")
    _assert_same(scene.call(rule), _parts(first), "the rule remembers something that is not in its state")


def _check_breakdown(rule: Rule, rng: np.random.Generator) -> None:
    f = _expected_attackers(rule)
    if not f:
        return
    honest = rng.standard_normal((4 * f + 6, CLASSES, FEATURES))
    for size in (10.0, 1e6, 1e12):
        attack = size * rng.choice([-1.0, 1.0], (f, CLASSES, FEATURES))
        head = to_numpy(rule(honest[0], np.concatenate([honest[1:], attack])).head)
        reach = np.linalg.norm(honest.reshape(len(honest), -1), axis=1).max()
        expect(np.linalg.norm(head) <= 2 * reach, f"{f} attackers of size {size:g} break a rule that expects {f}")


def _parts(decision: Decision) -> tuple[Any, ...]:
    return to_numpy(decision.head), to_numpy(decision.weights), to_numpy(decision.reasons)


def _assert_same(decision: Decision, expected: tuple[Any, ...], message: str) -> None:
    head, weights, reasons = _parts(decision)
    expect(np.allclose(head, expected[0], rtol=0, atol=TOLERANCE), f"{message} (head)")
    expect(np.allclose(weights, expected[1], rtol=0, atol=TOLERANCE), f"{message} (weights)")
    expect(np.array_equal(reasons, expected[2]), f"{message} (reasons)")
