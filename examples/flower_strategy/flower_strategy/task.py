"""What is learned: ten digits by a linear head on the features of a frozen backbone, four digits for each client."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from bristle import Evaluation
from bristle.backbones import bundled, extract
from bristle.data import mnist

CLASSES, CLIENTS, LIARS = 10, 10, 3
SAMPLES, HELD_OUT, TEST = 40, 20, 2000
EPOCHS, BATCH, RATE = 2, 10, 0.02


@cache
def samples(seed: int) -> tuple[list[Evaluation], Evaluation, Evaluation]:
    """Return the samples of each client, of the server, and of the test that nobody trains on."""
    data, rng = mnist(), np.random.default_rng(seed)
    pools = [list(rng.permutation(np.flatnonzero(data.y_train == digit))) for digit in range(CLASSES)]

    def take(digits: range, each: int) -> Any:
        return np.array([pools[digit % CLASSES].pop() for digit in digits for _ in range(each)])

    own = take(range(CLASSES), HELD_OUT)
    rows = [take(range(client, client + 4), SAMPLES) for client in range(CLIENTS)]
    backbone = bundled(threads=1)

    def chosen(images: Any, labels: Any, index: Any) -> Evaluation:
        return Evaluation(extract(backbone, images[index], cache=False), labels[index].astype(np.int64))

    clients = [chosen(data.x_train, data.y_train, index) for index in rows]
    server = chosen(data.x_train, data.y_train, own)
    return clients, server, chosen(data.x_test, data.y_test, np.arange(TEST))


def flipped(labels: Any) -> Any:
    """Return what a liar trains on: every digit is called the next one."""
    return (labels + 1) % CLASSES


def start() -> dict[str, Any]:
    """Return the head that all begin with."""
    features = bundled(threads=1).features
    return {"weight": np.zeros((CLASSES, features), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def train(head: dict[str, Any], mine: Evaluation, rng: np.random.Generator) -> dict[str, Any]:
    """Return a head after some epochs of stochastic gradient descent on the cross entropy."""
    weight, bias = head["weight"].copy(), head["bias"].copy()
    for _ in range(EPOCHS):
        order = rng.permutation(len(mine.labels))
        for some in np.array_split(order, max(1, len(order) // BATCH)):
            features, labels = mine.features[some], mine.labels[some]
            scores = features @ weight.T + bias
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            chances[np.arange(len(some)), labels] -= 1
            weight -= RATE * chances.T @ features / len(some)
            bias -= RATE * chances.mean(axis=0)
    return {"weight": weight, "bias": bias}


def accuracy(head: dict[str, Any], tested: Evaluation) -> float:
    """Return the share of samples that a head names rightly."""
    return float(((tested.features @ head["weight"].T + head["bias"]).argmax(axis=1) == tested.labels).mean())
