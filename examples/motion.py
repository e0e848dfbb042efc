"""Motion sensors as ready features: ten people with a smartwatch learn seven shoulder exercises from each other.

Nobody has a backbone: what is learned on are means, spreads and ranges of each sensor in windows of four seconds. Each
person has done four of the exercises, and three others lie. The recordings are real (Burns et al., "Shoulder
Physiotherapy Exercise Recognition", 2018). Needs seglearn, which has them. Run it with: python examples/motion.py
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import simulate
from bristle.data import Dataset

WINDOW, STEP = 200, 50
"""Measurements, at 50 a second."""

LEARNED = 0.6
"""Share of each recording to learn from; the rest, which comes later, is for testing."""

OWN = 4
"""Exercises that each person has done."""

RULES = ("local", "fedavg", "median", "bristle", "evidence")

Floats = npt.NDArray[np.float64]


def features_of(recording: Floats) -> Floats:
    """Return one row for each window [n, features] of a recording [measurements, sensors]."""
    windows = np.lib.stride_tricks.sliding_window_view(recording, WINDOW, axis=0)[::STEP]
    quantiles = np.quantile(windows, [0.1, 0.5, 0.9], axis=-1)
    changes = np.abs(np.diff(windows, axis=-1)).mean(axis=-1)
    return np.concatenate([*quantiles, windows.mean(axis=-1), windows.std(axis=-1), changes], axis=1)


def recordings() -> Dataset:
    """Return the windows of all users, and the user of each."""
    try:
        from seglearn.datasets import load_watch  # noqa: PLC0415
    except ModuleNotFoundError:
        sys.exit("this example needs the recordings that come with seglearn: pip install seglearn")
    watch = load_watch()
    parts: dict[bool, list[tuple[Floats, int, int]]] = {True: [], False: []}
    for recording, exercise, person in zip(watch["X"], watch["y"], watch["subject"], strict=True):
        end = int(LEARNED * len(recording))
        if (exercise - person) % len(watch["y_labels"]) < OWN:
            parts[True].append((features_of(recording[:end]), exercise, person))
        parts[False].append((features_of(recording[end:]), exercise, person))
    (x_train, y_train, user), (x_test, y_test, test_user) = (together(parts[learned]) for learned in (True, False))
    # Everybody has to use the same constants: agree on them, as on a backbone.
    middle, spread = x_train.mean(axis=0), x_train.std(axis=0)
    return Dataset(
        (x_train - middle) / spread,
        y_train,
        (x_test - middle) / spread,
        y_test,
        classes=tuple(watch["y_labels"]),
        user=user,
        test_user=test_user,
        name="shoulder exercises",
    )


def together(parts: list[tuple[Floats, int, int]]) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the features of some recordings, their exercises, and who did them."""
    sizes = [len(features) for features, _, _ in parts]
    exercise, person = (np.repeat([int(part[at]) for part in parts], sizes) for at in (1, 2))
    return np.concatenate([features for features, _, _ in parts]), exercise, person


def world(rule: str, iterations: int) -> dict[str, Any]:
    """Return the settings of a simulation; docs/world.md explains them."""
    return {
        "world": {"peers": 10, "attackers": 3, "iterations": iterations, "evaluate_every": iterations},
        "data": {"backbone": "none"},
        "partition": {"name": "natural", "held_out": 10},
        "rule": {"name": rule},
        "attack": {"name": "label-flip"},
        "training": {"learning_rate": 0.01},
    }


def main() -> None:
    """Compare what rules make of the recordings, for every person on its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer iterations, to see that it works")
    iterations = 30 if parser.parse_args().quick else 300
    data = recordings()
    print(
        f"{len(data.y_train):,} windows of {data.x_train.shape[1]} features; accuracy of each person's own recordings:"
    )
    for number, rule in enumerate(RULES):
        row = simulate(world(rule, iterations), data=data).last()
        users = row["accuracy_per_user"]
        if not number:
            print(f"{'person':14} {' '.join(f'{user:>4}' for user in users)}   mean")
        shares = list(users.values())
        print(f"{rule:14} {' '.join(f'{share:4.0%}' for share in shares)}  {np.mean(shares):5.1%}")


if __name__ == "__main__":
    main()
