from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

from bristle.backbones import backbone
from bristle.backbones.features import extract
from bristle.data import mnist, partitions
from bristle.learning import baselines as oracle
from bristle.learning.baselines import accuracy_on, train_alone, train_oracle
from bristle.learning.metrics import accuracy
from bristle.learning.optimiser import TrainingSettings
from bristle.learning.training import held_labels

Digits = tuple[Any, Any, Any, Any]
LIBRARIES: tuple[Any, ...] = (np.asarray, torch.asarray, array_api_strict.asarray)


def test_the_oracle_is_full_batch_adam_from_zero() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.random((30, 20), dtype=np.float32), rng.integers(0, 4, 30)
    model = torch.zeros(4, 20, requires_grad=True)
    optimiser = torch.optim.Adam([model], lr=1e-3, weight_decay=5e-3)
    for _ in range(300):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(torch.asarray(features) @ model.T, torch.asarray(labels))
        torch.autograd.backward(loss)
        optimiser.step()
    np.testing.assert_allclose(train_oracle(features, labels, 4), model.detach().numpy(), atol=1e-5)
    worlds = np.stack([features, features[::-1]]), np.stack([labels, labels[::-1]])
    np.testing.assert_allclose(train_oracle(*worlds, 4)[1], model.detach().numpy(), atol=1e-5)


def test_local_only_learns_what_it_holds() -> None:
    rng = np.random.default_rng(0)
    centres = rng.random((4, 60), dtype=np.float32)
    classes = rng.integers(0, 4, 200)
    # Features as a backbone makes them, not negative: so the rows of classes not held go down.
    table = centres[classes] + 0.3 * rng.random((200, 60), dtype=np.float32)
    index = np.stack([np.flatnonzero(np.isin(classes, held))[:20] for held in ((0, 1), (2, 3), (0, 1, 2, 3))])
    labels = held_labels(classes, index)
    heads = train_alone(table, labels, 4, seed=0, steps=400, index=index)
    reached = accuracy_on(heads, table, classes)
    known = np.array([np.isin(classes, held).mean() for held in ((0, 1), (2, 3), (0, 1, 2, 3))])
    np.testing.assert_allclose(reached, known, atol=0.02)
    np.testing.assert_allclose(train_alone(table[index], labels, 4, seed=0, steps=400), heads, atol=1e-6)


def test_accuracy_in_blocks_is_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    heads, features = rng.standard_normal((2, 3, 4, 6)), rng.standard_normal((50, 6))
    labels = rng.integers(-1, 4, 50)
    expected = accuracy(features @ heads.swapaxes(-1, -2), labels)
    for room in (1, 4 * 8 * 4 * 7, 4 * 8 * 4 * 101, 1 << 30):
        monkeypatch.setattr(oracle, "block_bytes", lambda array, room=room: room)
        for convert in LIBRARIES:
            found = accuracy_on(convert(heads), convert(features), convert(labels))
            assert tuple(found.shape) == (2, 3)
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    assert accuracy_on(heads[0, 0], features, labels).shape == ()
    assert accuracy_on(heads[:0], features, labels).shape == (0, 3)
    assert not accuracy_on(heads, features[:0], labels[:0]).any()


def test_mistakes_are_named() -> None:
    heads, features, labels = np.zeros((3, 4, 6)), np.zeros((5, 6)), np.zeros(5, dtype=np.int64)
    with pytest.raises(ValueError, match=r"heads \[3, 4, 6\] and features \[5, 5\] do not fit"):
        accuracy_on(heads, features[:, 1:], labels)
    with pytest.raises(ValueError, match=r"labels have the shape \[4\], but there are 5 samples"):
        accuracy_on(heads, features, labels[1:])


@pytest.fixture(scope="module")
def digits() -> Digits:
    """Features of MNIST by the bundled backbone."""
    data, network = mnist(), backbone.bundled()
    train, test = (extract(network, images, cache=False) for images in (data.x_train, data.x_test))
    return train, data.y_train, test, data.y_test


@pytest.mark.slow
def test_two_samples_a_class_and_peer_are_enough_for_the_oracle(digits: Digits) -> None:
    train_features, train_labels, test_features, test_labels = digits
    reached = []
    for seed in range(5):
        partition = partitions.create("iid", samples=2)(mnist(), peers=10, seed=seed)
        held = partition.train.flat
        assert len(held) == 200
        head = train_oracle(train_features[held], train_labels[held], 10)
        reached.append(float(accuracy_on(head, test_features, test_labels)))
    assert np.mean(reached) >= 0.95


@pytest.mark.slow
def test_a_head_on_all_features_knows_the_digits(digits: Digits) -> None:
    train_features, train_labels, test_features, test_labels = digits
    large = TrainingSettings(batch=500)  # mini-batches reach in a second what full batches reach in half a minute
    head = train_alone(train_features, train_labels, 10, seed=0, steps=600, settings=large)
    assert float(accuracy_on(head, test_features, test_labels)) >= 0.99
