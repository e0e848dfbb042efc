r"""What a head tells about which samples it was trained on: membership inference, without and with noise on it.

    python benchmarks/membership.py [--quick] [--json rows.jsonl] [--out docs/privacy.md]

A pool of samples is dealt out anew to each of many peers, half of it each; every peer trains as a live one does. An
attacker sees one head and must say of every sample of the pool whether that head was trained on it. Two attacks:

- *loss*: the head does better on what it knows (Yeom et al., "Privacy Risk in Machine Learning", CSF 2018);
- *likelihood ratio*: the attacker trains heads itself, with and without each sample, and asks in which of the two
  crowds the outputs fit (Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022).

The second attacker knows the pool, the training and the noise, and has a hundred heads to learn from: nobody in a real
group knows as much. What noise costs is measured in simulated networks of ten peers.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt

from bristle import rules
from bristle._core import keyed_uniforms
from bristle.commands.demo import digits
from bristle.learning.optimiser import HeadState
from bristle.learning.training import mean_shift, train_step
from bristle.peer.step import Sharing
from bristle.simulation import FeatureData, Scenario, World
from sections import replace_section

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float64]
Row = dict[str, Any]
CLASSES_HELD = 4
LISTENED = 20
"""Heads in a row that a patient attacker takes the mean of."""

NOISES = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Game:
    """How often and how long.

    Parameters
    ----------
    samples : sequence of int
        Training samples of a class.
    peers, pools : int
        Heads that are trained on the same pool, and pools.
    iterations, worlds : int
        Of training, and how many networks are simulated.
    """

    samples: Sequence[int] = (1, 2, 5, 10, 50)
    peers: int = 96
    pools: int = 4
    iterations: int = 200
    worlds: int = 2


QUICK = Game(samples=(2,), peers=24, pools=1, iterations=30, worlds=1)


@dataclass(frozen=True, eq=False)
class Trained:
    """Heads of peers that were dealt halves of a pool.

    Parameters
    ----------
    features, labels : array [P, D], [P]
        The pool.
    member : boolean array [N, P]
        Who was trained on what.
    heads : array [L, N, C, D]
        The last heads of each peer, the newest last.
    """

    features: Floats
    labels: npt.NDArray[np.int64]
    member: npt.NDArray[np.bool_]
    heads: Floats


def train(data: FeatureData, each: int, game: Game, *, pool: int) -> Trained:
    """Deal out a pool of twice `each` samples of a class, and train every peer on its half as a live peer is."""
    rng = np.random.default_rng([each, pool])
    classes = rng.permutation(len(data.classes))[:CLASSES_HELD]
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(data.train_labels == number))[: 2 * each] for number in classes]
    )
    halves = [
        np.concatenate([2 * each * place + rng.permutation(2 * each)[:each] for place in range(CLASSES_HELD)])
        for _ in range(game.peers)
    ]
    held = np.stack(halves)
    member = np.zeros((game.peers, len(chosen)), dtype=np.bool_)
    np.put_along_axis(member, held, True, axis=1)
    features, labels = data.train[chosen], data.train_labels[chosen]
    begun = np.zeros((game.peers, len(data.classes), features.shape[1]), dtype=np.float32)
    state, kept = HeadState.zeros(begun.shape, like=begun), list[Floats]()
    for iteration in range(1, game.iterations + 1):
        draws = keyed_uniforms(pool, np.arange(game.peers), iteration, held.shape[1]).astype(np.float32)
        levelled = HeadState(mean_shift(state.head), state.first, state.second, state.steps)
        state = train_step(levelled, features, labels[held], draws, index=held, consolidate=True)
        if iteration > game.iterations - LISTENED:
            kept.append(np.array(state.head))
    return Trained(features, labels, member, np.stack(kept))


def shared(trained: Trained, sharing: Sharing, *, listened: int, seed: int) -> Floats:
    """Return what an attacker makes of the last heads that were shared [N, C, D]: their mean."""
    heads = trained.heads[-listened:]
    normals = np.random.default_rng(seed).standard_normal(heads.shape, dtype=np.float32) if sharing.noise else None
    found: Floats = sharing(heads, normals).mean(axis=0)
    return found


def confidence(heads: Floats, trained: Trained) -> Scores:
    """Return log p_y - log(1 - p_y), of every head for every sample's own class [N, P]."""
    outputs = np.einsum("ncd,pd->npc", heads, trained.features, optimize=True).astype(np.float64)
    own = np.take_along_axis(outputs, trained.labels[None, :, None], axis=2)[..., 0]
    np.put_along_axis(outputs, np.broadcast_to(trained.labels[None, :, None], (*own.shape, 1)), -np.inf, axis=2)
    most = outputs.max(axis=2)
    others = most + np.log(np.exp(outputs - most[..., None]).sum(axis=2))
    found: Scores = own - others
    return found


def likelihood_ratio(seen: Scores, member: npt.NDArray[np.bool_]) -> Scores:
    """Return log N(s; in) - log N(s; out) for every head and sample [N, P], each judged by all other heads."""
    found = np.empty_like(seen)
    for head in range(len(seen)):
        others = np.arange(len(seen)) != head
        logs = []
        for side in (member[others], ~member[others]):
            count = np.maximum(side.sum(axis=0), 1)
            centre = (seen[others] * side).sum(axis=0) / count
            # One spread for all samples: with a hundred heads that of each alone is too rough (Carlini et al., VI.C).
            spread = np.sqrt((((seen[others] - centre) * side) ** 2).sum() / count.sum()) + 1e-9
            logs.append(-0.5 * ((seen[head] - centre) / spread) ** 2 - math.log(spread))
        found[head] = logs[0] - logs[1]
    return found


def auc_and_tpr(scores: Sequence[Scores], members: Sequence[npt.NDArray[np.bool_]]) -> tuple[float, float]:
    """Return the area under the ROC curve, and the true-positive rate at a false-positive rate of 1 %."""
    score, member = np.concatenate([one.ravel() for one in scores]), np.concatenate([one.ravel() for one in members])
    order = np.argsort(score, kind="stable")
    ranks = np.empty(len(score))
    ranks[order] = np.arange(1, len(score) + 1)
    _, group, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.bincount(group, weights=ranks) / counts)[group]  # Ties share their ranks.
    positive, negative = int(member.sum()), int((~member).sum())
    area = (ranks[member].sum() - positive * (positive + 1) / 2) / (positive * negative)
    bar = np.quantile(score[~member], 0.99)
    return float(area), float((score[member] > bar).mean())


def attack(crowds: Sequence[Trained], sharing: Sharing, *, listened: int = 1) -> Row:
    """Return how well both attacks do against heads that are shared like that."""
    seen = [
        confidence(shared(trained, sharing, listened=listened, seed=seed), trained)
        for seed, trained in enumerate(crowds)
    ]
    members = [trained.member for trained in crowds]
    row: Row = {}
    for name, scores in (
        ("loss", seen),
        ("ratio", [likelihood_ratio(one, member) for one, member in zip(seen, members, strict=True)]),
    ):
        row[f"{name}_auc"], row[f"{name}_tpr"] = auc_and_tpr(scores, members)
    return row


def network(data: FeatureData, game: Game, each: int, sharing: Sharing) -> Row:
    """Return how accurate peers get in a network, and how well the loss attack does on what they share in the end."""
    accuracies, scores, members = [], [], []
    for seed in range(game.worlds):
        scenario = Scenario(
            peers=10,
            rule=rules.Bristle(),
            classes_per_peer=CLASSES_HELD,
            samples_per_class=each,
            iterations=game.iterations,
            seed=seed,
            sharing=sharing,
        )
        world = World(scenario, data)
        for _ in range(game.iterations):
            world.advance(weigh=False)
        accuracies += world.accuracy().tolist()
        assert world.held.index is not None
        rng = np.random.default_rng(seed)
        for peer, head in enumerate(np.asarray(world.mailbox.heads)):
            index = np.asarray(world.held.index[peer])
            mine = index[np.asarray(world.held.labels[peer]) >= 0]
            fresh = rng.permutation(np.flatnonzero(np.isin(data.train_labels, data.train_labels[mine])))[: len(mine)]
            both = np.concatenate([mine, np.setdiff1d(fresh, np.asarray(world.held.index).ravel())])
            asked = Trained(data.train[both], data.train_labels[both], np.zeros((1, 0), np.bool_), head[None, None])
            scores.append(confidence(head[None], asked)[0])
            members.append(np.isin(both, mine))
    area, rate = auc_and_tpr(scores, members)
    return {"accuracy": mean(accuracies), "worst": min(accuracies), "network_auc": area, "network_tpr": rate}


def epsilon(noise: float, *, classes: int, features: int, iterations: int, delta: float = DELTA) -> float:
    r"""ρ + 2 sqrt(ρ ln(1/δ)) for ρ = T Δ² / (2 σ²) = 2 T C D / noise²: what noise on cut rows guarantees by proof.

    The Gaussian mechanism satisfies Δ²/(2σ²)-zCDP, which adds up over T releases and implies (ε, δ)-differential
    privacy (Bun and Steinke, "Concentrated Differential Privacy", TCC 2016, propositions 1.3, 1.6 and 1.7). Two
    heads whose C rows have a norm of at most `clip` differ by at most Δ = 2 clip sqrt(C), whatever they were trained
    on, and nothing tighter is known of this training; the noise has σ = noise clip / sqrt(D), so that it does not
    matter how short rows are cut.
    """
    rho = 2 * iterations * classes * features / noise**2
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def measure(game: Game) -> list[Row]:
    """Return all rows: by number of samples without noise, then by noise for the paper's two samples of a class."""
    data, rows = digits(), list[Row]()
    for each in game.samples:
        pools = max(1, game.pools if each < 50 else game.pools // 2)
        crowds = [train(data, each, game, pool=pool) for pool in range(pools)]
        lengths = np.linalg.norm(np.stack([crowd.heads[-1] for crowd in crowds]), axis=-1)
        row = {"samples": each, "noise": 0.0, "row_norm": float(np.median(lengths[lengths > 0]))}
        rows.append(row | attack(crowds, Sharing()) | network(data, game, each, Sharing()))
        print(rows[-1], flush=True)
        if each != 2:
            continue
        for noise in NOISES:
            sharing = Sharing(noise=noise)
            patient = {f"patient_{name}": value for name, value in attack(crowds, sharing, listened=LISTENED).items()}
            rows.append(row | {"noise": noise} | attack(crowds, sharing) | patient | network(data, game, each, sharing))
            print(rows[-1], flush=True)
    return rows


def tables(rows: list[Row], game: Game) -> str:
    """Return the figures as Markdown."""
    plain = [row for row in rows if not row["noise"]]
    noisy = [row for row in rows if row["samples"] == 2]
    lines = [
        "| samples of a class | loss attack: AUC | caught at 1 % false alarms | likelihood ratio: AUC | "
        "caught at 1 % | in a network, loss attack: AUC | accuracy in a network |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['samples']} | {row['loss_auc']:.3f} | {row['loss_tpr']:.1%} | {row['ratio_auc']:.3f} | "
            f"{row['ratio_tpr']:.1%} | {row['network_auc']:.3f} | {row['accuracy']:.1%} |"
            for row in plain
        ),
        "",
        "With noise, at 2 samples of a class:",
        "",
        "| `share_noise` | likelihood ratio: AUC | caught at 1 % | with "
        f"{LISTENED} heads: AUC | caught at 1 % | accuracy in a network | worst peer | "
        "provable ε, if rows were clipped |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in noisy:
        bound = "none"
        if row["noise"]:
            bound = f"{epsilon(row['noise'], classes=10, features=800, iterations=game.iterations):,.0f}"
        lines.append(
            f"| {row['noise']:g} | {row['ratio_auc']:.3f} | {row['ratio_tpr']:.1%} | "
            f"{row.get('patient_ratio_auc', row['ratio_auc']):.3f} | "
            f"{row.get('patient_ratio_tpr', row['ratio_tpr']):.1%} | {row['accuracy']:.1%} | "
            f"{row['worst']:.1%} | {bound} |"
        )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="too few to tell anything, to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--out", type=Path, help="put the tables into this document")
    parser.add_argument("--from", type=Path, dest="read", help="take what an earlier run wrote with --json")
    given = parser.parse_args(words)
    game = QUICK if given.quick else Game()
    if given.read is None:
        rows = measure(game)
        if given.json is not None:
            given.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        rows = [json.loads(line) for line in given.read.read_text(encoding="utf-8").splitlines()]
    text = tables(rows, game)
    print(text)
    if given.out is not None:
        replace_section(given.out, "membership", text)


if __name__ == "__main__":
    main()
