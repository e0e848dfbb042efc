"""Scatter: as dense linear algebra has it, and no sender counts for more than most others see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Evidence, Scatter, Statement, geometric_median, pool_scatter
from tests.support.evidence import Floats, Town, factors_of, stated

CAP = 3.0


def variance(scatter: Scatter, direction: Floats) -> float:
    return float((direction**2 * scatter.diagonal).sum() + ((scatter.factors @ direction) ** 2).sum())


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), features=st.integers(1, 12), factors=st.integers(0, 30))
def test_solutions_and_products_are_those_of_dense_algebra(seed: int, features: int, factors: int) -> None:
    rng = np.random.default_rng(seed)
    diagonal, rows = rng.uniform(0.1, 5, features), rng.standard_normal((factors, features))
    scatter = Scatter(diagonal, rows)
    dense = np.diag(diagonal) + rows.T @ rows
    vectors = rng.standard_normal((5, features))
    expected = np.linalg.solve(dense, vectors.T).T
    np.testing.assert_allclose(scatter.solved(scatter.vectors(vectors)), expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(scatter.vectors(vectors).products(), vectors @ expected.T, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(scatter.vectors(vectors).squares(), (vectors * expected).sum(axis=1), rtol=1e-7)
    mixture = rng.standard_normal((3, 5))
    mixed, plain = scatter.vectors(vectors).mixed(mixture), scatter.vectors(mixture @ vectors)
    np.testing.assert_allclose(mixed.distances(plain), plain.distances(mixed).T, atol=1e-7)
    np.testing.assert_allclose(np.diag(mixed.distances(plain)), 0, atol=1e-7)


def honest(seed: int, people: int = 6) -> list[Statement]:
    town = Town.of(seed, features=12)
    return stated(town.people(seed, people), town.classes)


def liars(good: Statement, direction: Floats, size: float, count: int) -> list[Statement]:
    """Return statements that claim `size` times the standard deviation along one direction."""
    rows = np.concatenate([size * direction[None], factors_of(good)[1:]])
    return [replace(good, factors=rows)] * count


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1e1, 1e3, 1e6]), count=st.integers(1, 3))
def test_a_minority_that_exaggerates_moves_the_variance_no_further_than_the_cap(
    seed: int, size: float, count: int
) -> None:
    said = honest(seed % 50, 7)
    direction = np.random.default_rng(seed).standard_normal(12)
    direction /= np.linalg.norm(direction)
    before = variance(pool_scatter(said, cap=CAP), direction)
    after = variance(pool_scatter([*said, *liars(said[0], direction, size, count)], cap=CAP), direction)
    share = count / (len(said) + count)
    # Their part is at most the cap times what most others see, in places where sketches of few samples vary by half.
    assert after <= before * (1 - share + share * CAP * 2.5)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 3))
def test_a_diagonal_is_capped_as_well(seed: int, count: int) -> None:
    said = honest(seed % 50, 7)
    liar = replace(said[0], diagonal=np.full(12, 1e8))
    direction = np.eye(12)[seed % 12]
    before = variance(pool_scatter(said, cap=CAP), direction)
    after = variance(pool_scatter([*said, *[liar] * count], cap=CAP), direction)
    assert after <= before * 2 * CAP


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_who_claims_no_scatter_takes_no_more_than_its_share(seed: int) -> None:
    said = honest(seed % 50, 7)
    silent = replace(said[0], factors=np.zeros((0, 12)), diagonal=np.zeros(12))
    direction = np.random.default_rng(seed).standard_normal(12)
    before = variance(pool_scatter(said), direction)
    after = variance(pool_scatter([*said, silent, silent, silent]), direction)
    assert 0.3 * before < after <= before * 1.2


def test_counts_do_not_buy_weight_in_the_scatter() -> None:
    said = honest(3, 7)
    loud = replace(said[1], counts=said[1].counts * 1e6)
    one, other = pool_scatter(said), pool_scatter([said[0], loud, *said[2:]])
    for direction in np.eye(12):
        assert variance(other, direction) == pytest.approx(variance(one, direction), rel=0.15)


@pytest.mark.parametrize("claimed", [12.0, 1e6])
def test_many_liars_with_one_class_each_have_no_majority(claimed: float) -> None:
    said, direction = honest(5, 10), np.eye(12)[3]
    loud = liars(said[0], direction, 100.0, 1)[0]
    classes = said[0].counts.shape[0]
    thin = [replace(loud, counts=claimed * (np.arange(classes) == place % classes)) for place in range(18)]
    before, after = (variance(pool_scatter([*said, *some]), direction) for some in ([], thin))
    assert after < 5 * before
    whole = [replace(loud, counts=np.full(classes, 12.0)) for _ in range(18)]
    assert variance(pool_scatter([*said, *whole]), direction) > 100 * before, "as many liars with all classes have it"


@pytest.mark.parametrize("people", [1, 2, 3])
def test_few_statements_still_have_an_inverse(people: int) -> None:
    scatter = pool_scatter(honest(5, people))
    assert np.isfinite(scatter.solved(scatter.vectors(np.eye(12)))).all()
    assert np.linalg.eigvalsh(scatter.vectors(np.eye(12)).products()).min() > 0


def test_nothing_known_of_the_scatter_leaves_distances() -> None:
    empty = Statement(np.zeros((2, 4)), np.ones(2), np.zeros((0, 4)), np.zeros(4))
    scatter = pool_scatter([empty, empty])
    assert np.isfinite(scatter.vectors(np.eye(4)).products()).all()


def mean_distance(points: Floats, weights: Floats, place: Floats) -> float:
    return float(weights @ np.linalg.norm(points - place, axis=1))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9))
def test_no_point_has_less_distance_than_the_geometric_median(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    points, weights = rng.standard_normal((count, 3)), rng.uniform(0.5, 2, count)
    mixture = geometric_median(points @ points.T, weights, 100)
    assert mixture.min() >= 0
    assert mixture.sum() == pytest.approx(1)
    found = mean_distance(points, weights, mixture @ points)
    others = [*points, *(mixture @ points + 0.1 * rng.standard_normal((20, 3)))]
    assert all(found <= mean_distance(points, weights, other) * 1.005 + 1e-9 for other in others)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1e2, 1e6, 1e12]), far=st.integers(1, 4))
def test_far_points_in_the_minority_do_not_carry_the_median_away(seed: int, size: float, far: int) -> None:
    rng = np.random.default_rng(seed)
    near = rng.standard_normal((far + 3, 4))
    points = np.concatenate([near, size * rng.standard_normal((1, 4)) + np.zeros((far, 4))])
    place = geometric_median(points @ points.T, np.ones(len(points))) @ points
    reach = np.linalg.norm(near - near.mean(axis=0), axis=1).max()
    assert np.linalg.norm(place - near.mean(axis=0)) <= 12 * reach


UNITS = np.geomspace(1e-3, 1e3, 20)


def in_units(sample: Evaluation) -> Evaluation:
    """Return samples in other units for each feature, in no order."""
    return Evaluation(np.asarray(sample.features) * UNITS[np.arange(20) * 7 % 20], sample.labels)


@pytest.mark.parametrize("seed", range(3))
def test_the_units_of_features_decide_little(seed: int) -> None:
    town = Town.of(seed)
    people = town.people(seed, 8)
    others = [in_units(one) for one in people]
    rule = Evidence()
    same, other = (
        rule(said[0], said[1:], evaluation=some[0])
        for some, said in ((people, stated(people, 6)), (others, stated(others, 6)))
    )
    fresh = in_units(town.samples(77, list(range(6)), 100))
    right = ((fresh.features @ np.asarray(other.head).T + np.asarray(other.bias)).argmax(axis=1) == fresh.labels).mean()
    assert right > town.accuracy(same) - 0.05


@pytest.mark.parametrize("seed", range(3))
def test_nobody_hides_features_in_large_units(seed: int) -> None:
    town = Town.of(seed)
    people = [in_units(one) for one in town.people(seed, 8)]
    said = stated(people, 6)
    loud = replace(said[1], diagonal=np.full(20, 1e8), rows=1e6 * np.asarray(said[1].rows))
    levels = [pool_scatter(some, cap=1.0).diagonal for some in (said, [*said, loud])]
    assert (levels[1] < 40 * levels[0]).all(), "variances here range from 1e-6 to 1e6"


def correlated(seed: int, people: int) -> list[Evaluation]:
    """Return samples of people with a few loud directions that have nothing to do with the classes."""
    town = Town.of(seed, features=30)
    loud = 4 * np.random.default_rng(seed).standard_normal((6, 30))
    found = []
    for who, one in enumerate(town.people(seed, people)):
        noise = np.random.default_rng([seed, who]).standard_normal((len(one.labels), 6))
        found.append(Evaluation(np.asarray(one.features) + noise @ loud, one.labels))
    return found


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_claimed_along_differences_does_not_swamp_discriminants(seed: int, count: int) -> None:
    people = correlated(seed, 10)
    said = stated(people, 6)
    total = np.sum([np.asarray(one.counts) for one in said], axis=0)
    means = np.sum([np.asarray(one.counts)[:, None] * np.asarray(one.rows) for one in said], axis=0) / total[:, None]
    way = means[3] - means[4]
    rest = np.concatenate([one.features - means[one.labels] for one in people])
    true = rest.T @ rest / len(rest)
    factors = np.concatenate([1e3 * way[None], factors_of(said[1])[1:]])
    before, after = (pool_scatter([*said, *[replace(said[1], factors=factors)] * some]) for some in (0, count))
    discriminant = np.linalg.solve(true, way)
    assert variance(after, discriminant) < 1.5 * variance(before, discriminant)
    honest_way = np.linalg.solve(true, means[0] - means[1])
    assert variance(after, honest_way) == pytest.approx(variance(before, honest_way), rel=0.3)


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8, 9.9e8])
@pytest.mark.parametrize(("features", "rank"), [(2, 2), (6, 3), (20, 3)])
@pytest.mark.parametrize("people", [1, 2, 3])
def test_absurd_factors_leave_an_inverse(people: int, features: int, rank: int, size: float) -> None:
    town = Town.of(people, features=features)
    said = stated(town.people(people, people), 6)
    for factors in (np.full((rank, features), size), size * np.random.default_rng(0).standard_normal((rank, features))):
        before, after = (pool_scatter([*said, *more]) for more in ([], [replace(said[0], factors=factors)]))
        assert np.isfinite(after.solved(after.vectors(np.eye(features)))).all()
        if people == 3:
            assert variance(after, np.ones(features)) < 30 * variance(before, np.ones(features))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_diagonal_does_not_swamp_discriminants(seed: int, count: int) -> None:
    people = correlated(seed, 10)
    said = stated(people, 6)
    loud = replace(said[1], diagonal=1e6 * np.asarray(said[1].diagonal))
    before, after = (pool_scatter([*said, *[loud] * some]) for some in (0, count))
    means = np.stack([one.features[one.labels == 3].mean(axis=0) for one in people if (one.labels == 3).any()])
    others = np.stack([one.features[one.labels == 4].mean(axis=0) for one in people if (one.labels == 4).any()])
    discriminant = before.solved(before.vectors((means.mean(axis=0) - others.mean(axis=0))[None]))[0]
    assert variance(after, discriminant) < 1.6 * variance(before, discriminant)


def test_a_diagonal_of_more_samples_counts_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town.of(0, features=300)
    said = stated([town.samples(who, [0, 1, 2], 80 if who < 3 else 4) for who in range(8)], 6)
    assert np.asarray(said[0].diagonal).sum() > 3 * np.asarray(said[7].diagonal).sum()
    found = pool_scatter(said).diagonal
    monkeypatch.setattr("bristle.rules.evidence.scatter.OUTSTANDS", np.inf)
    np.testing.assert_allclose(found, pool_scatter(said).diagonal)


@pytest.mark.parametrize("seed", range(3))
def test_one_liar_cannot_hide_features_in_small_units(seed: int) -> None:
    town = Town.of(seed)
    people = [in_units(one) for one in town.people(seed, 8)]
    said = stated(people, 6)
    usual = np.median([np.asarray(one.diagonal) + (np.asarray(one.factors) ** 2).sum(axis=0) for one in said], axis=0)
    loud = replace(said[1], factors=1e4 * np.asarray(said[1].factors), diagonal=1e8 * usual)
    rest = np.asarray(people[0].features) - np.asarray(said[0].rows)[np.asarray(people[0].labels)]
    scatters = [pool_scatter(some, rest, cap=1.0) for some in (said, [*said, loud])]
    before, after = (one.diagonal + (one.factors**2).sum(axis=0) for one in scatters)
    assert (after < 1.4 * before).all()
