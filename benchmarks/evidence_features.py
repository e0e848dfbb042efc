"""Where random features pay: evidence on plain features, on random features of them, and a linear oracle.

    python benchmarks/evidence_features.py --data mnist --data FOLDER --seeds 320,321,322

For each dataset: pixels without a backbone, the bundled backbone's features, and these with classes joined in pairs, so
that each class has two modes. 10 peers, 4 of 10 classes (2 of 5 joined ones). Prints a Markdown table.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from bristle.backbones import NoBackbone, RandomFeatures
from bristle.data import load
from bristle.simulation import FeatureData, prepare
from evidence import features
from evidence_worlds import best, exchanged


def kinds(data: str) -> Iterator[tuple[str, FeatureData, int]]:
    """Yield a name, features and the classes of a peer."""
    dataset = load(data)
    pixels = prepare(dataset, NoBackbone(int(np.prod(dataset.x_train.shape[1:]))))
    name = Path(data).name
    yield f"{name}, pixels", pixels, 4
    made = features(data)
    yield f"{name}, backbone", made, 4
    pairs = tuple(f"{first}/{second}" for first, second in zip(made.classes[:5], made.classes[5:], strict=True))
    joined = replace(made, train_labels=made.train_labels % 5, test_labels=made.test_labels % 5, classes=pairs)
    yield f"{name}, backbone, classes joined in pairs", joined, 2


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", action="append", default=[], help="mnist, or a file or folder (may be repeated)")
    words.add_argument("--seeds", default="320", help="comma-separated")
    words.add_argument("--samples", type=int, default=150, help="training samples of a class and peer (150)")
    words.add_argument("--count", type=int, default=2000, help="random features (2000)")
    chosen = words.parse_args()
    print(f"| features, {chosen.samples} + 10 | evidence | on {chosen.count} random features | linear oracle |")
    print("|---|---|---|---|")
    for data in chosen.data or ["mnist"]:
        for name, plain, held in kinds(data):
            made = RandomFeatures(NoBackbone(plain.train.shape[1]), count=chosen.count)
            drawn = replace(plain, train=made(np.asarray(plain.train)), test=made(np.asarray(plain.test)))
            found = []
            for seed in chosen.seeds.split(","):
                options = {
                    "peers": 10,
                    "classes_per_peer": held,
                    "samples_per_class": chosen.samples,
                    "seed": int(seed),
                }
                world, linear = exchanged(plain, **options)
                _, random = exchanged(drawn, **options)
                found.append((linear.mean(), random.mean(), best(world, plain)))
            cells = " | ".join(f"{value:.3f}"[1:] for value in np.mean(found, axis=0))
            print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
