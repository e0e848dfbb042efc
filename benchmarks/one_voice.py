"""What it buys to count a chain of invitations as one voice, and what it costs: the tables of docs/admission.md.

    python benchmarks/one_voice.py --json out/one-voice.jsonl --out docs/admission.md

10 honest peers with 4 of 10 classes each, 15 training and 10 held-out samples of a class, one exchange of `evidence`.
An attacker that was invited once brings in k identities below it, which lie together. Trees say by which member whom a
founder invited each peer came in. Mean and worst accuracy of the honest peers on the whole test set, mean over seeds.
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

from bristle import attacks, rules
from bristle.simulation import FeatureData, Scenario, World
from evidence import features
from sections import replace_section

Row = dict[str, Any]
PEERS = 10
NUMBERS = (1, 3, 10, 40, 100)
LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "permuted labels": ("permuted-labels", {}),
    "foreign classes only": ("foreign-only", {}),
    "laid on own classes": ("laid-on", {}),
}
"""The attacks of docs/evidence.md that do most harm once liars are more than owners, on seed 0."""

TREES: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "each honest peer by a founder; the attacker, too": (range(PEERS), [10]),
    "honest peers by 5 members, two each": ([peer % 5 for peer in range(PEERS)], [10]),
    "honest peers by 3 members": ([peer % 3 for peer in range(PEERS)], [10]),
    "all honest peers by one member": ([0] * PEERS, [10]),
    "the attacker by one of two honest peers of a branch": ([peer % 5 for peer in range(PEERS)], [0]),
    "attackers in 3 branches of their own": (range(PEERS), [10, 11, 12]),
}
"""The branches of the honest peers, and those that the attackers are spread over in turn."""


def accuracy(data: FeatureData, seed: int, lie: str, number: int, tree: str | None) -> tuple[float, float]:
    """Return the mean and the worst accuracy; without a tree everybody counts by itself."""
    name, options = LIES[lie]
    honest, liars = TREES[tree] if tree else ((), ())
    branches = (*honest, *(liars[place % len(liars)] for place in range(number))) if tree else ()
    world = World(
        Scenario(
            peers=PEERS,
            attackers=number,
            rule=rules.create("evidence", **({"one_voice": 1} if tree else {})),
            attack=attacks.create(name, **options) if number else attacks.create("none"),
            samples_per_class=15,
            iterations=1,
            seed=seed,
            branches=branches,
        ),
        data,
    )
    world.advance()
    found = world.accuracy()
    return float(found.mean()), float(found.min())


def cells() -> list[tuple[str, int, str | None]]:
    """Return what is to be run: lie, identities, tree."""
    usual = next(iter(TREES))
    first = next(iter(LIES))
    found: list[tuple[str, int, str | None]] = [(first, 0, tree) for tree in (None, *TREES)]
    for lie in LIES:
        found += [(lie, number, tree) for number in NUMBERS for tree in (None, usual)]
        found += [(lie, 40, tree) for tree in list(TREES)[1:]]
    return found


def tables(rows: list[Row]) -> str:
    """Return the figures as Markdown."""

    def cell(lie: str, number: int, tree: str | None) -> str:
        some = [row for row in rows if (row["lie"], row["identities"], row["tree"]) == (lie, number, tree)]
        if not some:
            return ""
        return f"{mean(row['mean'] for row in some):.1%} / {mean(row['worst'] for row in some):.1%}".replace("%", "")

    usual, first = next(iter(TREES)), next(iter(LIES))
    lines = [f"Without attackers {cell(first, 0, None)} (per cent, mean of all peers / worst peer).", ""]
    lines += ["| identities below one invited attacker | " + " | ".join(str(number) for number in NUMBERS) + " |"]
    lines += ["|---|" + "---|" * len(NUMBERS)]
    for lie in LIES:
        for tree, how in ((None, "each counts"), (usual, "one voice")):
            lines.append(f"| {lie}: {how} | " + " | ".join(cell(lie, number, tree) for number in NUMBERS) + " |")
    lines += ["", "The same with one voice, by tree, 40 identities:", ""]
    lines += ["| who came in by whom | no attackers | " + " | ".join(LIES) + " |", "|---|---|" + "---|" * len(LIES)]
    for tree in TREES:
        lines.append(f"| {tree} | {cell(first, 0, tree)} | " + " | ".join(cell(lie, 40, tree) for lie in LIES) + " |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist", help="as bristle.data.load takes it")
    parser.add_argument("--seeds", default="300,301", help="comma-separated")
    parser.add_argument("--json", type=Path, help="append the rows to this file, and go on from what it has")
    parser.add_argument("--out", type=Path, help="put the tables into this document")
    given = parser.parse_args(words)
    rows: list[Row] = []
    if given.json is not None and given.json.exists():
        rows = [json.loads(line) for line in given.json.read_text(encoding="utf-8").splitlines()]
    done = {(row["seed"], row["lie"], row["identities"], row["tree"]) for row in rows}
    data = features(given.data)
    for seed in map(int, given.seeds.split(",")):
        for lie, number, tree in cells():
            if (seed, lie, number, tree) in done:
                continue
            found = accuracy(data, seed, lie, number, tree)
            rows.append(
                {"seed": seed, "lie": lie, "identities": number, "tree": tree, "mean": found[0], "worst": found[1]}
            )
            print(rows[-1], flush=True)
            if given.json is not None:
                given.json.parent.mkdir(parents=True, exist_ok=True)
                with given.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    text = tables(rows)
    print(text)
    if given.out is not None:
        replace_section(given.out, "one_voice", text)


if __name__ == "__main__":
    main()
