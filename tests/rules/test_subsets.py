"""MDA and SMEA against their definitions, written out over all subsets."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from bristle import rules
from bristle.rules import Reason

SIZES = [(5, 2, 1), (8, 3, 2), (10, 40, 4), (12, 6, 3)]


def heads_of(count: int, size: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return 2 * rng.standard_normal((1, size)) + rng.standard_normal((count, 1, size))


def by_all_subsets(heads: Any, f: int, measure: Any) -> tuple[float, Any]:
    """The least measure of n - f heads, and the mean of those that attain it."""
    vectors = heads.reshape(len(heads), -1)
    subsets = [vectors[list(one)] for one in combinations(range(len(heads)), len(heads) - f)]
    best = min(subsets, key=measure)
    return measure(best), best.mean(axis=0)


def diameter(vectors: Any) -> float:
    return float(np.linalg.norm(vectors[:, None] - vectors[None], axis=-1).max())


def largest_eigenvalue(vectors: Any) -> float:
    return float(np.linalg.eigvalsh(np.cov(vectors.T, bias=True).reshape(vectors.shape[1], -1))[-1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("count", "size", "f"), SIZES)
def test_smea_is_the_subset_with_the_smallest_maximum_eigenvalue(count: int, size: int, f: int, seed: int) -> None:
    heads = heads_of(count, size, seed)
    decision = rules.SMEA(f=f)(heads[0], heads[1:])
    least, mean = by_all_subsets(heads, f, largest_eigenvalue)
    np.testing.assert_allclose(decision.head.reshape(-1), mean, rtol=1e-10)
    assert least >= 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("count", "size", "f"), SIZES)
def test_mda_attains_the_smallest_diameter(count: int, size: int, f: int, seed: int) -> None:
    heads = heads_of(count, size, seed)
    decision = rules.MDA(f=f)(heads[0], heads[1:])
    kept = np.concatenate([[True], decision.reasons == int(Reason.KEPT)])
    if kept.sum() > count - f:  # The own head has no reason: it is left out if f others are not.
        kept[0] = False
    chosen = heads.reshape(count, -1)[kept]
    least, _ = by_all_subsets(heads, f, diameter)
    assert len(chosen) == count - f
    assert diameter(chosen) == pytest.approx(least, rel=1e-12)
    np.testing.assert_allclose(decision.head.reshape(-1), chosen.mean(axis=0), rtol=1e-10)


def test_of_equal_diameters_the_least_scatter_wins() -> None:
    """The ends are 4 apart, so are both triangles over them; the two tips are farther from each other."""
    left, right, near, far = [0.0, 0.0], [4.0, 0.0], [2.0, 2.5], [2.0, -2.6]
    for heads in ([left, right, near, far], [far, right, left, near], [right, far, near, left]):
        cross = np.array(heads)[:, None, :]
        answer = rules.MDA(f=1)(cross[0], cross[1:]).head
        np.testing.assert_allclose(answer[0], np.mean([left, right, near], axis=0))


@pytest.mark.parametrize("rule", [rules.MDA(f=3), rules.SMEA(f=3)])
def test_attackers_far_off_are_left_out_of_many_heads(rule: rules.Rule) -> None:
    heads = heads_of(20, 30, 1)
    heads[-3:] += 1e6
    decision = rule(heads[0], heads[1:])
    np.testing.assert_allclose(decision.head, heads[:-3].mean(axis=0), rtol=1e-9)
    assert decision.reasons.tolist() == [int(Reason.KEPT)] * 16 + [int(Reason.NOT_CHOSEN)] * 3


def test_mda_needs_no_enumeration_where_theirs_would_take_years() -> None:
    heads = heads_of(64, 50, 2)  # 4.4 billion subsets
    heads[-8:] *= 5
    decision = rules.MDA(f=8)(heads[0], heads[1:])
    np.testing.assert_allclose(decision.head, heads[:-8].mean(axis=0), rtol=1e-9)


def test_mda_without_attackers_and_of_equal_heads_is_the_mean() -> None:
    heads = heads_of(6, 4, 0)
    np.testing.assert_allclose(rules.MDA(f=0)(heads[0], heads[1:]).head, heads.mean(axis=0))
    np.testing.assert_allclose(rules.SMEA(f=0)(heads[0], heads[1:]).head, heads.mean(axis=0))
    same = np.repeat(heads[:1], 6, axis=0)
    for rule in (rules.MDA(f=2), rules.SMEA(f=2), rules.CAF(f=2)):
        np.testing.assert_allclose(rule(same[0], same[1:]).head, heads[0], rtol=1e-12)


def test_too_many_subsets_are_refused_with_what_to_do() -> None:
    heads = heads_of(40, 4, 0)
    with pytest.raises(ValueError, match=r"273,438,880 subsets of 40 heads.*fewer neighbours, a smaller f, or caf"):
        rules.SMEA(f=9)(heads[0], heads[1:])
    with pytest.raises(ValueError, match=r"f must be at most 12 for mda.*not 13; use caf or multi-krum"):
        rules.MDA(f=13)


@pytest.mark.parametrize("name", ["mda", "smea", "caf"])
def test_no_majority_keeps_the_own_head(name: str) -> None:
    heads = heads_of(4, 3, 0)
    decision = rules.create(name, f=2)(heads[0], heads[1:])
    np.testing.assert_array_equal(decision.head, heads[0])
    assert set(decision.reasons.tolist()) == {int(Reason.TOO_FEW_MODELS)}
