"""What statements with noise, fewer classes or coarse counts cost: the tables of docs/privacy.md.

    python benchmarks/statement_privacy.py --data mnist --data /usr/share/datasets/fashion-mnist --out docs/privacy.md

10 peers with 4 of 10 classes, one exchange of `evidence`; mean accuracy over peers, seeds and whole test sets.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from bristle import rules
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Evidence, Privacy, Statement, state
from bristle.simulation import FeatureData, Scenario, World
from evidence import features
from evidence_worlds import Unequal
from sections import replace_section
from statement_membership import Game, attack, make

Row = dict[str, Any]
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SAMPLES = (25, 50, 160, 600)
ATTACKED = (50, 200)
HELD_OUT = 10
CLIP = 32.0
"""About the norm of a typical feature of the bundled backbone."""


def worlds(data: FeatureData, seed: int, *, each: int | None = None) -> list[Evaluation]:
    """Return the samples of ten peers: so many of each class, or 4 to 160."""
    options: Row = {"partition": Unequal()} if each is None else {"samples_per_class": each - HELD_OUT}
    world = World(Scenario(peers=10, rule=rules.create("evidence"), iterations=1, seed=seed, **options), data)
    assert world.exchange is not None
    return world.exchange.samples


def accuracy(data: FeatureData, held: Sequence[Evaluation], stated: Sequence[Statement], rule: Evidence) -> float:
    """Return the mean accuracy of all peers, each with its own samples and the statements of the others."""
    x, y = np.asarray(data.test), np.asarray(data.test_labels)
    found = []
    for peer, samples in enumerate(held):
        own = state(samples, len(data.classes), rank=rule.rank)
        others = [one for place, one in enumerate(stated) if place != peer]
        answer = rule.weigh(own, others, samples).answer
        found.append(float(((x @ answer.head.T + answer.bias).argmax(axis=1) == y).mean()))
    return mean(found)


def some_classes(samples: Evaluation, count: int) -> Evaluation:
    """Return the samples without the labels of all but some of their classes."""
    kept = np.unique(np.asarray(samples.labels))[:count]
    return Evaluation(samples.features, np.where(np.isin(np.asarray(samples.labels), kept), samples.labels, -1))


def private(name: str, data: FeatureData, seed: int) -> list[Row]:
    """Return the accuracy at every epsilon and number of samples, alone and without noise."""
    rows = []
    for each in SAMPLES:
        held = worlds(data, seed, each=each)
        classes = len(data.classes)
        rule = Evidence()
        row = {"table": "private", "data": name, "seed": seed, "samples": each}
        plain = [rule.share(one, classes) for one in held]
        rows.append(row | {"epsilon": "none", "accuracy": accuracy(data, held, plain, rule)})
        rows.append(row | {"epsilon": "alone", "accuracy": accuracy(data, held, [], rule)})
        for epsilon in EPSILONS:
            rule = Evidence(privacy=Privacy(epsilon=epsilon, clip=CLIP))
            noisy = [
                rule.share(one, classes, rng=np.random.default_rng([seed, each, place]))
                for place, one in enumerate(held)
            ]
            rows.append(row | {"epsilon": epsilon, "accuracy": accuracy(data, held, noisy, rule)})
        print(*rows[-len(EPSILONS) - 2 :], sep="\n", flush=True)
    return rows


def hidden(name: str, data: FeatureData, seed: int) -> list[Row]:
    """Return the accuracy where peers state fewer classes than they hold, or coarse counts."""
    rows, classes, rule = [], len(data.classes), Evidence()
    held = worlds(data, seed, each=25)
    row = {"table": "hidden", "data": name, "seed": seed}
    for count in (4, 3, 2, 1):
        stated = [rule.share(some_classes(one, count), classes) for one in held]
        rows.append(row | {"what": f"{count} of 4 classes", "accuracy": accuracy(data, held, stated, rule)})
    for what, coarse in (("exact counts", False), ("powers of two", True)):
        rule = Evidence(coarse_counts=coarse)
        for kind, those in ((", 25 of each class", held), (", 4 to 160 of each class", worlds(data, seed))):
            stated = [rule.share(one, classes) for one in those]
            rows.append(row | {"what": what + kind, "accuracy": accuracy(data, those, stated, rule)})
    print(*rows, sep="\n", flush=True)
    return rows


def attacked(name: str, data: FeatureData) -> list[Row]:
    """Return what both membership attacks reach against noise."""
    rows = []
    for each in ATTACKED:
        for epsilon in (None, *EPSILONS):
            rule = Evidence(privacy=None if epsilon is None else Privacy(epsilon=epsilon, clip=CLIP))
            found = attack([make(data, each, Game(), pool=pool, rule=rule) for pool in range(2)])
            rows.append({"table": "attacked", "data": name, "samples": each, "epsilon": epsilon} | found)
            print(rows[-1], flush=True)
    return rows


def tables(rows: list[Row]) -> str:
    """Return the figures as Markdown."""

    def average(**wanted: Any) -> str:
        found = [row["accuracy"] for row in rows if all(row.get(key) == value for key, value in wanted.items())]
        return f"{mean(found):.3f}"[1:] if found else ""

    names = list(dict.fromkeys(row["data"] for row in rows))
    settings = ("alone", *EPSILONS, "none")
    lines = [
        "| data, samples of a class | alone | ε = 1 | ε = 2 | ε = 4 | ε = 8 | without noise |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for each in SAMPLES:
            cells = [average(table="private", data=name, samples=each, epsilon=setting) for setting in settings]
            lines.append(f"| {name}, {each} | {' | '.join(cells)} |")
    lines += [
        "",
        "The attackers of the first table against noise (all know what they knew there):",
        "",
        "| samples of a class | ε | distance: AUC | likelihood ratio: AUC | caught at 1 % | equations: AUC |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["table"] == "attacked":
            epsilon = "no noise" if row["epsilon"] is None else f"{row['epsilon']:g}"
            lines.append(
                f"| {row['samples']} | {epsilon} | {row['distance_auc']:.3f} | {row['ratio_auc']:.3f} | "
                f"{row['ratio_tpr']:.1%} | {row['equations_auc']:.3f} |"
            )
    lines += ["", "Fewer classes stated than held, and coarse counts:", ""]
    lines += [f"| what everybody states | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for what in dict.fromkeys(row["what"] for row in rows if row["table"] == "hidden"):
        cells = [average(table="hidden", data=name, what=what) for name in names]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", action="append", default=[], help="as bristle.data.load takes it (may be repeated)")
    parser.add_argument("--seeds", default="300,301", help="comma-separated")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--out", type=Path, help="put the tables into this document")
    parser.add_argument("--from", type=Path, dest="read", help="take what an earlier run wrote with --json")
    given = parser.parse_args(words)
    if given.read is None:
        rows = []
        for place, data in enumerate(given.data or ["mnist"]):
            made, name = features(data), "MNIST" if data == "mnist" else Path(data).stem
            rows += attacked(name, made) if place == 0 else []
            for seed in given.seeds.split(","):
                rows += hidden(name, made, int(seed)) + private(name, made, int(seed))
        if given.json is not None:
            given.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        rows = [json.loads(line) for line in given.read.read_text(encoding="utf-8").splitlines()]
    text = tables(rows)
    print(text)
    if given.out is not None:
        replace_section(given.out, "statement_privacy", text)


if __name__ == "__main__":
    main()
