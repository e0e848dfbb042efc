"""Every baseline against its published formula, written out plainly, on random heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import Context, Evaluation, Pool, rules
from bristle.rules import Reason

Heads = Any
SHAPE = (3, 4)


def plain_krum_scores(x: Heads, f: int) -> list[float]:
    n = len(x)
    scores = []
    for i in range(n):
        squared = sorted(float(((x[i] - x[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(squared[: n - f - 2]))
    return scores


def plain_krum(x: Heads, f: int) -> Any:
    return x[int(np.argmin(plain_krum_scores(x, f)))]


def plain_multi_krum(x: Heads, f: int) -> Any:
    return x[np.argsort(plain_krum_scores(x, f))[: len(x) - f]].mean(axis=0)


def plain_trimmed_mean(x: Heads, f: int) -> Any:
    return np.sort(x, axis=0)[f : len(x) - f].mean(axis=0)


def plain_mean_around_median(x: Heads, f: int) -> Any:
    nearest = np.argsort(np.abs(x - np.median(x, axis=0)), axis=0)[: len(x) - f]
    return np.take_along_axis(x, nearest, axis=0).mean(axis=0)


def plain_bulyan(x: Heads, f: int) -> Any:
    remaining, chosen = list(range(len(x))), []
    for _ in range(len(x) - 2 * f):
        among = x[remaining]
        n, scores = len(among), []
        for i in range(n):
            squared = sorted(float(((among[i] - among[j]) ** 2).sum()) for j in range(n) if j != i)
            scores.append(sum(squared[: max(1, n - f - 2)]))
        # Two heads that are each other's only neighbour tie: the one nearer to the own head wins.
        equal = [remaining[i] for i in range(n) if scores[i] <= min(scores) * (1 + 1e-6)]
        winner = min(equal, key=lambda j: float(((x[j] - x[0]) ** 2).sum()))
        remaining.remove(winner)
        chosen.append(winner)
    return plain_mean_around_median(x[chosen], 2 * f)


def plain_geometric_median(x: Heads, nu: float, steps: int) -> Any:
    distance = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=(2, 3)))
    medoid = int(np.argmin(distance.sum(axis=1)))
    z = x[np.argsort(distance[medoid])[: -(-len(x) // 2)]].mean(axis=0)
    for _ in range(steps):
        beta = 1 / np.maximum(nu, np.sqrt(((x - z) ** 2).sum(axis=(1, 2))))
        z = np.tensordot(beta, x, 1) / beta.sum()
    return z


def plain_centered_clipping(x: Heads, tau: float, steps: int) -> Any:
    v = x[0]
    for _ in range(steps):
        distance = np.sqrt(((x - v) ** 2).sum(axis=(1, 2)))
        factor = np.minimum(1, tau / np.maximum(distance, 1e-300))
        v = v + ((x - v) * factor[:, None, None]).mean(axis=0)
    return v


def plain_nearest(x: Heads, f: int) -> Any:
    distance = ((x - x[0]) ** 2).sum(axis=(1, 2))
    return x[np.argsort(distance)[: len(x) - f]].mean(axis=0)


def plain_self_clipping(x: Heads, tau: float) -> Any:
    clipped = []
    for model in x:
        difference = model - x[0]
        clipped.append(x[0] + difference * min(1.0, tau / max(float(np.linalg.norm(difference)), 1e-300)))
    return np.mean(clipped, axis=0)


FORMULAS: list[tuple[rules.Rule, Callable[[Heads], Any]]] = [
    (rules.FedAvg(), lambda x: x.mean(axis=0)),
    (rules.Local(), lambda x: x[0]),
    (rules.Median(), lambda x: np.median(x, axis=0)),
    (rules.TrimmedMean(f=2), lambda x: plain_trimmed_mean(x, 2)),
    (rules.MeanAroundMedian(f=3), lambda x: plain_mean_around_median(x, 3)),
    (rules.Krum(f=2), lambda x: plain_krum(x, 2)),
    (rules.Krum(f=2, with_own=True), lambda x: (plain_krum(x, 2) + x[0]) / 2),
    (rules.MultiKrum(f=2), lambda x: plain_multi_krum(x, 2)),
    (rules.Bulyan(f=1), lambda x: plain_bulyan(x, 1)),
    (rules.GeometricMedian(nu=0.1, iterations=5), lambda x: plain_geometric_median(x, 0.1, 5)),
    (rules.CenteredClipping(tau=1.0, iterations=4), lambda x: plain_centered_clipping(x, 1.0, 4)),
    (rules.NearestNeighbourAveraging(f=3), lambda x: plain_nearest(x, 3)),
    (rules.SelfCenteredClipping(tau=2.0), lambda x: plain_self_clipping(x, 2.0)),
]


@pytest.mark.parametrize(
    ("rule", "formula"), FORMULAS, ids=lambda value: repr(value) if hasattr(value, "decide") else ""
)
@given(count=st.integers(7, 20), seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_rule_is_its_formula(rule: rules.Rule, formula: Callable[[Heads], Any], count: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((count, *SHAPE))
    np.testing.assert_allclose(rule(x[0], x[1:]).head, formula(x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("count", [2, 3, 4, 9, 30, 65, 383, 384, 385, 500])
def test_median_and_trimming_at_every_size(count: int) -> None:
    """Small and large counts are sorted in different ways."""
    x = np.random.default_rng(count).standard_normal((count, 2, 50)).astype(np.float32)
    np.testing.assert_allclose(rules.Median()(x[0], x[1:]).head, np.median(x, axis=0), rtol=1e-6)
    f = (count - 1) // 3
    np.testing.assert_allclose(rules.TrimmedMean(f=f)(x[0], x[1:]).head, plain_trimmed_mean(x, f), atol=1e-6)


def test_wide_heads_are_worked_on_in_blocks() -> None:
    x = np.random.default_rng(0).standard_normal((9, 10, 3000))
    np.testing.assert_array_equal(rules.Median()(x[0], x[1:]).head, np.median(x, axis=0))
    np.testing.assert_allclose(rules.Krum(f=2)(x[0], x[1:]).head, plain_krum(x, 2))
    np.testing.assert_allclose(
        rules.NearestNeighbourMixing(f=3)(x[0], x[1:])[0], plain_nearest(x, 3), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("count", [4, 5, 8, 9])
def test_clipping_without_a_radius_takes_the_median_distance(count: int) -> None:
    x = np.random.default_rng(count).standard_normal((count, *SHAPE)) * np.arange(1, count + 1)[:, None, None]
    distance = np.linalg.norm((x - x[0]).reshape(count, -1), axis=1)
    of_others = float(np.median(distance[1:]))
    decision = rules.SelfCenteredClipping()(x[0], x[1:])
    np.testing.assert_allclose(decision.head, plain_self_clipping(x, of_others), atol=1e-9)
    assert decision.reasons.tolist() == [
        int(Reason.KEPT if each <= of_others else Reason.CLIPPED) for each in distance[1:]
    ]
    walked = rules.CenteredClipping(iterations=1)(x[0], x[1:])
    np.testing.assert_allclose(walked.head, plain_centered_clipping(x, float(np.median(distance)), 1), atol=1e-9)


def test_clipping_behind_a_step_is_clipping_of_what_the_step_leaves() -> None:
    x = np.random.default_rng(3).standard_normal((9, *SHAPE))
    mixed = np.stack([plain_nearest(np.concatenate([x[i : i + 1], np.delete(x, i, axis=0)]), 2) for i in range(9)])
    distance = np.linalg.norm((mixed - mixed[0]).reshape(9, -1), axis=1)
    tau = float(np.sort(distance)[4:6].mean())
    decision = rules.chain(rules.NearestNeighbourMixing(f=2), rules.SelfCenteredClipping(tau=tau))(x[0], x[1:])
    np.testing.assert_allclose(decision.head, plain_self_clipping(mixed, tau), atol=1e-9)


@given(st.integers(6, 14), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_shares_reproduce_the_head_for_rules_that_combine_whole_heads(count: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((count, *SHAPE))
    for name in ("fedavg", "krum", "multi-krum", "geometric-median", "centered-clipping", "self-centered-clipping"):
        rule = rules.create(name, **({"f": 2} if "krum" in name else {}))
        decision = rule(x[0], x[1:])
        own = 1 - decision.weights.sum(axis=0)
        combined = own[:, None] * x[0] + np.einsum("mc,mcd->cd", decision.weights, x[1:])
        np.testing.assert_allclose(combined, decision.head, atol=1e-9)


def softmax_loss(head: Any, features: Any, labels: Any) -> float:
    logits = features @ head.T
    return float(np.mean([np.log(np.exp(row).sum()) - row[y] for row, y in zip(logits, labels, strict=True)]))


@given(st.integers(1, 12), st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_mozi_filters_by_distance_then_by_loss(models: int, seed: int, with_previous: bool) -> None:
    rng = np.random.default_rng(seed)
    own, received = rng.standard_normal(SHAPE), rng.standard_normal((models, *SHAPE))
    features, labels = rng.standard_normal((20, SHAPE[1])), rng.integers(0, 3, 20)
    previous = rng.standard_normal(SHAPE) if with_previous else None
    decision = rules.Mozi(rho=0.5)(
        own, received, evaluation=Evaluation(features, labels), context=Context(previous=previous)
    )
    near = np.argsort(((received - own) ** 2).sum(axis=(1, 2)))[: math.ceil(models / 2)]
    yardstick = softmax_loss(own if previous is None else previous, features, labels)
    kept = [j for j in near if softmax_loss(received[j], features, labels) <= yardstick]
    expected = 0.5 * own + 0.5 * received[kept].mean(axis=0) if kept else own
    np.testing.assert_allclose(decision.head, expected, atol=1e-12)
    assert sorted(kept) == np.flatnonzero(decision.reasons == Reason.KEPT).tolist()
    assert (decision.reasons == Reason.TOO_FAR).sum() == models - len(near)


@pytest.mark.parametrize("iteration", [1, 6, 11])
def test_balance_narrows_as_training_goes_on(iteration: int) -> None:
    rng = np.random.default_rng(2)
    own = rng.standard_normal(SHAPE)
    direction = rng.standard_normal(SHAPE)
    direction /= np.linalg.norm(direction)
    lengths = np.linspace(0.01, 0.5, 40) * np.linalg.norm(own)
    received = own + lengths[:, None, None] * direction
    decision = rules.Balance(gamma=0.3, kappa=1.0)(own, received, context=Context(iteration=iteration, total=10))
    reach = 0.3 * math.exp(-(iteration - 1) / 10) * np.linalg.norm(own)
    accepted = lengths <= reach
    assert 0 < accepted.sum() < 40
    np.testing.assert_array_equal(decision.reasons == Reason.KEPT, accepted)
    np.testing.assert_allclose(decision.head, 0.5 * own + 0.5 * received[accepted].mean(axis=0))


@given(st.integers(1, 10), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_fltrust_weighs_by_cosine_and_rescales(models: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    previous, own = rng.standard_normal((2, *SHAPE))
    received = rng.standard_normal((models, *SHAPE)) * 3
    decision = rules.FLTrust()(own, received, context=Context(previous=previous))
    root = own - previous
    total, update = 1.0, root.copy()
    for model in received:
        g = model - previous
        cosine = max(0.0, float((g * root).sum() / np.linalg.norm(g) / np.linalg.norm(root)))
        total += cosine
        update += cosine * g * np.linalg.norm(root) / np.linalg.norm(g)
    np.testing.assert_allclose(decision.head, previous + update / total, atol=1e-9)


def test_fltrust_knows_no_direction_at_the_start() -> None:
    received = np.random.default_rng(0).standard_normal((4, *SHAPE))
    decision = rules.FLTrust()(np.zeros(SHAPE), received)
    np.testing.assert_array_equal(decision.head, np.zeros(SHAPE))
    assert (decision.reasons == Reason.OPPOSED).all()


@pytest.mark.parametrize(
    ("rule", "needs"),
    [
        (rules.TrimmedMean(f=2), 5),
        (rules.Krum(f=2), 5),
        (rules.MultiKrum(f=2), 5),
        (rules.MeanAroundMedian(f=2), 3),
        (rules.NearestNeighbourAveraging(f=2), 3),
        (rules.Bulyan(f=1), 5),
    ],
    ids=repr,
)
def test_too_few_models_keep_the_own_head_and_say_so(rule: rules.Rule, needs: int) -> None:
    x = np.random.default_rng(0).standard_normal((needs, *SHAPE))
    few = rule(x[0], x[1 : needs - 1])
    np.testing.assert_array_equal(few.head, x[0])
    assert (few.reasons == Reason.TOO_FEW_MODELS).all()
    assert "too few models" in few.explain(0)
    assert (rule(x[0], x[1:]).reasons != Reason.TOO_FEW_MODELS).all()


def test_one_huge_head_costs_the_others_no_digits() -> None:
    """Distances among honest heads stay right next to a head that is just small enough to be let in."""
    rng = np.random.default_rng(0)
    honest = (3 + 1e-3 * rng.standard_normal((12, *SHAPE))).astype(np.float32)
    attack = np.full((3, *SHAPE), 1e13, dtype=np.float32)
    for name in ("krum", "multi-krum", "nearest-neighbour-averaging", "geometric-median"):
        rule = rules.create(name, **({} if name == "geometric-median" else {"f": 3}))
        head = rule(honest[0], np.concatenate([attack, honest[1:]])).head
        assert np.abs(head - 3).max() < 1e-2, name
    index = np.arange(14)[None]
    pool = rules.Krum(f=3)(honest[:1], Pool(np.concatenate([attack, honest[1:]]), index))
    assert np.abs(pool.head - 3).max() < 1e-2


@pytest.mark.parametrize("name", ["median", "trimmed-mean", "mean-around-median"])
@pytest.mark.parametrize("twist", ["same", "one heard less", "own unheard", "look-alike"])
def test_receivers_that_hold_the_same_heads_get_what_each_would_alone(name: str, twist: str) -> None:
    rng = np.random.default_rng(5)
    heads = rng.normal(size=(9, 4, 6)).astype(np.float32)
    if twist == "look-alike":
        heads[3] = heads[0]
        heads[3, -1, -1] += 1  # differs from the first head in the last number only
    own = heads[:5].copy()
    index = np.array([[j for j in range(9) if j != i] for i in range(5)])
    if twist == "one heard less":
        index[2, 0] = index[2, 1]
    if twist == "own unheard":
        own[1] += 1
    rule = rules.create(name, **({} if name == "median" else {"f": 2}))
    together = rule(own, Pool(heads, index))
    for i in range(5):
        alone = rule(own[i], heads[index[i]])
        np.testing.assert_allclose(together.head[i], alone.head, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(together.weights[i], alone.weights, rtol=1e-6, atol=1e-7)
