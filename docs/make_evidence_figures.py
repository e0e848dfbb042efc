"""Make the pictures of evidence.md.

    python docs/make_evidence_figures.py

Simulates small worlds with the bundled MNIST images (about a minute on one core) and draws three PNG files into
pictures/. The third one is drawn from COSTS, figures that `python benchmarks/evidence.py` measured. Needs matplotlib,
which the extra named plots brings.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from bristle import attacks, rules
from bristle.backbones import bundled
from bristle.data import load
from bristle.rules.evidence import Claims, independent, pool_scatter, robust_means
from bristle.simulation import FeatureData, Scenario, World, prepare, run

PICTURES = Path(__file__).parent / "pictures"
BLUE, RED, GREY, GREEN, ORANGE = "#3b5bdb", "#e03131", "#868e96", "#2b8a3e", "#e8590c"
ATTACKERS = (0, 1, 2, 3, 4, 5)
COSTS = {
    "Fashion-MNIST, 15 + 10": (0, 0.4, 0.8, 1.9, 35.3, 46.2),
    "Fashion-MNIST, 2 + 10": (0, 0.9, 1.6, 3.0, 35.9, 45.1),
}
"""Points that the worst setting of the worst attack costs, by the number of attackers."""
OWN = ((0, 0.9, 1.8, 2.6, 1.1, 1.3), (0, 1.2, 2.4, 3.7, 1.3, 1.6))
"""The same on the classes that a peer holds itself."""


@cache
def digits() -> FeatureData:
    """Return features of the bundled MNIST images."""
    return prepare(load("mnist"), bundled())


def curves(out: Path, iterations: int) -> None:
    """Draw accuracy per iteration under one home-bias attacker."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    shown = (("bristle", GREEN), ("fedavg", GREY))
    for name, colour in shown:
        scenario = _scenario(name, iterations)
        rows = run(scenario, digits(), every=5).rows
        axes.plot([row["iteration"] for row in rows], [row["accuracy_mean"] for row in rows], color=colour, label=name)
    last = run(_scenario("evidence", 1), digits()).last()
    axes.plot([1, iterations], [last["accuracy_mean"]] * 2, color=BLUE, label="evidence (one exchange)")
    axes.plot([1], [last["accuracy_mean"]], "o", color=BLUE)
    axes.set(xlabel="iteration", ylabel="accuracy, mean of ten peers", ylim=(0, 1), xlim=(0, iterations))
    axes.legend(loc="center right", frameon=False)
    _save(figure, out / "evidence-curves.png")


def _scenario(rule: str, iterations: int) -> Scenario:
    options: dict[str, Any] = {"attackers": 1, "attack": attacks.create("home-bias"), "seed": 1}
    return Scenario(peers=10, rule=rules.create(rule), iterations=iterations, **options)


def claims(out: Path) -> None:
    """Draw what owners and three liars claim of one class, in the plane of two of its discriminants."""
    liars, label, others = 3, 8, (3, 5)
    attack = attacks.Partisans(noise=0.7, past=1.0)
    world = World(
        Scenario(peers=10, attackers=liars, attack=attack, rule=rules.create("evidence"), iterations=1, seed=1),
        digits(),
    )
    world.advance()
    exchange = world.exchange
    assert exchange is not None
    lies = attack.state(exchange.scene, 0, np.random.default_rng(1))
    statements = [one.numpy() for one in (*exchange.statements, *lies)]
    owner, which = np.nonzero(np.stack([np.asarray(one.counts) for one in statements]) > 0)
    means = np.stack([np.asarray(statements[who].rows)[c] for who, c in zip(owner, which, strict=True)])
    count = np.array([np.asarray(statements[who].counts)[c] for who, c in zip(owner, which, strict=True)])
    scatter = pool_scatter(statements)
    all_claims = Claims(owner, which, count, scatter.vectors(means).products(), 10)
    mine = exchange.samples[0]
    rest = np.asarray(mine.features) - np.asarray(statements[0].rows)[np.asarray(mine.labels)]
    spread = float(scatter.vectors(rest).squares().sum() / (len(rest) - 4))
    located = robust_means(all_claims, independent(all_claims, spread), spread)
    locations = located.mixture @ means
    those = which == label
    truth = np.asarray(digits().train)[np.asarray(digits().train_labels) == label].mean(axis=0)
    axis = np.stack([locations[label] - locations[other] for other in others])
    solved = scatter.solved(scatter.vectors(axis))
    # In standard errors of one honest mean, about the true mean.
    unit = np.sqrt((rest @ solved.T).var(axis=0) / count[those][0])
    placed = (means[those] - truth) @ solved.T / unit
    who = owner[those]
    honest, false = placed[who < 10], placed[who >= 10]
    chosen = (locations[label] - truth) @ solved.T / unit
    figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
    axes.plot(*honest.T, "o", color=BLUE, label="honest owners", markersize=9)
    axes.plot(*false.T, "X", color=RED, label="liars", markersize=10)
    axes.plot(*placed.mean(axis=0), "+", color=GREY, label="plain mean", markersize=14, markeredgewidth=2.5)
    axes.plot(*chosen, "*", color=GREEN, label="chosen location", markersize=17)
    axes.plot(0, 0, "s", color="black", label="mean of all training images", markersize=7, fillstyle="none")
    axes.set(
        xlabel=f"class {label} against class {others[0]}, standard errors",
        ylabel=f"class {label} against class {others[1]}, standard errors",
    )
    axes.axhline(0, color="#dee2e6", zorder=0)
    axes.axvline(0, color="#dee2e6", zorder=0)
    axes.legend(frameon=False, fontsize=9)
    _save(figure, out / "evidence-claims.png")


def costs(out: Path) -> None:
    """Draw COSTS."""
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    places = range(len(ATTACKERS))
    for (name, values), own, colour in zip(COSTS.items(), OWN, (ORANGE, RED), strict=True):
        axes.plot(places, values, "o-", color=colour, label=name)
        axes.plot(places, own, "o:", color=colour, markersize=4, label="its own classes")
    axes.axvspan(3.5, len(ATTACKERS) - 0.5, color="#f1f3f5", zorder=0)
    axes.text(3.6, 12, "liars are as many as\nhonest owners, or more", fontsize=9, color="#495057")
    axes.set_xticks(list(places), [str(number) for number in ATTACKERS])
    axes.set(xlabel="attackers (a class has four honest owners)", ylabel="points lost, worst attack")
    axes.set(xlim=(-0.2, len(ATTACKERS) - 0.5), ylim=(-1, 65))
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    _save(figure, out / "evidence-costs.png")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(path)


def main() -> None:
    """Draw the pictures."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--out", type=Path, default=PICTURES)
    words.add_argument("--iterations", type=int, default=150)
    chosen = words.parse_args()
    mpl.use("Agg")
    costs(chosen.out)
    claims(chosen.out)
    curves(chosen.out, chosen.iterations)


if __name__ == "__main__":
    main()
