"""Bristle against a plain transcription of its specification, and the properties of its two stages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import Bristle, Evaluation, Pool
from bristle.rules import Integrator, Prioritiser, Reason
from bristle.rules.bristle import tier_sizes

CLASSES, FEATURES = 5, 8
SCORES = ["split", "literal", "leave-out", "author", "cubic"]


def plain_f1(head: Any, features: Any, labels: Any, c: int) -> float:
    predicted = [int(np.argmax(head @ x)) for x, y in zip(features, labels, strict=True) if y >= 0]
    actual = [int(y) for y in labels if y >= 0]
    tp = sum(p == c and a == c for p, a in zip(predicted, actual, strict=True))
    fp = sum(p == c and a != c for p, a in zip(predicted, actual, strict=True))
    fn = sum(p != c and a == c for p, a in zip(predicted, actual, strict=True))
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0.0


def plain_weight(s: float, w1: float, w2: float) -> float:
    sigmoid = 0.0 if s == -math.inf else 1 / (1 + math.exp(-s / 100)) if s > -7e4 else 0.0
    return max(0.0, w1 * sigmoid - w2)


def plain_integration(own: Any, models: Any, features: Any, labels: Any, rule: Integrator) -> Any:
    """Step by step as the specification tells it, one class and one model at a time."""
    familiar = [c for c in range(CLASSES) if sum(labels == c) >= rule.kappa]
    if not familiar:
        return own, np.zeros((len(models), CLASSES))
    own_f1 = {c: plain_f1(own, features, labels, c) for c in familiar}
    weights = np.zeros((len(models), CLASSES))
    for m, model in enumerate(models):
        f1 = {c: plain_f1(model, features, labels, c) for c in familiar}
        phi = min(rule.phi, max(1, len(familiar) - 1))
        best = sorted(familiar, key=lambda c: -f1[c])[:phi]
        values = [f1[c] for c in best]
        certainty = max(0.0, float(np.mean(values) - np.std(values)))
        score = {}
        for c in familiar:
            difference = rule.eta * abs(f1[c] - own_f1[c])
            worse = f1[c] < own_f1[c]
            if rule.score == "author":
                score[c] = -(difference ** (4 + own_f1[c])) if worse else difference ** (3 + own_f1[c])
            else:
                score[c] = -(difference**3) if worse else difference**3
        strict = {c: -math.inf if f1[c] < own_f1[c] else score[c] for c in familiar}
        if rule.score == "literal":
            foreign = sum(strict.values())
        elif rule.score == "leave-out":
            not_worse = [s for s in strict.values() if s > -math.inf]
            foreign = sum(not_worse) if not_worse else -math.inf
        else:
            foreign = sum(score[c] for c in best)
        for c in range(CLASSES):
            if c in familiar:
                s = score[c] if rule.score in ("author", "cubic") else strict[c]
                weights[m, c] = plain_weight(s, *rule.familiar) * certainty
            else:
                weights[m, c] = plain_weight(foreign, *rule.foreign) * certainty
    total = 1 + weights.sum(axis=0)
    head = (own + np.einsum("mc,mcd->cd", weights, models)) / total[:, None]
    return head, weights / total


def scene(seed: int, models: int, samples: list[int]) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    truth = 2 * rng.standard_normal((CLASSES, FEATURES))
    labels = np.concatenate([np.repeat(np.arange(CLASSES), samples), [-1, -1]])
    features = truth[labels] + rng.standard_normal((len(labels), FEATURES))
    own = truth + 2 * rng.standard_normal(truth.shape)
    received = truth + rng.uniform(0, 3, (models, 1, 1)) * rng.standard_normal((models, *truth.shape))
    return own, received, features, labels


@given(
    seed=st.integers(0, 10**6),
    models=st.integers(1, 6),
    samples=st.lists(st.integers(0, 6), min_size=CLASSES, max_size=CLASSES),
    score=st.sampled_from(SCORES),
    phi=st.integers(1, 5),
    kappa=st.integers(1, 6),
)
@settings(max_examples=150, deadline=None)
def test_integrator_is_the_specification(
    seed: int, models: int, samples: list[int], score: Any, phi: int, kappa: int
) -> None:
    own, received, features, labels = scene(seed, models, samples)
    rule = Integrator(phi=phi, kappa=kappa, score=score)
    decision = rule(own, received, evaluation=Evaluation(features, labels))
    head, weights = plain_integration(own, received, features, labels, rule)
    np.testing.assert_allclose(decision.head, head, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(decision.weights, weights, rtol=1e-9, atol=1e-12)


def test_a_worse_familiar_row_gets_no_weight_but_helps_foreign_ones() -> None:
    own, received, features, labels = scene(3, 12, [10, 10, 10, 0, 0])
    decision = Bristle()(own, received, evaluation=Evaluation(features, labels))
    f1 = np.array([[plain_f1(m, features, labels, c) for c in range(3)] for m in received])
    own_f1 = np.array([plain_f1(own, features, labels, c) for c in range(3)])
    assert (f1 < own_f1).any()
    assert not decision.weights[:, :3][f1 < own_f1].any()
    assert (decision.weights[:, 3:] > 0).any()


def test_weight_of_an_equal_model_is_its_certainty() -> None:
    """The paper: a weight of one for equally good classes, times the certainty."""
    own, _, features, labels = scene(1, 1, [10, 10, 10, 10, 10])
    decision = Bristle()(own, own[None], evaluation=Evaluation(features, labels))
    best = sorted((plain_f1(own, features, labels, c) for c in range(CLASSES)), reverse=True)[:3]
    certainty = np.mean(best) - np.std(best)
    np.testing.assert_allclose(decision.weights[0], certainty / (1 + certainty))
    np.testing.assert_allclose(decision.head, own)


def test_without_familiar_classes_nothing_is_integrated() -> None:
    own, received, features, labels = scene(0, 4, [9, 9, 0, 0, 0])
    for evaluation in (None, Evaluation(features, labels), Evaluation(features[:0], labels[:0])):
        decision = Bristle(kappa=10)(own, received, evaluation=evaluation)
        np.testing.assert_array_equal(decision.head, own)
        assert set(decision.reasons.tolist()) == {Reason.NOTHING_TO_TEST_ON}
        assert "too few held-out samples" in decision.explain(0)


def test_reasons_tell_useless_models_apart() -> None:
    """Three familiar classes along three axes: everything about a head can be read off it."""
    features, labels = np.tile(np.eye(CLASSES, FEATURES)[:3], (10, 1)), np.tile(np.arange(3), 10)
    own = np.eye(CLASSES, FEATURES)
    blind = -own  # Names a foreign class for every sample.
    swapped = own[[1, 0, 2, 3, 4]]  # Right about class 2 alone: among its two best the spread eats the mean.
    weaker = own.copy()
    weaker[0, 1] = 2  # Takes class 1 for class 0, so that both are worse.
    weaker[2] = 0
    weaker[2, 2] = 0.5
    decision = Bristle(foreign=(10, 5))(
        own, np.stack([blind, swapped, weaker, own]), evaluation=Evaluation(features, labels)
    )
    assert decision.reasons[[0, 1, 3]].tolist() == [Reason.UNCERTAIN, Reason.UNCERTAIN, Reason.KEPT]
    assert decision.reasons[2] == Reason.KEPT  # Class 2 is as good as the own.
    assert decision.weights[2, 2] > 0
    assert not decision.weights[2, :2].any()
    worse = Bristle(kappa=10)(own, np.stack([weaker[[0, 1, 4, 3, 2]]]), evaluation=Evaluation(features, labels))
    assert worse.reasons[0] in (Reason.UNCERTAIN, Reason.WORSE_EVERYWHERE)
    assert "tested and rejected" in worse.explain(0)


@given(st.integers(1, 400), st.integers(1, 60), st.floats(0, 1))
@settings(max_examples=300)
def test_quotas_fill_beta_and_fit_the_tiers(received: int, beta: int, alpha: float) -> None:
    quotas = Prioritiser(alpha=alpha, beta=beta).quotas(received)
    tiers = tier_sizes(received)
    assert sum(tiers) == received
    assert max(tiers) - min(tiers) <= 1
    assert sum(quotas) == min(beta, received)
    assert all(0 <= quota <= tier for quota, tier in zip(quotas, tiers, strict=True))


def test_quotas_of_the_paper() -> None:
    assert Prioritiser().quotas(300) == (11, 14, 5)
    assert Prioritiser(alpha=0).quotas(300) == (30, 0, 0)
    assert Prioritiser(alpha=1).quotas(300) == (0, 0, 30)
    assert Prioritiser(alpha=0).quotas(60) == (20, 10, 0)  # The low tier is used up; its neighbour takes the rest.
    assert Prioritiser(alpha=1).quotas(60) == (0, 10, 20)
    assert Prioritiser(alpha=0.5, beta=59).quotas(60) == (20, 20, 19)


def test_prioritiser_draws_each_tier_uniformly() -> None:
    rng = np.random.default_rng(0)
    own = np.zeros((1, 4))
    received = rng.standard_normal((45, 1, 4)) * np.linspace(1, 50, 45)[:, None, None]
    rank = np.argsort(np.argsort(np.linalg.norm(received[:, 0], axis=1)))
    prioritiser = Prioritiser(alpha=0.4, beta=10)
    drawn = np.stack([prioritiser(own, received, rng=rng) for _ in range(4000)])
    assert (drawn.sum(axis=1) == 10).all()
    for tier, quota in enumerate(prioritiser.quotas(45)):
        members = rank // 15 == tier
        assert (drawn[:, members].sum(axis=1) == quota).all()
        expected = quota / 15
        spread = math.sqrt(expected * (1 - expected) / 4000)
        assert np.abs(drawn[:, members].mean(axis=0) - expected).max() < 5 * spread


def test_stages_apart_equal_the_rule() -> None:
    own, received, features, labels = scene(7, 50, [10, 10, 10, 0, 0])
    rule = Bristle(beta=12)
    draws = np.random.default_rng(1).random(50)
    mask = rule.prioritiser(own, received, rng=draws)
    evaluation = Evaluation(features, labels)
    apart = rule.integrator(own, received, mask=mask, evaluation=evaluation)
    whole = rule(own, received, evaluation=evaluation, rng=draws)
    np.testing.assert_allclose(whole.head, apart.head)
    np.testing.assert_allclose(whole.weights, apart.weights)
    assert (whole.reasons[~mask] == Reason.NOT_SAMPLED).all()
    assert (whole.reasons[mask] == apart.reasons[mask]).all()
    assert "not sampled" in whole.explain(int(np.flatnonzero(~mask)[0]))


def test_prioritiser_passes_only_usable_models() -> None:
    rng = np.random.default_rng(0)
    received = rng.standard_normal((2, 9, 1, 4))
    received[0, 3] = np.nan
    mask = np.ones((2, 9), dtype=bool)
    mask[1, :6] = False
    passed = Prioritiser(beta=4)(np.zeros((2, 1, 4)), received, mask=mask, rng=rng)
    assert passed.sum(axis=1).tolist() == [4, 3]
    assert not passed[0, 3]
    assert not passed[1, :6].any()


def test_attackers_that_copy_a_victims_rows_gain_nothing_on_tested_classes() -> None:
    """Label flippers, far more than the honest: the head moves only towards honest rows."""
    own, honest, features, labels = scene(11, 3, [10, 10, 10, 10, 10])
    flipped = np.roll(honest, 1, axis=1)
    everyone = np.concatenate([honest, np.repeat(flipped, 8, axis=0)])
    with_attack = Bristle()(own, everyone, evaluation=Evaluation(features, labels))
    assert with_attack.weights[3:].sum() < 0.02 * max(1e-9, with_attack.weights[:3].sum())


def test_pool_of_many_receivers_equals_separate_calls() -> None:
    rng = np.random.default_rng(5)
    heads = rng.standard_normal((40, CLASSES, FEATURES)).astype(np.float32)
    own, features = heads[:6].copy(), rng.standard_normal((6, 30, FEATURES)).astype(np.float32)
    labels = np.tile(np.repeat(np.arange(3), 10), (6, 1))
    index, draws = np.stack([rng.permutation(40)[:35] for _ in range(6)]), rng.random((6, 35))
    together = Bristle(beta=9)(own, Pool(heads, index), evaluation=Evaluation(features, labels), rng=draws)
    for i in range(6):
        alone = Bristle(beta=9)(own[i], heads[index[i]], evaluation=Evaluation(features[i], labels[i]), rng=draws[i])
        np.testing.assert_allclose(together.head[i], alone.head, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 1.5}, "alpha must be a number between 0 and 1, not 1.5"),
        ({"beta": 0}, "beta must be a whole number of at least 1, not 0"),
        ({"phi": 0}, "phi"),
        ({"kappa": -1}, "kappa"),
        ({"eta": float("nan")}, "eta"),
        ({"familiar": (1,)}, "familiar must be a pair"),
        ({"foreign": (10, -4)}, "foreign must be a pair"),
        ({"score": "strict"}, "score must be one of split, literal"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bristle(**options)
