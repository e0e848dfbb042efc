from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.data import partitions
from bristle.simulation import FeatureData, Scenario
from bristle.simulation.population import populate


def test_attackers_samples_are_nobody_elses(data: FeatureData) -> None:
    dirichlet = partitions.create("dirichlet", alpha=0.5, samples=4)
    attack = attacks.create("label-flip", classes=6)
    found = populate(Scenario(peers=5, attackers=3, partition=dirichlet, attack=attack), data)
    assert found.held.index is not None
    assert found.attackers_hold.index is not None
    benign = set(found.held.index.ravel()) | set(
        found.held_out.index.ravel() if found.held_out.index is not None else ()
    )
    theirs = found.attackers_hold.index
    assert theirs.shape == (3, 12), "two samples of each of six classes"
    assert not benign & set(theirs.ravel())
    assert (found.attackers_hold.labels == (data.train_labels[theirs] + 1) % 6).all()


def test_attackers_of_peers_who_have_it_all_share_with_them(data: FeatureData) -> None:
    found = populate(Scenario(peers=5, attackers=2, partition=partitions.create("iid")), data)
    assert sorted(set(found.attackers_hold.labels.ravel())) == list(range(6))


def test_users_differ_when_asked_to(data: FeatureData) -> None:
    same = populate(Scenario(peers=100, classes_per_peer=1), data).evaluation(None)
    found = populate(Scenario(peers=100, classes_per_peer=1, user_shift=0.5), data)
    moved = found.evaluation(None)
    offset = moved.features - same.features
    assert np.allclose(offset, offset[:, :1], atol=1e-6), "a peer's samples are all moved alike"
    scale = offset[:, 0] / data.train.std(axis=0)
    assert abs(scale.std() - 0.5) < 0.05
    assert abs(scale.mean()) < 0.05
    some = np.array([3, 90])
    assert (found.evaluation(some).features == moved.features[some]).all()
    trained = found.training(some)
    assert trained.index is None
    assert found.held.index is not None
    assert np.allclose(trained.features[0] - offset[3, 0], data.train[found.held.index[3]], atol=1e-5)


def test_testable_classes_have_enough_samples(data: FeatureData) -> None:
    found = populate(Scenario(peers=3, classes_per_peer=2), data)
    assert found.testable(6, rules.create("bristle")).tolist() == [
        [True, True, False, False, False, False],
        [False, True, True, False, False, False],
        [False, False, True, True, False, False],
    ]
    assert not found.testable(6, rules.create("bristle", kappa=11)).any()


def test_too_few_samples_are_an_error_unless_they_may_serve_several(data: FeatureData) -> None:
    with pytest.raises(ValueError, match="class"):
        populate(Scenario(peers=100), data)
    assert populate(Scenario(peers=100, reuse=True), data).held.labels.shape == (100, 8)


def test_partitions_know_users_and_names_of_classes(data: FeatureData) -> None:
    users = np.arange(len(data.train_labels)) % 7
    found = populate(Scenario(peers=7, partition=partitions.create("natural")), replace(data, user=users))
    assert found.held.index is not None
    for user, held in enumerate(found.held.index):
        assert set(users[held[held >= 0]]) == {user}
    lists = partitions.create("classes", lists=[["a"], ["f", "b"]], samples=2)
    held_labels = populate(Scenario(peers=2, partition=lists), data).held.labels
    assert [sorted(set(row[row >= 0])) for row in held_labels] == [[0], [1, 5]]
    with pytest.raises(ValueError, match="no user column"):
        populate(Scenario(peers=2, partition=partitions.create("natural")), data)
