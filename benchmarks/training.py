"""How long a training step takes: a batch of peers at once against a loop over peers, and against their number.

    python benchmarks/training.py [--quick] [--out docs/training-speed.md]

Contenders take turns and medians count, so that a ratio of two rows holds on a noisy machine as well.
`OMP_NUM_THREADS=1` keeps BLAS from waiting for cores that others use.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bristle._core import keyed_uniforms
from bristle.learning.optimiser import HeadState
from bristle.learning.training import train_step
from timing import take_turns

CLASSES, FEATURES, SAMPLES = 10, 800, 20
PEERS = (10, 100, 1000)
TURNS = 4  # different mini-batches, so that no step finds its samples in the cache by luck
LEAST_GAIN, MOST_GROWTH = 2.0, 1.5

Convert = Callable[[np.ndarray[Any, Any]], Any]
Step = Callable[..., HeadState]


def same(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array


TRAINING: dict[str, tuple[Convert, Step]] = {
    "NumPy": (same, train_step),
    "NumPy, state donated": (same, partial(train_step, donate=True)),
    "NumPy, donated, consolidated": (same, partial(train_step, donate=True, consolidate=True)),
    "torch on the CPU": (torch.from_numpy, train_step),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few turns only")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file as well")
    options = parser.parse_args()
    lines = list(report(0.1 if options.quick else 3.0))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
        print(f"\nwritten to {options.out}")


def report(seconds: float) -> Iterator[str]:
    def say(line: str) -> str:
        print(line, flush=True)
        return line

    yield say("# Training heads: time per step and peer\n")
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    yield say(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"torch {torch.__version__}, float32; OMP_NUM_THREADS: {threads}. Heads of {CLASSES} x {FEATURES}, {SAMPLES} "
        "samples a peer, mini-batches of 5. Microseconds per peer, medians of steps in turn. Made by "
        "`python benchmarks/training.py --out docs/training-speed.md`.\n"
    )
    yield say("| training | loop over 10 peers | 10 at once | 100 | 1,000 | loop / 10 at once | 1,000 / 10 at once |")
    yield say("|---|---|---|---|---|---|---|")
    contenders: dict[str, Callable[[], None]] = {}
    for name, (convert, step) in TRAINING.items():
        contenders[f"{name} loop"] = loop(convert, step, 10)
        contenders |= {f"{name} {peers}": at_once(convert, step, peers) for peers in PEERS}
    times = take_turns(contenders, seconds=seconds)
    for name in TRAINING:
        yield say(row(name, times))
    yield say(
        f"\nWanted: a loop costs at least {LEAST_GAIN:g} times as much per peer as 10 at once, and 1,000 at most "
        f"{MOST_GROWTH:g} times as much as 10. A donated state is overwritten in place; with consolidation only the "
        "rows of a peer's own 4 classes change. What a call costs beyond its arithmetic is shared by all peers in it."
    )


def row(name: str, times: dict[str, float]) -> str:
    loops = 1e3 * times[f"{name} loop"] / 10
    costs = [1e3 * times[f"{name} {peers}"] / peers for peers in PEERS]
    shown = " | ".join(f"{cost:.0f}" for cost in (loops, *costs))
    return f"| {name} | {shown} | {loops / costs[0]:.1f} | {costs[-1] / costs[0]:.2f} |"


def at_once(convert: Convert, step: Step, peers: int) -> Callable[[], None]:
    features, labels, draws = world(convert, peers)
    states = [HeadState.zeros((peers, CLASSES, FEATURES), like=features)]
    turn = iter(range(1 << 62))

    def call() -> None:
        states[0] = step(states[0], features, labels, draws[next(turn) % TURNS])

    return call


def loop(convert: Convert, step: Step, peers: int) -> Callable[[], None]:
    features, labels, draws = world(convert, peers)
    states = [HeadState.zeros((CLASSES, FEATURES), like=features) for _ in range(peers)]
    turn = iter(range(1 << 62))

    def call() -> None:
        drawn = draws[next(turn) % TURNS]
        for peer, state in enumerate(states):
            states[peer] = step(state, features[peer], labels[peer], drawn[peer])

    return call


def world(convert: Convert, peers: int) -> tuple[Any, Any, list[Any]]:
    """Four classes a peer, as in most of the paper's experiments."""
    rng = np.random.default_rng(0)
    features = rng.random((peers, SAMPLES, FEATURES), dtype=np.float32)
    labels = (np.arange(peers)[:, None] + np.arange(SAMPLES) % 4) % CLASSES
    draws = [convert(keyed_uniforms(0, np.arange(peers), turn, SAMPLES)) for turn in range(TURNS)]
    return convert(features), convert(labels), draws


if __name__ == "__main__":
    main()
