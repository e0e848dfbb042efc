"""Regular learning: a world of peers that train whole networks from scratch and aggregate them. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from bristle._core.rng import Stream, draw
from bristle.data import mnist
from bristle.learning import HeadState
from bristle.learning.whole_network import ConvolutionalNetwork, regular_step
from bristle.rules import Context
from bristle.simulation import FeatureData, Scenario
from bristle.simulation.population import populate
from bristle.wire.sizes import head_bytes

Row = dict[str, Any]
TEST_SAMPLES = 2000
"""How many test images are enough for whole networks, whose evaluation would take longer than all their training."""


@lru_cache(maxsize=1)
def _images() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    digits = mnist()
    arrays = (digits.x_train, digits.y_train.astype(np.int64), digits.x_test, digits.y_test.astype(np.int64))
    train, train_labels, test, test_labels = (torch.tensor(array) for array in arrays)
    return train, train_labels, test, test_labels


def regular(scenario: Scenario, *, every: int, test_samples: int | None, tick: Callable[[int], None]) -> list[Row]:
    """Run honest peers that hear everybody, with the samples and mini-batches that the world of heads would have.

    All begin with the same network: means of networks that began apart are of no use.
    """
    torch.set_num_threads(1)
    train, train_labels, test, test_labels = _images()
    if test_samples is None or test_samples > TEST_SAMPLES:
        test_samples = TEST_SAMPLES
    network, peers = ConvolutionalNetwork(), scenario.peers
    held = populate(scenario, FeatureData.labels_only(train_labels.numpy(), tuple(map(str, range(10))))).held
    assert held.index is not None
    index, labels = torch.tensor(np.asarray(held.index)), torch.tensor(np.asarray(held.labels))
    state = HeadState.start(network.initial([scenario.seed] * peers))
    others = torch.tensor([[sender for sender in range(peers) if sender != peer] for peer in range(peers)])
    previous, sent, rows = state.head, 0, []
    for iteration in range(1, scenario.iterations + 1):
        context = Context(iteration=iteration, total=scenario.iterations, previous=previous, senders=others, state=None)
        previous = scenario.rule(state.head, state.head[others], context=context).head
        draws = draw(scenario.seed, Stream.BATCHES, np.arange(peers), iteration, labels.shape[1]).astype(np.float32)
        mixed = HeadState(previous, state.first, state.second, state.steps)
        state = regular_step(network, mixed, train, labels, draws, index=index, settings=scenario.training)
        sent += (peers - 1) * head_bytes(1, network.parameters)
        if iteration % every == 0 or iteration == scenario.iterations:
            accuracy = network.accuracy_on(state.head, test[:test_samples], test_labels[:test_samples])
            rows.append(_row(scenario, iteration, accuracy.numpy().astype(np.float64), sent))
            tick(iteration)
    return rows


def _row(scenario: Scenario, iteration: int, accuracy: np.ndarray[Any, Any], sent: int) -> Row:
    return {
        "attack": "none",
        "peers": scenario.peers,
        "attackers": 0,
        "classes_per_peer": scenario.classes_per_peer,
        "samples_per_class": scenario.samples_per_class,
        "seed": scenario.seed,
        "iteration": iteration,
        "accuracy_mean": float(accuracy.mean()),
        "accuracy_min": float(accuracy.min()),
        "bytes_sent": sent,
    }
