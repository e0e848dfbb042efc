"""What the figures on statements and privacy are computed with, on made-up samples."""

from __future__ import annotations

import numpy as np
import pytest

from bristle.simulation import FeatureData
from statement_membership import Game, Stated, attack, distances, make, solutions


def features() -> FeatureData:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    found = (rng.normal(size=(240, 48)) + rng.normal(size=(4, 48))[labels]).astype(np.float32)
    return FeatureData(found, labels, found[:4], labels[:4], tuple("abcd"))


def stated(each: int) -> Stated:
    return make(features(), each, Game(peers=16, pools=1, others=30), pool=0)


def test_every_peer_states_its_half_of_the_pool() -> None:
    found = stated(5)
    assert (found.member.sum(axis=1) == 20).all()
    mine = found.member[3] & (found.labels == 2)
    np.testing.assert_allclose(found.statements[3].rows[2], found.features[mine].mean(axis=0), atol=2e-3)


def test_few_samples_are_found() -> None:
    row = attack([stated(2)])
    assert row["distance_auc"] > 0.9
    assert row["ratio_auc"] > 0.95
    assert attack([stated(15)])["distance_auc"] < row["distance_auc"]


def test_linear_equations_say_which_samples_a_sum_is_of() -> None:
    found = stated(5)
    np.testing.assert_array_equal(solutions(found) > 0.5, found.member)


def test_nearness_is_to_the_mean_of_the_class_of_a_sample() -> None:
    found = stated(2)
    own = found.features[0] - found.statements[1].rows[found.labels[0]]
    assert distances(found)[1, 0] == pytest.approx(-np.linalg.norm(own))
