"""The same answers as ByzFL 0.0.11 and ByzPy 0.1.4, and where they leave the published formula, the difference."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

import peers
from bristle import rules

pytestmark = [
    pytest.mark.skipif(not peers.available(), reason="ByzFL and ByzPy are not here: run `make peers`"),
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),  # ByzFL's clipping at its own centre
]
SIZES = [(8, 3, 2), (9, 40, 1), (15, 8_000, 4), (25, 500, 3), (40, 64, 9)]


def vectors_of(count: int, size: int, seed: int) -> Any:
    """Random vectors with a common part, like heads that were trained for the same task."""
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal(size) + rng.standard_normal((count, size)) * rng.uniform(0.5, 2, (count, 1))


def as_matrix(answer: Any) -> Any:
    return np.stack([np.asarray(row) for row in answer]) if isinstance(answer, list) else np.atleast_2d(answer)


def error(ours: Any, theirs: Any) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("count", "size", "f"), SIZES)
def test_same_results_on_random_vectors(count: int, size: int, f: int, seed: int) -> None:
    vectors = vectors_of(count, size, seed)
    compared = 0
    for comparison in peers.comparisons(count, f, tau=0.8 * size**0.5):
        shift = comparison.shift(vectors)
        ours = peers.run_ours(comparison.ours, vectors, 1).reshape(-1, size)
        if comparison.byzfl is not None and not comparison.differs_from("ByzFL"):
            theirs = as_matrix(comparison.byzfl(vectors - shift)) + shift
            assert error(ours, theirs) < 1e-5, f"ByzFL: {comparison.name}"
            compared += 1
        if comparison.byzpy is not None and not comparison.differs_from("ByzPy"):
            theirs = as_matrix(comparison.byzpy([torch.from_numpy(v) for v in vectors - shift])) + shift
            assert error(ours, theirs) < 1e-5, f"ByzPy: {comparison.name}"
            compared += 1
    assert compared >= 19


def test_geometric_medians_meet_wherever_they_start() -> None:
    _, py = peers.load()
    for count, size, _ in SIZES:
        vectors = vectors_of(count, size, 3)
        theirs = py.geometric_median.GeometricMedian(tol=1e-14, max_iter=5000, eps=0.01).aggregate(
            [torch.from_numpy(v) for v in vectors]
        )
        ours = peers.run_ours(rules.GeometricMedian(nu=0.01, iterations=3000), vectors, 1)
        assert error(ours.reshape(-1), np.asarray(theirs)) < 1e-5


@pytest.mark.parametrize(("count", "s"), [(8, 2), (12, 3), (9, 3)])
def test_bucketing_with_the_same_permutation(count: int, s: int) -> None:
    from importlib import import_module  # noqa: PLC0415 - there only after `make peers`

    fl, _ = peers.load()
    vectors = vectors_of(count, 20, 0)
    draws = np.random.default_rng(1).random(count - 1)
    ours = rules.Bucketing(s=s)(vectors[:1], vectors[1:, None], rng=draws)[:, 0]
    order = [0, *(1 + np.argsort(draws)).tolist()]
    bucketing = import_module("byzpy.pre_aggregators.bucketing").Bucketing
    theirs = as_matrix(bucketing(bucket_size=s, perm=order).pre_aggregate([torch.from_numpy(v) for v in vectors]))
    assert error(ours, theirs) < 1e-12
    np.random.seed(5)  # noqa: NPY002 - ByzFL draws from NumPy's global generator
    place = np.argsort(np.random.permutation(count))  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    theirs = fl.Bucketing(s=s)(vectors)
    # Ours puts the bucket with the own head first; turn theirs until it does as well.
    place = (place - place[0] // s * s) % count
    draws = np.where(place[1:] < s, place[1:] - s, place[1:]) / (2.0 * count) + 0.5
    ours = rules.Bucketing(s=s)(vectors[:1], vectors[1:, None], rng=draws)[:, 0]
    assert {tuple(np.round(row, 9)) for row in ours} == {tuple(np.round(row, 9)) for row in theirs}


def test_krum_follows_the_publication_where_theirs_do_not() -> None:
    """Blanchard et al. sum the n-f-2 nearest; ByzFL and ByzPy sum n-f-1, and choose another vector for it."""
    fl, py = peers.load()
    # n = 6, f = 2: by two neighbours the tight trio at the left wins, by three another point does.
    points = np.array([0.0, 0.1, 0.25, 1.0, 1.1, 1.24])
    vectors = points[:, None] * np.ones((1, 4))
    n, f = 6, 2
    squared = (points[:, None] - points[None]) ** 2
    published = int(np.argmin(np.sort(squared, axis=1)[:, 1 : n - f - 1].sum(axis=1)))
    one_more = int(np.argmin(np.sort(squared, axis=1)[:, 1 : n - f].sum(axis=1)))
    assert published != one_more
    ours = peers.run_ours(rules.Krum(f=f), vectors, 1)
    np.testing.assert_allclose(ours[0], vectors[published])
    np.testing.assert_allclose(fl.Krum(f=f)(vectors), vectors[one_more])
    np.testing.assert_allclose(py.krum.Krum(f=f).aggregate([torch.from_numpy(v) for v in vectors]), vectors[one_more])


def test_median_follows_the_publication_where_byzpy_does_not() -> None:
    _, py = peers.load()
    vectors = np.array([[0.0], [1.0], [2.0], [9.0]])
    assert peers.run_ours(rules.Median(), vectors, 1) == 1.5
    assert py.median.CoordinateWiseMedian().aggregate([torch.from_numpy(v) for v in vectors]) == 1.0


@pytest.mark.parametrize(("count", "size", "f"), [(8, 3, 2), (10, 40, 4), (25, 40, 3)])
def test_minimum_diameters_are_the_same_where_several_subsets_attain_them(count: int, size: int, f: int) -> None:
    """Theirs take the first subset with the least diameter, ours the one with the least scatter."""
    fl, py = peers.load()
    for seed in range(4):
        vectors = vectors_of(count, size, seed)
        answers = [
            peers.run_ours(rules.MDA(f=f), vectors, 1).reshape(-1),
            fl.MDA(f=f)(vectors),
            np.asarray(py.mda.MinimumDiameterAveraging(f=f).aggregate([torch.from_numpy(v) for v in vectors])),
        ]
        distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1)
        subsets = np.array(list(combinations(range(count), count - f)))
        means = vectors[subsets].mean(axis=1)
        found = [int(np.argmin(np.linalg.norm(means - answer, axis=1))) for answer in answers]
        diameters = [distances[np.ix_(subsets[i], subsets[i])].max() for i in found]
        np.testing.assert_allclose([means[i] for i in found], answers, rtol=1e-9)
        np.testing.assert_allclose(diameters, diameters[0], rtol=1e-12)


def test_filter_is_byzpys_where_that_takes_the_power_method_to_its_end() -> None:
    """The difference left: its maximum is over heads without weight too, which matters if one is farthest out again."""
    _, py = peers.load()
    agreed = 0
    for count, size, f in SIZES[:4]:
        for seed in range(5):
            vectors = vectors_of(count, min(size, 500), seed)
            ours = peers.run_ours(rules.CAF(f=f), vectors, 1).reshape(-1)
            theirs = py.caf.CAF(f=f, power_iters=3000).aggregate([torch.from_numpy(v) for v in vectors])
            same = error(ours, np.asarray(theirs)) < 1e-5
            assert same or weightless_is_farthest(vectors, f)
            agreed += same
    assert agreed >= 14


def weightless_is_farthest(vectors: Any, f: int) -> bool:
    """Whether the filter, its maximum over all heads, ever finds one farthest out that has no weight any more."""
    weights = np.ones(len(vectors))
    while weights.sum() > len(vectors) - 2 * f:
        about = vectors - weights @ vectors / weights.sum()
        root = np.sqrt(weights)[:, None] * about
        parts = (about @ np.linalg.svd(root, full_matrices=False)[2][0]) ** 2
        if parts.max() > parts[weights > 0].max():
            return True
        weights = weights * (1 - parts / parts.max())
    return False


def test_filters_of_byzfl_and_byzpy_leave_the_published_eigenvector() -> None:
    """One step from a random vector is no dominant eigenvector: ByzFL's answers change from call to call."""
    fl, py = peers.load()
    vectors = vectors_of(15, 40, 0)
    for ours, theirs in ((rules.CAF(f=4), fl.CAF(f=4)), (rules.SMEA(f=4), fl.SMEA(f=4))):
        answers = [np.asarray(theirs(vectors)) for _ in range(8)]
        assert max(error(answer, answers[0]) for answer in answers) > 1e-3
        again = [peers.run_ours(ours, vectors, 1) for _ in range(2)]
        np.testing.assert_array_equal(again[0], again[1])
    by_three_steps = py.caf.CAF(f=4).aggregate([torch.from_numpy(v) for v in vectors])
    assert error(peers.run_ours(rules.CAF(f=4), vectors, 1).reshape(-1), np.asarray(by_three_steps)) > 1e-3
