"""Ten peers that hear each other: all receivers at once, against a plain loop over receivers that calls ByzFL.

    python benchmarks/receivers.py [--quick] [--out docs/benchmarks-receivers.md]

10 receivers of one pool of 15 heads (10 x 800): each aggregates its own head and the 14 others, by the same numbers in
one run. ByzFL's loop is given every receiver's vectors stacked already, as torch tensors and as NumPy arrays; the
quicker of the two counts. Contenders take turns; medians count. Below the table, rounds a second of the experiment that
`bristle simulate` runs by default: integrating, training and the attack, without evaluation.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bristle import Bristle, Pool, attacks
from bristle.commands.demo import digits
from bristle.rules import FedAvg, Rule, Step, chain
from bristle.simulation import Scenario, World
from peers import Comparison, comparisons
from timing import take_turns

RECEIVERS, HEADS, SHAPE, F, TAU = 10, 15, (10, 800), 4, 40.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few turns only")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file as well")
    options = parser.parse_args()
    lines = []
    for line in report(0.1 if options.quick else 1.0):
        print(line, flush=True)
        lines.append(line)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
        print(f"\nwritten to {options.out}")


def report(seconds: float) -> Iterator[str]:
    yield "# All receivers at once\n"
    yield (
        f"{RECEIVERS} receivers of one pool of {HEADS} heads ({SHAPE[0]} x {SHAPE[1]}), f = {F}. {os.cpu_count()} "
        f"cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, torch "
        f"{torch.__version__} ({torch.get_num_threads()} threads), ByzFL 0.0.11, float32. Milliseconds, medians of "
        "calls in turn. Made by `make bench`.\n"
    )
    yield "| rule | Bristle, at once | ByzFL, loop, torch | ByzFL, loop, NumPy | quicker loop / Bristle | same result |"
    yield "|---|---|---|---|---|---|"
    heads = np.random.default_rng(0).standard_normal((HEADS, *SHAPE)).astype(np.float32)
    index = np.array([[j for j in range(HEADS) if j != i] for i in range(RECEIVERS)])
    for comparison in comparisons(HEADS, F, TAU):
        # Ours does as published; where ByzFL does not, there is a line with parameters that make both equal.
        if comparison.byzfl is not None and not comparison.differs.startswith("sums"):
            yield row(then_mean(comparison), heads, index, seconds)
    yield (
        "\nSteps are followed by the mean, as an answer is one head for each receiver; ours then writes no mixture out."
    )
    yield f"\n{default_experiment(seconds)}"


def default_experiment(seconds: float) -> str:
    """Say how many rounds a second a world of 10 peers and 5 label flippers takes, with Bristle."""
    attack = attacks.create("label-flip")
    world = World(Scenario(peers=10, attackers=5, rule=Bristle(), attack=attack, iterations=1_000_000), digits())
    for _ in range(30):
        world.advance(weigh=False)
    times: list[float] = []
    while len(times) < 50 or sum(times) < 5 * seconds:
        began = time.perf_counter()
        world.advance(weigh=False)
        times.append(time.perf_counter() - began)
    quick, usual, slow = np.quantile(times, [0.1, 0.5, 0.9])
    return (
        f"The default experiment, 10 peers with 4 of 10 classes and 5 label flippers, without evaluation: "
        f"{1 / usual:.0f} rounds a second in the median of {len(times)} ({1e3 * usual:.2f} ms; a tenth takes less than "
        f"{1e3 * quick:.2f}, a tenth more than {1e3 * slow:.2f})."
    )


def then_mean(comparison: Comparison) -> Comparison:
    """Let the mean follow a step; leave rules as they are."""
    step, byzfl = comparison.ours, comparison.byzfl
    if not isinstance(step, Step) or byzfl is None:
        return comparison
    name = f"{comparison.name}, then the mean"
    return replace(comparison, name=name, ours=chain(step, FedAvg()), byzfl=lambda vectors: byzfl(vectors).mean(axis=0))


def row(comparison: Comparison, heads: np.ndarray[Any, Any], index: np.ndarray[Any, Any], seconds: float) -> str:
    rule, byzfl = comparison.ours, comparison.byzfl
    assert byzfl is not None
    assert isinstance(rule, Rule)
    own = heads[: len(index)]
    stacked = [np.concatenate([own[i : i + 1], heads[index[i]]]).reshape(HEADS, -1) for i in range(len(index))]
    shifts = [comparison.shift(vectors) for vectors in stacked]
    arrays = [vectors - shift for vectors, shift in zip(stacked, shifts, strict=True)]
    tensors = [torch.from_numpy(vectors) for vectors in arrays]

    def at_once() -> Any:
        return rule(own, Pool(heads, index)).head

    contenders: dict[str, Callable[[], object]] = {
        "ours": at_once,
        "torch": lambda: [byzfl(vectors) for vectors in tensors],
        "NumPy": lambda: [byzfl(vectors) for vectors in arrays],
    }
    theirs = np.stack([np.asarray(byzfl(vectors)) + shift for vectors, shift in zip(arrays, shifts, strict=True)])
    error = float(np.abs(np.asarray(at_once()).reshape(theirs.shape) - theirs).max() / np.abs(theirs).max())
    times = take_turns(contenders, seconds=seconds)
    ratio = min(times["torch"], times["NumPy"]) / times["ours"]
    same = "yes" if error <= 1e-5 else f"{error:.0e}"
    cells = [f"{times[name]:.3g}" for name in ("ours", "torch", "NumPy")]
    return f"| {comparison.name} | {' | '.join(cells)} | {ratio:.1f} | {same} |"


if __name__ == "__main__":
    main()
