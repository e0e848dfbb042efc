"""Pushes that rules which exchange heads feed back: each does what its formula says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.attacks import View
from bristle.learning.metrics import Evaluation
from bristle.simulation import FeatureData, Scenario, World
from bristle.testing import check_attack

TESTABLE = np.array([True, False, False, True, False])


@pytest.fixture
def view(make_view: Callable[..., View]) -> View:
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(5), 3)
    held = Evaluation(rng.normal(size=(15, 4)) + 2 + labels[:, None], labels)
    return replace(make_view(), testable=TESTABLE, held=held)


def mean_of(view: View) -> Any:
    assert isinstance(view.inbox, np.ndarray)
    assert view.victim is not None
    return np.concatenate([view.inbox, view.victim[None]]).mean(axis=0)


def cosine(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    one, other = one - one.mean(), other - other.mean()
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def centres_of(view: View) -> Any:
    assert view.held is not None
    return np.stack([view.held.features[view.held.labels == label].mean(axis=0) for label in range(5)])


def test_home_bias_lifts_what_is_tested_and_turns_the_rest_as_far_as_it_may(view: View) -> None:
    sent, mean = attacks.create("home-bias", size=2, cosine=0.8)(view), mean_of(view)
    common = centres_of(view).mean(axis=0)
    common /= np.linalg.norm(common)
    size = np.sqrt((mean**2).sum(axis=1).mean())
    for head in sent:
        np.testing.assert_allclose(head[TESTABLE], mean[TESTABLE] + 2 * size * common)
        for label in np.flatnonzero(~TESTABLE):
            assert cosine(head[label], mean[label]) == pytest.approx(0.8)
            assert head[label] @ common < mean[label] @ common


def test_home_bias_for_everybody_does_not_ask_who_the_victim_is(view: View) -> None:
    attack = attacks.create("home-bias", home=(0, 1))
    np.testing.assert_array_equal(attack(view), attack(replace(view, testable=~TESTABLE)))


@pytest.mark.parametrize("turn", ["away", "next", "common"])
def test_the_edge_keeps_the_cosine_and_what_is_tested(view: View, turn: str) -> None:
    sent, mean = attacks.create("edge", turn=turn, cosine=0.7)(view), mean_of(view)
    np.testing.assert_allclose(sent[0][TESTABLE], mean[TESTABLE])
    for label in np.flatnonzero(~TESTABLE):
        assert cosine(sent[0][label], mean[label]) == pytest.approx(0.7)
        lengths = [np.linalg.norm(row - row.mean()) for row in (sent[0][label], mean[label])]
        assert lengths[0] == pytest.approx(lengths[1])


def test_a_common_shift_predicts_the_same(view: View) -> None:
    assert view.held is not None
    features = view.held.features
    sent, mean = attacks.create("common-shift")(view), mean_of(view)
    np.testing.assert_array_equal((features @ sent[0].T).argmax(axis=1), (features @ mean.T).argmax(axis=1))
    moved = sent[0] - mean
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape))


def test_volume_and_drift(view: View) -> None:
    mean = mean_of(view)
    loud = attacks.create("familiar-volume", factor=4)(view)
    np.testing.assert_allclose(loud[0], np.where(TESTABLE[:, None], 4 * mean, mean))
    early = attacks.create("slow-drift")(replace(view, iteration=1, total=10))[0] - mean
    late = attacks.create("slow-drift")(replace(view, iteration=10, total=10))[0] - mean
    np.testing.assert_allclose(late, 10 * early, atol=1e-12)
    np.testing.assert_allclose(late[TESTABLE], 0, atol=1e-12)


def test_near_copies_differ_a_little(view: View) -> None:
    assert view.victim is not None
    sent = attacks.create("near-copies", noise=0.01)(view, rng=np.random.default_rng(3))
    apart = np.abs(sent - view.victim)
    assert 0 < apart.max() < 0.01 * np.sqrt((mean_of(view) ** 2).sum(axis=1).mean())
    assert len({head.tobytes() for head in sent}) == 3


def test_a_backdoor_turns_two_rows_that_are_not_tested(view: View) -> None:
    attack, mean, centre = attacks.create("backdoor", source=1, target=2), mean_of(view), centres_of(view)[1]
    sent = attack(view)[0]
    assert sent[2] @ centre > mean[2] @ centre
    assert sent[1] @ centre < mean[1] @ centre
    np.testing.assert_allclose(sent[[0, 3, 4]], mean[[0, 3, 4]])
    np.testing.assert_allclose(attack(replace(view, testable=np.ones(5, dtype=bool)))[0], mean)
    np.testing.assert_allclose(attacks.create("backdoor")(view)[0], mean)


def test_samples_that_do_not_fit_are_refused(view: View) -> None:
    with pytest.raises(ValueError, match=r"view\.held\.features must be"):
        attacks.create("edge")(replace(view, held=Evaluation(np.zeros((3, 9)), np.zeros(3, dtype=int))))


def test_variants_conform() -> None:
    check_attack(attacks.create("home-bias", home=(0, 4)))
    check_attack(attacks.create("edge", turn="next"))


def blobs(rng: np.random.Generator) -> FeatureData:
    """Ten classes that are easy to tell apart, with a large common part."""
    centres = 3 + 2 * rng.normal(size=(10, 20))

    def draw(each: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        labels = np.repeat(np.arange(10), each)
        return (centres[labels] + rng.normal(size=(10 * each, 20))).astype(np.float32), labels

    train, test = draw(200), draw(20)
    return FeatureData(*train, *test, tuple("0123456789"))


def test_one_attacker_is_enough_against_heads_that_are_fed_back() -> None:
    data = blobs(np.random.default_rng(0))
    found = []
    for attackers in (0, 1):
        scenario = Scenario(
            attackers=attackers, attack=attacks.create("home-bias"), rule=rules.create("bristle"), iterations=40, seed=1
        )
        world = World(scenario, data)
        for _ in range(40):
            world.advance()
        found.append(float(np.mean(world.accuracy())))
    assert found[1] < found[0] - 0.1
