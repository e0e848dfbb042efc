from __future__ import annotations

import numpy as np
import pytest

from bristle import attacks, rules
from bristle.learning import f1_scores
from bristle.simulation import FeatureData, Scenario, World, measure
from bristle.wire.sizes import head_bytes


def test_measurements_agree_with_plain_counting(data: FeatureData) -> None:
    world = World(Scenario(peers=4, classes_per_peer=3), data)
    for _ in range(25):
        latest = world.advance()
    found = measure(world, latest)
    np.testing.assert_allclose(found.accuracy, world.accuracy(), atol=1e-6)
    for peer, head in enumerate(world.heads):
        guess = (data.test @ head.T).argmax(axis=1)
        assert found.accuracy[peer] == pytest.approx((guess == data.test_labels).mean())
        for number in range(6):
            real = data.test_labels == number
            assert found.class_accuracy[peer, number] == pytest.approx((guess[real] == number).mean())
        np.testing.assert_allclose(found.f1[peer], f1_scores(guess, data.test_labels, 6, np.float64))
    assert found.bytes_sent.tolist() == [25 * 3 * head_bytes(6, 24)] * 4


def test_small_blocks_count_the_same(data: FeatureData, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Scenario(peers=5, classes_per_peer=3), data)
    for _ in range(10):
        latest = world.advance()
    whole = measure(world, latest)
    monkeypatch.setattr("bristle.simulation.measurement.block_bytes", lambda array: 24 * 6 * 37)
    parts = measure(world, latest)
    assert (whole.accuracy == parts.accuracy).all()
    assert (whole.f1 == parts.f1).all()


def test_weights_are_told_apart(data: FeatureData) -> None:
    noise = attacks.create("additive-noise")
    world = World(Scenario(peers=4, attackers=2, classes_per_peer=3, rule=rules.FedAvg(), attack=noise), data)
    found = measure(world, world.advance())
    assert found.weight_benign == pytest.approx(3 / 6)
    assert found.weight_malicious == pytest.approx(2 / 6)
    alone = World(Scenario(peers=4, classes_per_peer=3, rule=rules.Local()), data)
    found = measure(alone, alone.advance())
    assert (found.weight_benign, found.weight_malicious) == (0, 0)
