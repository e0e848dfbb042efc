"""Where classes are: medians, independence, locations that a minority cannot move, deviations and disputes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.rules.evidence import Claims, Located, confirmed, disputes, independent, robust_means, vet
from bristle.rules.evidence.location import FEW, near_own, weighted_median
from bristle.rules.evidence.vetting import leaning
from tests.support.evidence import Floats, claims_of

FEATURES, CLASSES, SAMPLES = 15, 4, 12
APART = 6.0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9), columns=st.integers(1, 4))
def test_a_weighted_median_has_half_of_the_weight_on_either_side(seed: int, count: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.integers(-3, 4, (count, columns)).astype(float), rng.uniform(0.1, 3, count)
    found = weighted_median(values, weights)
    for column, place in zip(values.T, found, strict=True):
        assert weights[column < place - 1e-9].sum() <= weights.sum() / 2 + 1e-6
        assert weights[column > place + 1e-9].sum() <= weights.sum() / 2 + 1e-6
    np.testing.assert_allclose(weighted_median(values, 7 * weights), found)


def test_a_weighted_median_of_equals_is_the_usual_one() -> None:
    values = np.random.default_rng(0).standard_normal((8, 3))
    np.testing.assert_allclose(weighted_median(values, np.ones(8)), np.median(values, axis=0))
    np.testing.assert_allclose(weighted_median(values[:7], np.ones(7)), np.median(values[:7], axis=0))


def centres(seed: int) -> Floats:
    directions = np.linalg.qr(np.random.default_rng(seed).standard_normal((FEATURES, CLASSES)))[0].T
    return APART * directions


def honest_means(seed: int, owners: int, samples: int = SAMPLES) -> Floats:
    """Return means [classes, owners, D] of so many samples of unit variance."""
    rng = np.random.default_rng([3, seed])
    noise = rng.standard_normal((CLASSES, owners, FEATURES)) / np.sqrt(samples)
    found: Floats = centres(seed)[:, None] + noise
    return found


def world(means: list[Floats], counts: list[list[int]] | int = SAMPLES, *, own: bool = False) -> Claims:
    """Return claims: `means` holds those of each class; the owners of a class are numbered as they come."""
    label = [number for number, some in enumerate(means) for _ in some]
    owner = [place for some in means for place in range(len(some))]
    count = [float(counts)] * len(label) if isinstance(counts, int) else [float(n) for some in counts for n in some]
    every = np.concatenate(means)
    owners = np.array(owner) if own else np.array(owner) + 1
    return Claims(owners, np.array(label), np.array(count), every @ every.T, CLASSES)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), samples=st.integers(2, 200))
def test_independent_owners_all_count(seed: int, samples: int) -> None:
    means = honest_means(seed, 4, samples)
    weights = independent(world(list(means), samples), FEATURES)
    np.testing.assert_array_equal(weights, 1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), copies=st.integers(2, 20))
def test_copies_share_one_weight(seed: int, copies: int) -> None:
    means = honest_means(seed, 4)
    liars = np.repeat(means[0, :1] + 3, copies, axis=0)
    claims = world([np.concatenate([means[0], liars]), *means[1:]])
    weights = independent(claims, FEATURES)
    assert weights[4 : 4 + copies].sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights[:4], 1)
    np.testing.assert_array_equal(weights[4 + copies :], 1)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.sampled_from([1, 2, 10**6]), middle=st.booleans())
def test_no_count_makes_honest_owners_look_alike(seed: int, count: int, middle: bool) -> None:
    """One liar in the middle that says n = 1, or a million, costs the others nothing."""
    means = honest_means(seed, 4)
    liar = means[0].mean(axis=0) if middle else means[0, 0] + 0.5
    claims = world(
        [np.concatenate([means[0], liar[None]]), *means[1:]], [[SAMPLES] * 4 + [count], *[[SAMPLES] * 4] * 3]
    )
    weights, without = independent(claims, FEATURES), independent(world(list(means)), FEATURES)
    assert weights[:4].sum() >= without[:4].sum() - 0.5
    np.testing.assert_array_equal(weights[5:], without[4:])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 3))
def test_bridges_between_honest_owners_do_not_join_them(seed: int, steps: int) -> None:
    """Whoever claims points between two owners shares their weight, and leaves it where they are."""
    means = honest_means(seed, 4)
    shares = np.arange(1, steps + 1)[:, None] / (steps + 1)
    bridge = shares * means[0, 0] + (1 - shares) * means[0, 1]
    weights = independent(world([np.concatenate([means[0], bridge]), *means[1:]]), FEATURES)
    assert weights[: 4 + steps].sum() >= 3
    assert weights[2:4].sum() >= 1.5  # The third owner may happen to be next to a bridge.


def located(
    means: list[Floats], counts: list[list[int]] | int = SAMPLES, *, own: bool = False
) -> tuple[Floats, Located]:
    claims = world(means, counts, own=own)
    found = robust_means(claims, independent(claims, FEATURES), FEATURES)
    return found.mixture @ np.concatenate(means), found


def test_without_liars_locations_are_near_the_centres() -> None:
    errors, plain = [], []
    for seed in range(20):
        means = honest_means(seed, 4)
        places, found = located(list(means))
        errors.append(np.linalg.norm(places - centres(seed), axis=1).mean())
        plain.append(np.linalg.norm(means.mean(axis=1) - centres(seed), axis=1).mean())
    assert np.mean(errors) < 1.2 * np.mean(plain)
    np.testing.assert_allclose(found.mixture.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(found.shares.sum(axis=1), 1, atol=1e-9)
    assert found.shares.min() >= 0
    every = np.concatenate(list(means))
    np.testing.assert_allclose(found.projected, places @ every.T, atol=1e-8)
    np.testing.assert_allclose(found.products, places @ places.T, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    liars=st.integers(1, 3),
    size=st.sampled_from([0.5, 2.0, 10.0, 1e3, 1e6]),
    together=st.booleans(),
    towards=st.booleans(),
)
def test_a_minority_moves_a_class_along_its_discriminants_no_further_than_the_outermost_honest_claim(
    seed: int, liars: int, size: float, together: bool, towards: bool
) -> None:
    means, rng = honest_means(seed, 4), np.random.default_rng([5, seed])
    push = centres(seed)[1] - centres(seed)[0] if towards else rng.standard_normal(FEATURES)
    noise = 0 if together else rng.standard_normal((liars, FEATURES)) / np.sqrt(SAMPLES)
    wrong = means[0, 0] + size * push / np.linalg.norm(push) + noise * np.ones((liars, 1))
    places, _ = located([np.concatenate([means[0], wrong]), *means[1:]])
    for other in range(1, CLASSES):
        direction = places[0] - places[other]
        direction = direction / np.linalg.norm(direction)
        along, place = means[0] @ direction, places[0] @ direction
        # Discriminants are taken anew after they were used: a little is left for that.
        slack = 0.1 * (along.max() - along.min()) + 0.05
        assert along.min() - slack <= place <= along.max() + slack


@pytest.mark.parametrize("owners", [1, 2])
def test_a_class_with_few_owners_has_a_location_between_them(owners: int) -> None:
    means = honest_means(4, 4)
    places, _ = located([means[0][:owners], *means[1:]])
    assert np.linalg.norm(places[0] - means[0][:owners].mean(axis=0)) < 0.5


def test_one_class_alone_has_a_location() -> None:
    claims = claims_of(honest_means(2, 4)[0], [0] * 4, SAMPLES)
    found = robust_means(claims, np.ones(4), FEATURES)
    assert np.isfinite(found.mixture).all()
    assert found.mixture.sum() == pytest.approx(1)


def variance_of(found: Located) -> Floats:
    """Return the variance of a sample along each discriminant, in a white space."""
    inner = found.products
    squares = np.diag(inner)
    return squares[:, None] + squares[None] - 2 * inner


def vetted(means: list[Floats], *, own: bool = True) -> tuple[Claims, Floats, float]:
    claims = world(means, own=own)
    found = robust_means(claims, independent(claims, FEATURES), FEATURES)
    result = vet(claims, found, variance_of(found), np.full(CLASSES, float(FEATURES)))
    return claims, result.errors, result.unit


def test_deviations_are_standard_errors() -> None:
    worst = []
    for seed in range(20):
        claims, errors, unit = vetted(list(honest_means(seed, 5)))
        assert np.isnan(errors[claims.owner == 0]).all()
        assert np.isfinite(errors[claims.owner > 0]).all()
        assert 1 <= unit < 1.3
        worst.append(np.nanmax(errors))
    assert np.median(worst) < 8


@pytest.mark.parametrize("liars", [1, 3, 24])
def test_who_is_elsewhere_deviates_however_many_they_are(liars: int) -> None:
    means, rng = honest_means(0, 5), np.random.default_rng(1)
    noise = rng.standard_normal((liars, FEATURES)) / np.sqrt(SAMPLES)
    wrong = centres(0)[0] + 0.5 * (centres(0)[1] - centres(0)[0]) + noise
    claims, errors, unit = vetted([np.concatenate([means[0], wrong]), *means[1:]])
    lies = (claims.label == 0) & (claims.owner > 4)
    assert errors[lies].min() > np.nanmax(errors[~lies])
    assert unit < 1.3


def test_classes_that_the_receiver_does_not_hold_cannot_be_compared() -> None:
    _, errors, unit = vetted(list(honest_means(0, 3)), own=False)
    assert np.isnan(errors).all()
    assert unit == 1


def test_people_who_differ_are_judged_by_how_much_they_do() -> None:
    rng = np.random.default_rng(2)
    means = honest_means(0, 8)
    _, same, plain = vetted(list(means))
    _, other, unit = vetted(list(means + 1.5 * rng.standard_normal((1, 8, FEATURES))))
    assert unit > 1.3 * plain
    assert np.nanmedian(other) < 5 * np.nanmedian(same)


def dispute(means: list[Floats], counts: list[list[int]] | int = SAMPLES) -> tuple[Floats, Floats, Floats]:
    claims = world(means, counts)
    weights = independent(claims, FEATURES)
    found = robust_means(claims, weights, FEATURES)
    return disputes(claims, found, weights, variance_of(found), FEATURES)


@pytest.mark.parametrize("seed", range(5))
def test_honest_owners_do_not_dispute(seed: int) -> None:
    most, total, errors = dispute(list(honest_means(seed, 5)))
    assert most.max() <= 1
    np.testing.assert_array_equal(total, 5)
    assert errors.max() < 7


@pytest.mark.parametrize("liars", [1, 2, 3])
def test_those_who_put_a_class_elsewhere_together_are_counted(liars: int) -> None:
    means, rng = honest_means(3, 4), np.random.default_rng(3)
    noise = rng.standard_normal((liars, FEATURES)) / np.sqrt(SAMPLES)
    wrong = centres(3)[1] + noise
    most, total, errors = dispute([np.concatenate([means[0], wrong]), *means[1:]])
    assert most[0] == liars
    assert total[0] == 4 + liars
    assert most[1:].max() <= 1
    assert errors[4 : 4 + liars].min() > errors[:4].max()


def test_copies_dispute_as_one() -> None:
    means = honest_means(3, 4)
    wrong = np.repeat(centres(3)[1][None], 30, axis=0)
    most, total, _ = dispute([np.concatenate([means[0], wrong]), *means[1:]])
    assert most[0] == pytest.approx(1)
    assert total[0] == pytest.approx(5)


def test_dissenters_who_disagree_do_not_count_together() -> None:
    means = honest_means(3, 4)
    wrong = np.stack([centres(3)[1], centres(3)[2], centres(3)[3]])
    most, _, _ = dispute([np.concatenate([means[0], wrong]), *means[1:]])
    assert most[0] == 1


def test_counts_are_capped_at_the_median_of_their_class() -> None:
    claims = world(list(honest_means(0, 3)), [[4, 9, 10**6], [5, 5, 5], [1, 2, 3], [7, 7, 8]])
    assert claims.capped().tolist() == [4, 9, 9, 5, 5, 5, 1, 2, 2, 7, 7, 7]
    assert claims.only(claims.owner == 1).label.tolist() == [0, 1, 2, 3]
    assert replace(claims, count=claims.count * 2).capped()[0] == 8


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), liars=st.integers(1, 3), size=st.sampled_from([3.0, 1e2, 1e6]))
def test_what_no_majority_confirms_has_no_share(seed: int, liars: int, size: float) -> None:
    means = honest_means(seed, 4)[0]
    push = np.random.default_rng([8, seed]).standard_normal(FEATURES)
    wrong = np.repeat((means[0] + size * push / np.linalg.norm(push) * np.sqrt(FEATURES))[None], liars, axis=0)
    every = np.concatenate([means, wrong])
    shares = confirmed(every @ every.T, np.full(len(every), float(SAMPLES)), np.ones(len(every)), FEATURES)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    assert shares[4:].sum() < 1e-9


def test_a_majority_confirms_itself() -> None:
    means = honest_means(0, 6)[0]
    shares = confirmed(means @ means.T, np.full(6, float(SAMPLES)), np.ones(6), FEATURES)
    assert (shares > 0).sum() >= 4
    assert shares.max() < 0.3


@pytest.mark.parametrize("liars", [5, 20])
@pytest.mark.parametrize("count", [1, 10**6])
def test_four_owners_keep_a_say_whatever_counts_many_liars_claim(liars: int, count: int) -> None:
    claims = world([np.zeros((4 + liars, FEATURES))] * 2, [[SAMPLES] * 4 + [count] * liars] * 2)
    capped = claims.capped()
    assert capped[:4].max() <= SAMPLES
    assert capped[4] <= 4 * SAMPLES
    assert capped[0] >= min(4 * count, SAMPLES)


@pytest.mark.parametrize("seed", range(10))
def test_a_majority_has_the_trusted_claim_in_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    honest, liars = rng.standard_normal((4, FEATURES)), 3 + rng.standard_normal((6, FEATURES)) / 10
    rows = np.concatenate([honest, liars])
    trusted = np.arange(len(rows)) == 0
    plain = confirmed(rows @ rows.T, np.ones(10), np.ones(10), FEATURES / 1.0)
    found = confirmed(rows @ rows.T, np.ones(10), np.ones(10), FEATURES / 1.0, trusted=trusted)
    assert plain[4:].sum() > 0.9
    assert found[0] > 0
    assert found[:4].sum() > 0.3


def lean(seed: int, liars: int, push: float, owners: int = FEW) -> Floats:
    """Return `leaning` of a receiver of class 0: liars move class 1 towards it by so many standard errors."""
    means = list(honest_means(seed, owners))
    way = centres(seed)[0] - centres(seed)[1]
    moved = centres(seed)[1] + push / np.sqrt(SAMPLES) * way / np.linalg.norm(way)
    noise = np.random.default_rng([9, seed]).standard_normal((liars, FEATURES)) / np.sqrt(SAMPLES)
    means[1] = np.concatenate([means[1], moved + noise])
    claims = world(means, own=True)
    weights = independent(claims, FEATURES)
    found = robust_means(claims, weights, FEATURES)
    return leaning(claims, found, weights, variance_of(found), np.array([0]))


@pytest.mark.parametrize("seed", range(5))
def test_classes_that_many_move_towards_an_own_one_are_lowered(seed: int) -> None:
    assert lean(seed, 6, 8.0)[1] > 0
    assert lean(seed, 24, 8.0)[1] > lean(seed, 24, 0.0)[1]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lowered_where_liars_are_fewer_than_owners(seed: int) -> None:
    assert not lean(seed, FEW - 1, 8.0).any()
    assert not lean(seed, 0, 0.0).any()


@pytest.mark.parametrize("seed", range(5))
def test_where_a_crowd_disagrees_own_classes_stay_near_the_own_mean(seed: int) -> None:
    means, rng = list(honest_means(seed, FEW)), np.random.default_rng([11, seed])
    way = (centres(seed)[1] - centres(seed)[0]) / APART
    moved = centres(seed)[0] + 6 * way / np.sqrt(SAMPLES)
    means[0] = np.concatenate([means[0], moved + rng.standard_normal((24, FEATURES)) / np.sqrt(SAMPLES)])
    claims = world(means, own=True)
    weights = independent(claims, FEATURES)
    found = robust_means(claims, weights, FEATURES)
    near = near_own(found, claims, weights, variance_of(found), reach=1.5)
    every = np.concatenate(means)
    own = means[0][0]
    before, after = (abs((one.mixture[0] @ every - own) @ way) / np.linalg.norm(way) for one in (found, near))
    assert after < before
    assert after <= 2.5 / np.sqrt(SAMPLES), "1.5 standard errors along each discriminant, which are at an angle"
    np.testing.assert_array_equal(near.mixture[1:], found.mixture[1:])
    np.testing.assert_allclose(near.products, near.mixture @ claims.products @ near.mixture.T)


@pytest.mark.parametrize("owners", [FEW, 3 * FEW])
def test_locations_stay_where_owners_are_few_or_agree(owners: int) -> None:
    claims = world(list(honest_means(3, owners)), own=True)
    weights = independent(claims, FEATURES)
    found = robust_means(claims, weights, FEATURES)
    assert near_own(found, claims, weights, variance_of(found)) is found
