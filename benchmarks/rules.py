"""Our rules against ByzFL 0.0.11 and ByzPy 0.1.4: equal results, and how long they take.

    make bench            (or: python benchmarks/rules.py [--quick] [--out docs/benchmarks-rules.md])

Every library gets the same numbers in one run: ByzFL as a torch tensor and as a NumPy array, ByzPy as the list of torch
tensors that it asks for, ours as a NumPy array, and as a torch tensor too where models are few and small. Contenders
take turns; medians count. Ours include refusing models that are not fit for use; clipping is done about the own head by
all, for which the others' vectors are moved there and back.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bristle import Bristle, Evaluation, Pool, rules
from peers import Comparison, comparisons, run_ours
from small_calls import small_calls
from timing import take_turns

SIZES = ((10, 8_000, 10, 4), (64, 65_536, 16, 8), (256, 65_536, 16, 32))
TAU = 40.0
# Numbers up to which our rules are given torch tensors as well: what a peer has.
SMALL = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few turns of the two smaller sizes")
    parser.add_argument("--out", type=Path, help="write the tables to this Markdown file as well")
    options = parser.parse_args()
    seconds = 0.1 if options.quick else 0.5
    lines = list(report(SIZES[:2] if options.quick else SIZES, seconds))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
        print(f"\nwritten to {options.out}")


def report(sizes: tuple[tuple[int, int, int, int], ...], seconds: float) -> Iterator[str]:
    def say(line: str) -> str:
        print(line, flush=True)
        return line

    yield say("# Rules: latency and agreement\n")
    yield say(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"torch {torch.__version__} ({torch.get_num_threads()} threads), float32. Milliseconds, medians of calls in "
        "turn. Made by `make bench`.\n"
    )
    for count, size, classes, f in sizes:
        yield say(f"## {count} models of {size:,} parameters, f = {f}\n")
        yield say(
            "| rule | Bristle | ByzFL, torch | ByzFL, NumPy | ByzPy | ByzFL torch / Bristle | ByzFL NumPy / Bristle "
            "| best of all / Bristle | same result | Bristle, torch | best of all / Bristle, torch |"
        )
        yield say("|---|---|---|---|---|---|---|---|---|---|---|")
        rng = np.random.default_rng(count)
        vectors = rng.standard_normal((count, size)).astype(np.float32)
        for comparison in comparisons(count, f, TAU * (size / 8_000) ** 0.5, size=size):
            yield say(row(comparison, vectors, classes, seconds))
        yield say("")
    yield say(
        "Ours also refuses models that are unfit for use, which the others let in: large calls are probed by a random "
        "projection of each model, and looked at number by number only if that is not small.\n"
    )
    yield from small_calls(say, seconds)
    yield from pools(say, seconds)
    yield from bristle_cost(say, seconds)


def row(comparison: Comparison, vectors: np.ndarray[Any, Any], classes: int, seconds: float) -> str:
    shift = comparison.shift(vectors)
    array = vectors - shift
    tensor = torch.from_numpy(array)
    tensors = list(tensor)
    contenders: dict[str, Callable[[], object]] = {"ours": lambda: run_ours(comparison.ours, vectors, classes)}
    if vectors.size <= SMALL:
        heads = torch.from_numpy(vectors).reshape(len(vectors), classes, -1)
        contenders["ours, torch"] = lambda: comparison.ours(heads[0], heads[1:])
    byzfl, byzpy = comparison.byzfl, comparison.byzpy
    if byzfl is not None:
        contenders["byzfl, NumPy"] = lambda: byzfl(array)
        contenders["byzfl, torch"] = lambda: byzfl(tensor)
    if byzpy is not None:
        contenders["byzpy"] = lambda: byzpy(tensors)
    ours = run_ours(comparison.ours, vectors, classes).reshape(-1, vectors.shape[1])
    agreement = []
    for name, library in (("ByzFL", byzfl), ("ByzPy", byzpy)):
        if library is not None:
            theirs = _as_matrix(library(array if name == "ByzFL" else tensors)) + shift
            error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
            agreement.append(f"{name} {error:.0e}" if error > 1e-5 else f"{name} yes")
    times = take_turns(contenders, seconds=seconds)
    ours_time, torch_time = times.pop("ours"), times.pop("ours, torch", float("nan"))
    shown = [times.get(name, float("nan")) for name in ("byzfl, torch", "byzfl, NumPy", "byzpy")]
    ratios = [shown[0] / ours_time, shown[1] / ours_time, min(times.values()) / ours_time]
    note = f" ({comparison.differs})" if comparison.differs else ""
    cells = [f"{ours_time:.3g}", *(f"{t:.3g}" for t in shown), *(f"{ratio:.1f}" for ratio in ratios)]
    cells = ["-" if cell == "nan" else cell for cell in cells]
    with_torch = f"{torch_time:.3g} | {min(times.values()) / torch_time:.1f}" if torch_time > 0 else "- | -"
    return f"| {comparison.name} | {' | '.join(cells)} | {', '.join(agreement)}{note} | {with_torch} |"


def pools(say: Callable[[str], str], seconds: float) -> Iterator[str]:
    """10 receivers that hear the same 15 senders, at once and one after another."""
    yield say("## 10 receivers of one pool of 15 heads (10 x 800) at once, against a loop over receivers\n")
    yield say("| rule | at once | loop | loop / at once |")
    yield say("|---|---|---|---|")
    rng = np.random.default_rng(0)
    heads = rng.standard_normal((15, 10, 800)).astype(np.float32)
    own = heads[:10]
    index = np.array([[j for j in range(15) if j != i] for i in range(10)])
    features = rng.standard_normal((10, 40, 800)).astype(np.float32)
    labels = np.tile(np.repeat(np.arange(4), 10), (10, 1))
    for name in rules.names(shares="heads"):
        rule = rules.create(name, **({"f": 2} if name == "bulyan" else {}))

        def at_once(rule: rules.Rule = rule) -> object:
            return rule(own, Pool(heads, index), evaluation=Evaluation(features, labels), rng=rng)

        def loop(rule: rules.Rule = rule) -> object:
            return [
                rule(own[i], heads[index[i]], evaluation=Evaluation(features[i], labels[i]), rng=rng) for i in range(10)
            ]

        times = take_turns({"at once": at_once, "loop": loop}, seconds=seconds)
        ratio = times["loop"] / times["at once"]
        yield say(f"| {name} | {times['at once']:.3g} | {times['loop']:.3g} | {ratio:.1f} |")
    yield say("")


def bristle_cost(say: Callable[[str], str], seconds: float) -> Iterator[str]:
    """What Bristle costs against the number of received models."""
    yield say("## Bristle against the number of received heads (10 x 800, 40 held-out samples, beta = 30)\n")
    yield say("| received | milliseconds | against 31 |")
    yield say("|---|---|---|")
    rng = np.random.default_rng(0)
    features = rng.standard_normal((40, 800)).astype(np.float32)
    evaluation = Evaluation(features, np.repeat(np.arange(4), 10))
    own = rng.standard_normal((10, 800)).astype(np.float32)
    heads = rng.standard_normal((1000, 10, 800)).astype(np.float32)
    counts = (1, 3, 10, 30, 31, 100, 300, 1000)
    rule = Bristle()
    contenders = {
        str(count): lambda count=count: rule(own, heads[:count], evaluation=evaluation, rng=rng) for count in counts
    }
    times = take_turns(contenders, seconds=seconds)
    for count in counts:
        yield say(f"| {count} | {times[str(count)]:.3g} | {times[str(count)] / times['31']:.2f} |")
    yield say(
        f"\n31 is the first number beyond beta, where the tests begin to cost the same. Distances are "
        f"taken of {rule.max_candidates} heads at most, drawn uniformly; the others are not read."
    )


def _as_matrix(answer: Any) -> Any:
    if isinstance(answer, list):
        return np.stack([np.asarray(vector) for vector in answer])
    return np.atleast_2d(np.asarray(answer))


if __name__ == "__main__":
    main()
