"""How well `evidence` knows what it does not know: calibration, and abstention on classes that nobody holds.

    python benchmarks/evidence_confidence.py --data mnist --seeds 500,501,502

Ten peers with 4 of 8 classes each; the last two classes of the dataset are held by nobody. Prints a Markdown row:
accuracy on the classes that are held, the expected calibration error (15 bins) of a peer's probabilities and of those
that are not calibrated, and the share of samples on which a peer abstains, of classes that are held and of others.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bristle import rules
from bristle.simulation import FeatureData, Scenario, World
from evidence import features

HELD = 8
BINS = 15


def calibration_error(probabilities: Any, labels: Any) -> float:
    """Return the expected calibration error: how far confidence is from accuracy, on average over bins."""
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    gaps = np.abs(np.bincount(place, sure, minlength=BINS) - np.bincount(place, right, minlength=BINS))
    return float(gaps.sum() / counts.sum())


def measured(data: FeatureData, seed: int, samples: int) -> list[float]:
    """Return the five figures of one world, means over its peers."""
    kept, seen = np.asarray(data.train_labels) < HELD, np.asarray(data.test_labels) < HELD
    test, labels = np.asarray(data.test), np.asarray(data.test_labels)
    part = replace(
        data,
        train=np.asarray(data.train)[kept],
        train_labels=np.asarray(data.train_labels)[kept],
        test=test[seen],
        test_labels=labels[seen],
        classes=data.classes[:HELD],
    )
    rule = rules.create("evidence")
    world = World(Scenario(peers=10, rule=rule, samples_per_class=samples, seed=seed, iterations=1), part)
    exchange = world.exchange
    assert exchange is not None
    found = []
    for peer, own in enumerate(exchange.statements):
        others = [one for place, one in enumerate(exchange.statements) if place != peer]
        answer = exchange.rule.weigh(own, others, exchange.samples[peer]).answer
        given = answer.probabilities(test[seen])
        plain = replace(answer, calibrate=lambda: (1.0, np.inf)).probabilities(test[seen])
        away = answer.abstains(test)
        right = float((given.argmax(axis=1) == labels[seen]).mean())
        errors = [calibration_error(one, labels[seen]) for one in (given, plain)]
        found.append([right, *errors, float(away[seen].mean()), float(away[~seen].mean())])
    return [float(value) for value in np.mean(found, axis=0)]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", action="append", default=[], help="mnist, or a file or folder (may be repeated)")
    words.add_argument("--seeds", default="500,501,502", help="comma-separated")
    chosen = words.parse_args()
    print("| data | accuracy | calibration error | not calibrated | abstains: held | nobody's |")
    print("|---|---|---|---|---|---|")
    for name in chosen.data or ["mnist"]:
        data = features(name)
        for samples in (2, 15):
            rows = [measured(data, int(seed), samples) for seed in chosen.seeds.split(",")]
            cells = " | ".join(f"{value:.3f}" for value in np.mean(rows, axis=0))
            print(f"| {Path(name).stem}, {samples} + 10 | {cells} |", flush=True)


if __name__ == "__main__":
    main()
