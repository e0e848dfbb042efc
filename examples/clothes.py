"""Images with a torch backbone: ten people learn ten kinds of clothes, though each has seen four, and four others lie.

The backbone is a small network that is trained here on handwritten digits, in a few seconds; yours would come from timm
or transformers. Needs torch and Fashion-MNIST. Run it with: python examples/clothes.py [FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

try:
    import torch
except ModuleNotFoundError:
    sys.exit("this example needs torch: in the clone, pip install '.[torch]'")
from torch import nn

from bristle import simulate
from bristle.backbones import TorchBackbone
from bristle.data import Dataset, load, mnist

FOLDER = "/usr/share/datasets/fashion-mnist"
KINDS = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
FEATURES = 256
RULES = ("local", "fedavg", "median", "bristle", "evidence")


def trained_network(images: int) -> nn.Sequential:
    """Train a network to read digits, and return its layers but the last."""
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 5 * 5, FEATURES), nn.ReLU(),
    )  # fmt: skip
    network = nn.Sequential(body, nn.Linear(FEATURES, 10))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    digits = mnist()
    x = torch.tensor(digits.x_train[:images, None]).float() / 255
    y = torch.tensor(digits.y_train[:images])
    for _ in range(3):
        for batch in torch.split(torch.randperm(len(y)), 64):
            loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return body


def world(rule: str, iterations: int) -> dict[str, Any]:
    """Return the settings of a simulation; docs/world.md explains them."""
    return {
        "world": {"peers": 10, "attackers": 4, "iterations": iterations, "evaluate_every": iterations},
        "partition": {"classes_per_peer": 4, "samples": 10, "held_out": 10},
        "rule": {"name": rule},
        "attack": {"name": "label-flip"},
    }


def main() -> None:
    """Train the backbone, and compare what rules make of its features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default=FOLDER, help="the four idx files of Fashion-MNIST")
    parser.add_argument("--quick", action="store_true", help="fewer images and iterations, to see that it works")
    options = parser.parse_args()
    if not Path(options.folder).is_dir():
        sys.exit(f"{options.folder}: no such folder: apt install dataset-fashion-mnist, or give the folder that has it")
    images, tests, iterations = (2_000, 500, 30) if options.quick else (6_000, 2_000, 200)

    files = load(options.folder)
    clothes = Dataset(
        files.x_train[:images], files.y_train[:images], files.x_test[:tests], files.y_test[:tests], classes=KINDS
    )
    backbone = TorchBackbone(trained_network(images), input_shape=(1, 28, 28))
    print(f"Peers with this backbone, and no others, are one group: {backbone.digest[:16]}")
    print(f"{'':14}  accuracy  worst peer")
    for rule in RULES:
        row = simulate(world(rule, iterations), data=clothes, backbone=backbone).last()
        print(f"{rule:14}  {row['accuracy_mean']:8.1%}  {row['accuracy_min']:10.1%}")


if __name__ == "__main__":
    main()
