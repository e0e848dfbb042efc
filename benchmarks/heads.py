"""Heads on a grid, in simulations of the demo's peers: their bytes, their error, and what they do to accuracy.

    python benchmarks/heads.py [--quick]

A head is sent as the difference from an earlier one that the neighbour has (docs/wire-format.md). Bytes are those of
what is sent, without manifest and headers.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from bristle import rules
from bristle._core import to_numpy
from bristle.commands.demo import Demo, digits
from bristle.simulation import Precision, World
from bristle.wire.grid import GridHead, encode_grid

SHOWN = (2, 5, 10, 20, 50, 100)
MISSED = (1, 2, 4, 8, 16)
"""Over how many rounds a difference reaches, in the last round."""

SIZED = ("bristle", "fedavg")
COMPARED = (
    "bristle", "fedavg", "median", "trimmed-mean", "mean-around-median", "geometric-median", "krum", "multi-krum",
    "bulyan", "centered-clipping", "self-centered-clipping", "nearest-neighbour-averaging", "mda", "smea", "caf",
    "cge", "balance", "mozi", "fltrust",
)  # fmt: skip
ATTACKED = ("bristle", "median", "bulyan", "centered-clipping")
SEEDS, SEEDS_ATTACKED = 3, 8


def world(rule: str, *, attackers: int = 0, shared: Any = "grid", seed: int = 0) -> World:
    """Return the world of the demo's peers."""
    demo = Demo(attackers=attackers, rule=rule, seed=seed)
    return World(replace(demo.scenario(rule), precision=Precision(shared=shared)), digits())


def sizes(rule: str, rounds: int) -> list[str]:
    """Return lines of a table: bytes as a difference and in full, and the error of what is shared, by round."""
    peers, past = world(rule), dict[int, GridHead]()
    found: dict[int, tuple[float, float, float]] = {}
    for iteration in range(1, rounds + 1):
        peers.advance()
        assert peers.public is not None
        past[iteration] = peers.public
        if iteration in SHOWN:
            heads = np.asarray(to_numpy(peers.heads), np.float64)
            errors = np.linalg.norm(peers.public.values() - heads, axis=(1, 2)) / np.linalg.norm(heads, axis=(1, 2))
            found[iteration] = (
                mean_bytes(past, iteration, 1), mean_bytes(past, iteration, 0), 100 * float(errors.mean())
            )  # fmt: skip
    shown = list(found)
    reaches = ", ".join(f"{back}: {mean_bytes(past, rounds, back):,.0f}" for back in MISSED if back < rounds)
    return [
        f"| `{rule}` | round " + " | ".join(map(str, shown)) + " |",
        "|---" * (len(shown) + 2) + "|",
        "| | difference, bytes | " + " | ".join(f"{found[one][0]:,.0f}" for one in shown) + " |",
        "| | in full, bytes | " + " | ".join(f"{found[one][1]:,.0f}" for one in shown) + " |",
        "| | error, % | " + " | ".join(f"{found[one][2]:.1f}" for one in shown) + " |",
        "",
        f"Bytes in round {rounds} of a difference over so many rounds: {reaches}.",
        "",
    ]


def mean_bytes(past: dict[int, GridHead], iteration: int, back: int) -> float:
    """Return the bytes of the peers' heads as differences from those of some rounds before, or in full."""
    new, base = past[iteration], past[iteration - back] if back else None
    peers = len(new.exponents)
    return fmean(len(encode_grid(new[peer], None if base is None else base[peer])) for peer in range(peers))


def accuracies(names: tuple[str, ...], rounds: int, *, attackers: int, seeds: int) -> list[str]:
    """Return lines of a table: accuracy with exact heads, and with heads on a grid."""
    lines = [f"| rule, {attackers} attackers | exact, % | grid, % |", "|---|---|---|"]
    for name in names:
        found = [_mean_accuracy(name, rounds, attackers=attackers, seeds=seeds, shared=one) for one in ("same", "grid")]
        lines.append(f"| `{name}` | " + " | ".join(f"{100 * one:.1f}" for one in found) + " |")
    return [*lines, ""]


def _mean_accuracy(name: str, rounds: int, *, attackers: int, seeds: int, shared: str) -> float:
    reached = []
    for seed in range(seeds):
        peers = world(name, attackers=attackers, shared=shared, seed=seed)
        for _ in range(rounds):
            peers.advance()
        reached.append(float(np.mean(to_numpy(peers.accuracy()))))
    return fmean(reached)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds and one seed, to see that it works")
    quick = parser.parse_args().quick
    rounds = 5 if quick else 100
    for name in SIZED:
        print("\n".join(sizes(name, rounds)), flush=True)
    known = rules.names(shares="heads")
    assert set(COMPARED) | set(ATTACKED) <= set(known)
    print("\n".join(accuracies(COMPARED, rounds, attackers=0, seeds=1 if quick else SEEDS)), flush=True)
    print("\n".join(accuracies(ATTACKED, rounds, attackers=5, seeds=1 if quick else SEEDS_ATTACKED)), flush=True)


if __name__ == "__main__":
    main()
