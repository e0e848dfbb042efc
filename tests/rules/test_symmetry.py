"""Rules that say the own head counts like any other answer the same with another in its place."""

from __future__ import annotations

import numpy as np
import pytest

from bristle import rules

SYMMETRIC = {
    *("fedavg", "median", "trimmed-mean", "mean-around-median", "krum", "multi-krum", "bulyan", "geometric-median"),
    *("mda", "smea", "caf", "cge"),
}


def test_which_rules_are() -> None:
    assert {name for name in rules.names(shares="heads") if rules.create(name).symmetric} == SYMMETRIC
    assert not rules.Krum(with_own=True).symmetric
    mixing, clipping = rules.create_step("nearest-neighbour-mixing"), rules.create_step("clipping", tau=1.0)
    assert rules.chain(mixing, rules.Median()).symmetric
    assert not rules.chain(clipping, rules.Median()).symmetric
    assert not rules.chain(mixing, rules.Mozi()).symmetric


@pytest.mark.parametrize("name", sorted(SYMMETRIC - {"bulyan"}))  # Its last choices are ties.
def test_another_own_head_changes_nothing(name: str) -> None:
    heads = np.random.default_rng(0).standard_normal((15, 3, 5))
    rule = rules.create(name)
    expected = rule(heads[0], heads[1:]).head
    for own in (1, 7, 14):
        order = [own, *(i for i in range(15) if i != own)]
        np.testing.assert_allclose(rule(heads[own], heads[order[1:]]).head, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["balance", "mozi", "fltrust", "bristle", "nearest-neighbour-averaging", "local"])
def test_others_ask_whose_head_it_is(name: str) -> None:
    assert not rules.create(name).symmetric
