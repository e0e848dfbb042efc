r"""What one statement tells about which samples it was made of: membership inference on means, counts and scatter.

    python benchmarks/statement_membership.py [--quick] [--json rows.jsonl] [--out docs/privacy.md]

A pool of samples is dealt out anew to each of many peers, half of it each; every peer states what it got, in 16 bits.
An attacker sees one statement and must say of every sample of the pool whether it is in. Three attackers:

- *distance*: members are nearer to the mean of their class. It knows the statement alone;
- *likelihood ratio*: it knows other samples of each class, and has statements with and without each sample of the pool;
  members pull the mean towards them (Homer et al. 2008; Dwork et al., "Robust Traceability from Trace Amounts", FOCS
  2015) and stretch the scatter. Both are judged as in benchmarks/membership.py (Carlini et al., S&P 2022);
- *equations*: it knows all samples of the pool, of which n times the mean is a sum: which ones is a system of linear
  equations.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle.commands.demo import digits
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Evidence, Statement
from bristle.simulation import FeatureData
from membership import auc_and_tpr, likelihood_ratio
from sections import replace_section

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Row = dict[str, Any]
CLASSES_HELD = 4


@dataclass(frozen=True, kw_only=True)
class Game:
    """How often and how much.

    Parameters
    ----------
    samples : sequence of int
        Samples of a class that a statement is made of.
    peers, pools : int
        Statements that are made of one pool, and pools.
    others : int
        Samples of a class outside the pool that the attacker knows.
    """

    samples: Sequence[int] = (2, 12, 25, 50, 200)
    peers: int = 64
    pools: int = 2
    others: int = 500


QUICK = Game(samples=(2,), peers=16, pools=1, others=100)


@dataclass(frozen=True, eq=False)
class Stated:
    """Statements of peers that were dealt halves of a pool.

    Parameters
    ----------
    features, labels : array [P, D], [P]
        The pool.
    member : boolean array [N, P]
        Who holds what.
    statements : list of Statement
        As they travel, in 16 bits.
    centres, scatter : array [C, D], [D, D]
        What the attacker knows of the classes from samples outside the pool.
    """

    features: Floats
    labels: Integers
    member: Booleans
    statements: list[Statement]
    centres: Floats
    scatter: Floats


def make(data: FeatureData, each: int, game: Game, *, pool: int, rule: Evidence | None = None) -> Stated:
    """Deal out a pool of twice `each` samples of a class, and let every peer state its half."""
    rng = np.random.default_rng([each, pool])
    everything, every_label = np.asarray(data.train, dtype=np.float64), np.asarray(data.train_labels)
    classes = rng.permutation(len(data.classes))[:CLASSES_HELD]
    drawn = [rng.permutation(np.flatnonzero(every_label == number)) for number in classes]
    chosen = np.concatenate([rows[: 2 * each] for rows in drawn])
    features, labels = everything[chosen], every_label[chosen]
    centres, rest = np.zeros((len(data.classes), features.shape[1])), []
    for number, rows in zip(classes, drawn, strict=True):
        known = everything[rows[2 * each : 2 * each + game.others]]
        centres[number] = known.mean(axis=0)
        rest.append(known - centres[number])
    about = np.concatenate(rest)
    scatter = about.T @ about / len(about)
    scatter += 0.05 * np.trace(scatter) / len(scatter) * np.eye(len(scatter))
    rule = rule or Evidence()
    member = np.zeros((game.peers, len(chosen)), dtype=np.bool_)
    statements = []
    for peer in range(game.peers):
        held = np.concatenate([2 * each * place + rng.permutation(2 * each)[:each] for place in range(CLASSES_HELD)])
        member[peer, held] = True
        statements.append(_travelled(rule.share(Evaluation(features[held], labels[held]), len(data.classes), rng=rng)))
    return Stated(features, labels, member, statements, centres, scatter)


def _travelled(statement: Statement) -> Statement:
    """Return what arrives of a statement: 16 bits of every number."""
    assert statement.factors is not None
    assert statement.diagonal is not None
    rows, factors, diagonal = (
        np.asarray(part, dtype=np.float16).astype(np.float64)
        for part in (statement.rows, statement.factors, statement.diagonal)
    )
    return Statement(rows, statement.counts, factors, diagonal)


def distances(stated: Stated) -> Floats:
    """Return how near each sample is to the stated mean of its class [N, P]."""
    return np.stack(
        [-np.linalg.norm(stated.features - np.asarray(one.rows)[stated.labels], axis=1) for one in stated.statements]
    )


def pulls(stated: Stated) -> tuple[Floats, Floats]:
    """Return how far each sample pulls the mean of its class towards itself, and the scatter: two of [N, P].

    (x - mu)' S^-1 (m - mu) and r' S^-1 T S^-1 r for r = x - m, with mu and S from other samples and T the stated
    scatter.
    """
    about = stated.features - stated.centres[stated.labels]
    whitened = np.linalg.solve(stated.scatter, about.T).T
    means, scatters = [], []
    for one in stated.statements:
        rows = np.asarray(one.rows)
        moved = (rows - stated.centres)[stated.labels]
        moved[np.asarray(one.counts)[stated.labels] == 0] = 0  # Nothing is stated of these classes.
        means.append((whitened * moved).sum(axis=1))
        rest = whitened - np.linalg.solve(stated.scatter, (rows - stated.centres).T).T[stated.labels]
        sketched = ((rest @ np.asarray(one.factors).T) ** 2).sum(axis=1)
        scatters.append(sketched + (rest**2) @ np.asarray(one.diagonal))
    return np.stack(means), np.stack(scatters)


def solutions(stated: Stated) -> Floats:
    """Return the share b_i of each sample of the pool in n m = sum_i b_i x_i by regularised least squares [N, P]."""
    found = np.zeros(stated.member.shape)
    for number in np.unique(stated.labels):
        those = np.flatnonzero(stated.labels == number)
        x = stated.features[those]
        inner = x @ x.T
        inner += 1e-7 * np.trace(inner) / len(inner) * np.eye(len(inner))
        sums = np.stack([np.asarray(one.rows)[number] * (len(those) / 2) for one in stated.statements])
        halves = 0.5 * x.sum(axis=0)  # Half of the pool is in: solve for what differs from that.
        found[:, those] = 0.5 + np.linalg.solve(inner, x @ (sums - halves).T).T
    return found


def attack(crowds: Sequence[Stated]) -> Row:
    """Return how well all attacks do."""
    members = [stated.member for stated in crowds]
    near, means, both, solved = [], [], [], []
    for stated in crowds:
        near.append(distances(stated))
        of_mean, of_scatter = (likelihood_ratio(seen, stated.member) for seen in pulls(stated))
        means.append(of_mean)
        both.append(of_mean + of_scatter)
        solved.append(solutions(stated))
    row: Row = {}
    for name, scores in (("distance", near), ("mean", means), ("ratio", both), ("equations", solved)):
        row[f"{name}_auc"], row[f"{name}_tpr"] = auc_and_tpr(scores, members)
    return row


def measure(data: FeatureData, game: Game) -> list[Row]:
    """Return a row for every number of samples."""
    rows = []
    for each in game.samples:
        rows.append({"samples": each} | attack([make(data, each, game, pool=pool) for pool in range(game.pools)]))
        print(rows[-1], flush=True)
    return rows


def table(rows: list[Row]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| samples of a class | distance: AUC | caught at 1 % false alarms | likelihood ratio, means alone: AUC | "
        "means and scatter: AUC | caught at 1 % | equations: AUC | caught at 1 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['samples']} | {row['distance_auc']:.3f} | {row['distance_tpr']:.1%} | {row['mean_auc']:.3f} | "
            f"{row['ratio_auc']:.3f} | {row['ratio_tpr']:.1%} | {row['equations_auc']:.3f} | "
            f"{row['equations_tpr']:.1%} |"
        )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="too few to tell anything, to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--out", type=Path, help="put the table into this document")
    parser.add_argument("--from", type=Path, dest="read", help="take what an earlier run wrote with --json")
    given = parser.parse_args(words)
    if given.read is None:
        rows = measure(digits(), QUICK if given.quick else Game())
        if given.json is not None:
            given.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        rows = [json.loads(line) for line in given.read.read_text(encoding="utf-8").splitlines()]
    text = table(rows)
    print(text)
    if given.out is not None:
        replace_section(given.out, "statement_membership", text)


if __name__ == "__main__":
    main()
