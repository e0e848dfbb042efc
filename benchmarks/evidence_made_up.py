"""Evidence on made-up features that no backbone made: units, correlation, counts, modes, tails, few dimensions.

    python benchmarks/evidence_made_up.py --seeds 620,621,622

prints a Markdown line per kind of data: 10 peers hold 4 of 10 classes with 12 samples of each. It compares one exchange
with what a peer has alone, with the nearest of the class means of all samples, and with logistic regression on all
samples (features divided by their standard deviations). Then come the points that the worst of some attacks costs, with
one attacker and with three. The data themselves are drawn anew for every seed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import attacks, rules
from bristle.simulation import FeatureData, Scenario, World, measure
from logistic import oracle

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
CLASSES, FEATURES, EACH, TESTED = 10, 50, 200, 200
LIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("poisoned-scatter", {}),
    ("poisoned-scatter", {"times": 1e4}),
    ("poisoned-scatter", {"times": 1e4, "along": "nearest"}),
    ("poisoned-scatter", {"times": 1e4, "along": "pairs"}),
    ("poisoned-scatter", {"size": 4.0, "along": "pairs"}),
    ("partisans", {"noise": 1.0}),
    ("permuted-labels", {"order": "random", "noise": 1.0}),
    ("statement-edge", {}),
    ("laid-on", {"part": 1.0, "against": 0.5}),
)


def around(
    rng: np.random.Generator, *, apart: float, features: int = FEATURES, modes: int = 1
) -> Callable[..., Floats]:
    """Return what draws samples of classes around `modes` centres each, at a distance of about `apart`."""
    centres = apart / np.sqrt(2 * features) * rng.standard_normal((CLASSES, modes, features))

    def draw(labels: Integers, chance: np.random.Generator, noise: Floats | None = None) -> Floats:
        drawn = chance.standard_normal((len(labels), features)) if noise is None else noise
        found: Floats = centres[labels, chance.integers(0, modes, len(labels))] + drawn
        return found

    return draw


def plain(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    return around(rng, apart=5.0)(labels, chance)


def units(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    scale = 10.0 ** rng.uniform(-3, 3, FEATURES)
    found: Floats = scale * around(rng, apart=5.0)(labels, chance)
    return found


def correlated(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    loud = 5.0 * rng.standard_normal((10, FEATURES)) / np.sqrt(FEATURES)
    shared = chance.standard_normal((len(labels), 10)) @ loud
    found: Floats = around(rng, apart=5.0)(labels, chance) + 2 * shared
    return found


def correlated_units(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    scale = 10.0 ** rng.uniform(-3, 3, FEATURES)
    return scale * correlated(rng, labels, chance)


def tails(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    noise = chance.standard_t(3, (len(labels), FEATURES)) / np.sqrt(3)
    return around(rng, apart=5.0)(labels, chance, noise)


def modes(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    return around(rng, apart=7.0, modes=3)(labels, chance)


def three_features(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    return around(rng, apart=8.0, features=3)(labels, chance)


def close(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    return around(rng, apart=2.5)(labels, chance)


def counts(rng: np.random.Generator, labels: Integers, chance: np.random.Generator) -> Floats:
    words = rng.dirichlet(np.full(300, 0.1), CLASSES)
    words = 0.5 * words + 0.5 * rng.dirichlet(np.full(300, 0.1))
    return np.stack([chance.multinomial(60, words[label]) for label in labels]).astype(np.float64)


KINDS: dict[str, Callable[..., Floats]] = {
    "independent features": plain,
    "units from 10^-3 to 10^3": units,
    "ten loud directions in common": correlated,
    "the same in such units": correlated_units,
    "heavy tails (Student's t, 3)": tails,
    "three modes a class": modes,
    "three features": three_features,
    "counts of 300 words": counts,
    "classes close together": close,
}


def made(kind: str, seed: int) -> FeatureData:
    """Return training and test samples of a kind."""

    def drawn(each: int, number: int) -> tuple[npt.NDArray[np.float32], Integers]:
        labels = np.repeat(np.arange(CLASSES), each)
        rng, chance = np.random.default_rng([1, seed]), np.random.default_rng([number, seed])
        return KINDS[kind](rng, labels, chance).astype(np.float32), labels

    return FeatureData(*drawn(EACH, 2), *drawn(TESTED, 3), tuple(map(str, range(CLASSES))))


def run(data: FeatureData, seed: int, attackers: int = 0, attack: Any = None) -> tuple[World, Floats]:
    """Return a world after one exchange, and the accuracy of every peer."""
    scenario = Scenario(
        peers=10, samples_per_class=2, seed=seed, rule=rules.create("evidence"), iterations=1,
        attackers=attackers, attack=attack or attacks.create("none"),
    )  # fmt: skip
    world = World(scenario, data)
    return world, np.asarray(measure(world, world.advance()).accuracy, dtype=np.float64)


def compared(world: World, data: FeatureData) -> tuple[float, float, float]:
    """Return the accuracies alone (mean), of the nearest mean of all samples, and of logistic regression on them."""
    exchange, test, truth = world.exchange, np.asarray(data.test, dtype=np.float64), np.asarray(data.test_labels)
    assert exchange is not None
    alone = []
    for own, samples in zip(exchange.statements, exchange.samples, strict=True):
        answer = exchange.rule.weigh(own, [], samples).answer
        alone.append(((test @ answer.head.T + answer.bias).argmax(axis=1) == truth).mean())
    x = np.concatenate([np.asarray(one.features) for one in exchange.samples]).astype(np.float64)
    y = np.concatenate([np.asarray(one.labels) for one in exchange.samples])
    x, y = x[y >= 0], y[y >= 0]
    means = np.stack([x[y == label].mean(axis=0) for label in range(CLASSES)])
    near = float((((test[:, None] - means) ** 2).sum(axis=2).argmin(axis=1) == truth).mean())
    spread = x.std(axis=0) + 1e-12
    return float(np.mean(alone)), near, oracle(x / spread, y, CLASSES, test / spread, truth)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seeds", default="620,621,622", help="comma-separated")
    words.add_argument("--kinds", default="", help=f"comma-separated, of: {', '.join(KINDS)}; by default all")
    chosen = words.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    print("| features | evidence (worst peer) | alone | nearest mean of all | logistic regression | L = 1 | L = 3 |")
    print("|---|---|---|---|---|---|---|")
    for kind in chosen.kinds.split(",") if chosen.kinds else KINDS:
        reached, others = list[Floats](), list[tuple[float, float, float]]()
        lost: dict[int, list[list[Floats]]] = {1: [], 3: []}
        for seed in seeds:
            data = made(kind, seed)
            world, benign = run(data, seed)
            reached.append(benign)
            others.append(compared(world, data))
            for attackers, found in lost.items():
                found.append([benign - run(data, seed, attackers, attacks.create(n, **o))[1] for n, o in LIES])
        cells = [f"{np.mean(reached):.3f} ({np.min(reached):.3f})", *(f"{v:.3f}" for v in np.mean(others, axis=0))]
        for found in lost.values():
            means, worst = np.mean(found, axis=(0, 2)), np.max(found, axis=(0, 2))
            place = int(means.argmax())
            cells.append(f"{100 * means[place]:.1f} / {100 * worst[place]:.1f} `{LIES[place][0]}`")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
