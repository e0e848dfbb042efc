"""Logistic regression on pooled samples, the oracle of the evidence benchmarks: l2 chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
PENALTIES = 10.0 ** np.arange(0, -6.5, -0.5)
FOLDS = 5


def minimise(loss: Callable[[Floats], tuple[float, Floats]], start: Floats, steps: int = 200) -> Floats:
    """Return a minimum of a smooth convex function by L-BFGS with backtracking (Liu and Nocedal 1989)."""
    place, (value, slope) = start, loss(start)
    pairs: list[tuple[Floats, Floats, float]] = []
    for _ in range(steps):
        way = slope.copy()
        parts = []
        for moved, turned, scale in reversed(pairs):
            part = scale * float(moved @ way)
            parts.append(part)
            way -= part * turned
        steep = pairs[-1][2] * float(pairs[-1][1] @ pairs[-1][1]) if pairs else max(float(np.linalg.norm(way)), 1e-12)
        way /= steep
        for (moved, turned, scale), part in zip(pairs, reversed(parts), strict=True):
            way += (part - scale * float(turned @ way)) * moved
        descent = -float(slope @ way)
        if descent > -1e-14:
            break
        size = 1.0
        new = loss(place - way)
        while new[0] > value + 1e-4 * size * descent and size > 1e-6:
            size /= 2
            new = loss(place - size * way)
        moved, turned = -size * way, new[1] - slope
        along = float(moved @ turned)
        if along > 1e-12:
            pairs = [*pairs[-9:], (moved, turned, 1 / along)]
        settled = abs(value - new[0]) < 1e-6 * max(abs(value), 1e-3)
        place, (value, slope) = place + moved, new
        if settled:
            break
    return place


def fit(x: Floats, y: Integers, classes: int, penalty: float, start: Floats | None = None) -> Floats:
    """Return weights and bias [C, D + 1] that minimise cross-entropy + penalty / 2 ‖W‖²."""
    count, depth = x.shape
    truth = np.eye(classes, dtype=x.dtype)[y]

    def loss(flat: Floats) -> tuple[float, Floats]:
        head = flat.reshape(classes, depth + 1)
        scores = x @ head[:, :depth].T + head[:, depth]
        scores = scores - scores.max(axis=1, keepdims=True)
        raised = np.exp(scores)
        total = raised.sum(axis=1, keepdims=True)
        value = float((np.log(total[:, 0]) - scores[np.arange(count), y]).mean())
        value += 0.5 * penalty * float((head[:, :depth] ** 2).sum())
        wrong = (raised / total - truth) / count
        slope = np.concatenate([wrong.T @ x + penalty * head[:, :depth], wrong.sum(axis=0)[:, None]], axis=1)
        return value, slope.ravel()

    first = np.zeros((classes, depth + 1), dtype=x.dtype) if start is None else start
    return minimise(loss, first.ravel()).reshape(classes, depth + 1)


def oracle(x: Floats, y: Integers, classes: int, test: Floats, truth: Integers) -> float:
    """Return the test accuracy of logistic regression on samples, its l2 chosen by five-fold cross-validation."""
    middle = x.mean(axis=0)
    unit = np.sqrt(((x - middle) ** 2).sum(axis=1).mean())
    x, test = ((x - middle) / unit).astype(np.float32), ((test - middle) / unit).astype(np.float32)
    fold = np.random.default_rng(0).permutation(len(y)) % FOLDS
    right = np.zeros(len(PENALTIES))
    for number in range(FOLDS):
        head = None
        for place, penalty in enumerate(PENALTIES):  # From strong to weak: each starts from the one before.
            head = fit(x[fold != number], y[fold != number], classes, float(penalty), head)
            right[place] += (predicted(x[fold == number], head) == y[fold == number]).sum()
    head = None
    for penalty in PENALTIES[: int(right.argmax()) + 1]:
        head = fit(x, y, classes, float(penalty), head)
    assert head is not None
    return float((predicted(test, head) == truth).mean())


def predicted(x: Floats, head: Floats) -> Integers:
    """Return the predicted classes of samples."""
    found: Integers = (x @ head[:, :-1].T + head[:, -1]).argmax(axis=1)
    return found
