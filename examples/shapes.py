"""A complete application: four peers with a data set and a backbone of their own, on this machine.

Each peer has drawings of three of six shapes and a few minutes' worth of patience; together they learn all six. A fifth
one lies about what it sees. Run it with: python examples/shapes.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import Pace, Peer
from bristle.backbones import CallableBackbone

SHAPES = ("circle", "square", "triangle", "cross", "bar", "frame")
SIDE, CELLS, ORIENTATIONS = 24, 6, 8
FEATURES = CELLS * CELLS * ORIENTATIONS
ITERATIONS = 60

Images = npt.NDArray[np.float32]


def draw(shape: int, rng: np.random.Generator) -> Images:
    """Draw one shape, somewhere and of some size, with noise over it."""
    row, column = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    radius = rng.uniform(5, 8)
    y = row - SIDE / 2 + rng.uniform(-2, 2)
    x = column - SIDE / 2 + rng.uniform(-2, 2)
    square = np.maximum(abs(x), abs(y)) < radius
    ink = (
        np.hypot(x, y) < radius,
        square,
        (abs(x) < (y + radius) / 2) & (y < radius),
        np.minimum(abs(x), abs(y)) < np.where(square, radius / 3, -1),
        (abs(x) < radius / 3) & (abs(y) < radius),
        square & (np.maximum(abs(x), abs(y)) > radius - 2.5),
    )[shape]
    drawn: Images = (ink * 0.8 + rng.normal(0.1, 0.08, ink.shape)).astype(np.float32)
    return drawn


def samples(shapes: list[int], each: int, rng: np.random.Generator) -> tuple[Images, npt.NDArray[np.int64]]:
    """Draw `each` samples of every shape."""
    labels = np.repeat(shapes, each)
    return np.stack([draw(int(shape), rng) for shape in labels]), labels


def edges(images: Any) -> npt.NDArray[np.float32]:
    """Return the strength of edges in each cell of an image, by direction: a backbone that needs no training."""
    y, x = np.gradient(images, axis=(1, 2))
    strength, direction = np.hypot(x, y), np.arctan2(y, x) % (2 * np.pi)
    bins = np.minimum((direction / (2 * np.pi) * ORIENTATIONS).astype(int), ORIENTATIONS - 1)
    size = SIDE // CELLS
    cells = [
        (strength * (bins == number)).reshape(-1, CELLS, size, CELLS, size).sum(axis=(2, 4))
        for number in range(ORIENTATIONS)
    ]
    found = np.stack(cells, axis=-1).reshape(len(images), FEATURES)
    scaled: npt.NDArray[np.float32] = (found / np.linalg.norm(found, axis=1, keepdims=True) * 10).astype(np.float32)
    return scaled


BACKBONE = CallableBackbone(edges, name="edge-directions", version="1", features=FEATURES, input_shape=(SIDE, SIDE))


async def main() -> None:
    """Start the peers, let them learn, and say what became of it."""
    rng = np.random.default_rng(0)
    test_images, test_labels = samples(list(range(len(SHAPES))), 60, rng)
    test = (BACKBONE(test_images), test_labels)
    with tempfile.TemporaryDirectory() as folder:
        first = make_peer(Path(folder) / "peer-1", test)
        async with first:
            # Everybody else knows the first one's address and finds the others through it.
            known = [first.address]
            others = [make_peer(Path(folder) / f"peer-{number}", test, known) for number in (2, 3, 4, 5)]
            async with others[0], others[1], others[2], others[3]:
                peers = [first, *others]
                for number, peer in enumerate(peers):
                    mine = [(number + step) % len(SHAPES) for step in range(3)]
                    images, labels = samples(mine, 30, rng)
                    liar = number == 4
                    peer.add(images, (labels + 1) % len(SHAPES) if liar else labels)
                await asyncio.gather(*(peer.run(ITERATIONS) for peer in peers))
                report(peers)


def make_peer(
    folder: Path, test: tuple[npt.ArrayLike, npt.ArrayLike], known: list[tuple[str, int]] | None = None
) -> Peer:
    """Make one peer; on machines of their own, each would listen on an address that the others can reach."""
    return Peer(
        application="shapes",
        classes=SHAPES,
        folder=folder,
        backbone=BACKBONE,
        known=known or [],
        pace=Pace(interval=0.05),
        test=test,
    )


def report(peers: list[Peer]) -> None:
    """Print how well each peer does, and what the first one made of the others in the end."""
    names = {peer.key_id: f"peer {number}" for number, peer in enumerate(peers, start=1)}
    names[peers[-1].key_id] = "the liar"
    for peer in peers:
        status = peer.status()
        mine = ", ".join(one.name for one in status.samples if one.training)
        print(f"{names[peer.key_id]:9} has seen {mine:25} and knows {status.accuracy or 0:.0%} of all shapes")
    print("\nWhat peer 1 made of what the others stated:")
    decided = peers[0].status().decided
    for one in decided.heard if decided else ():
        print(f"  {names[one.sender]:9} {one.words}")


if __name__ == "__main__":
    asyncio.run(main())
