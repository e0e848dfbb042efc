"""What the figures on privacy are computed with, on made-up samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bristle.peer.step import Sharing
from bristle.simulation import FeatureData
from membership import Game, Trained, attack, auc_and_tpr, confidence, epsilon, train

RNG = np.random.default_rng(0)


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    scores, members = RNG.integers(0, 12, 80).astype(float), RNG.random(80) < 0.4
    pairs = scores[members][:, None] - scores[~members][None, :]
    area, _ = auc_and_tpr([scores[:30], scores[30:]], [members[:30], members[30:]])
    assert area == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def test_caught_at_one_per_cent() -> None:
    scores = np.concatenate([np.arange(1000.0), np.array([995.5, 5.0, 2000.0, 3000.0])])
    members = np.arange(1004) >= 1000
    assert auc_and_tpr([scores], [members])[1] == 0.75


def test_confidence_is_the_log_odds_of_the_right_class() -> None:
    heads, features = RNG.normal(size=(2, 5, 8)).astype(np.float32), RNG.normal(size=(6, 8)).astype(np.float32)
    labels = RNG.integers(0, 5, 6)
    trained = Trained(features, labels, np.zeros((2, 6), np.bool_), heads[None])
    outputs = np.exp(np.einsum("ncd,pd->npc", heads, features))
    chances = (outputs / outputs.sum(axis=2, keepdims=True))[:, np.arange(6), labels]
    np.testing.assert_allclose(confidence(heads, trained), np.log(chances / (1 - chances)), rtol=1e-4, atol=1e-5)


def test_few_samples_are_found_and_noise_hides_them() -> None:
    labels = np.repeat(np.arange(6), 40)
    features = np.abs(RNG.normal(size=(240, 64)) + 0.3 * RNG.normal(size=(6, 64))[labels]).astype(np.float32)
    data = FeatureData(features, labels, features[:6], labels[:6], tuple("abcdef"))
    game = Game(samples=(2,), peers=16, pools=1, iterations=80)
    crowd = train(data, 2, game, pool=0)
    assert (crowd.member.sum(axis=1) == 8).all()
    plain, noisy = attack([crowd], Sharing()), attack([crowd], Sharing(noise=50.0))
    assert plain["loss_auc"] > 0.8
    assert plain["ratio_auc"] > 0.9
    assert abs(noisy["ratio_auc"] - 0.5) < 0.2


def test_epsilon_adds_up_over_releases() -> None:
    rho = 2 * 10 * 10 * 800 / 25.0
    expected = rho + 2 * math.sqrt(rho * math.log(1e5))
    assert epsilon(5.0, classes=10, features=800, iterations=10) == pytest.approx(expected)
    assert epsilon(5.0, classes=10, features=800, iterations=100) > 9 * expected
