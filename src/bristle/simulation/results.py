"""Results of a run: tidy rows, and a plot of them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bristle.attacks import ATTACKS, Attack
from bristle.rules import RULES, STEPS, Rule
from bristle.rules.steps import Chain
from bristle.simulation.large.world import LargeWorld
from bristle.simulation.measurement import Measurement
from bristle.simulation.population import class_counts
from bristle.simulation.users import accuracy_per_user
from bristle.simulation.world import World

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """The rows of a run, one for each evaluation; every row says what it was measured in."""

    rows: list[Row] = field(default_factory=list)

    def last(self) -> Row:
        """Return the last row."""
        if not self.rows:
            raise ValueError("there is no row yet: a world is evaluated every 10 iterations unless said otherwise")
        return self.rows[-1]

    def plot(self, *, title: str | None = None) -> Figure:
        """Draw accuracy over iterations, a line per rule, attack and seed, shaded down to the worst peer.

        Returns the figure, which a notebook shows: `results.plot().savefig("accuracy.svg")` keeps it. Needs matplotlib.
        """
        figure = _notebook_figure()
        axes = figure.add_subplot(
            xlabel="iteration", ylabel="accuracy", ylim=(0, 1), title=title or "Mean of the benign peers, and the worst"
        )
        lines: dict[str, list[Row]] = {}
        for row in self.rows:
            figure_name = f"{row['figure']}: " if row["figure"] else ""
            lines.setdefault(f"{figure_name}{row['rule']}, attack: {row['attack']}, seed {row['seed']}", []).append(row)
        for label, rows in lines.items():
            iterations = [row["iteration"] for row in rows]
            if len(set(iterations)) < len(iterations):
                raise ValueError(
                    f"two runs of {label!r} cannot be told apart; give each a name of its own, "
                    "e.g. overrides=['world.figure=ring']"
                )
            mean, worst = ([row[name] for row in rows] for name in ("accuracy_mean", "accuracy_min"))
            axes.plot(iterations, mean, label=label)
            axes.fill_between(iterations, worst, mean, alpha=0.2)
        if lines:
            axes.legend(loc="lower right")
        axes.grid(alpha=0.3)
        return figure


def _notebook_figure() -> Figure:
    """Return an empty figure made without pyplot, whose state is the reader's own; notebooks draw it all the same."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('plotting needs matplotlib: pip install "bristle[plots]"') from error

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=110)
            return picture.getvalue()

    return NotebookFigure(figsize=(6, 4), layout="constrained")


def rule_name(rule: Rule) -> str:
    """Return the name by which a rule is made, steps first: `nearest-neighbour-mixing+krum`; else its class's name."""
    if isinstance(rule, Chain):
        steps = [_name_in(STEPS, step) for step in rule.steps]
        return "+".join([*steps, rule_name(rule.rule)])
    return _name_in(RULES, rule)


def attack_name(attack: Attack) -> str:
    """Return the name by which an attack is made, else its class's name."""
    return _name_in(ATTACKS, attack)


def row_of(world: World | LargeWorld, measured: Measurement, *, figure: str) -> Row:
    """Return a row: what the world is, and what was measured."""
    scenario = world.scenario
    classes, samples = _holdings(world)
    users = accuracy_per_user(world) if isinstance(world, World) else None
    return {
        "figure": figure,
        "rule": rule_name(scenario.rule),
        "attack": attack_name(scenario.attack) if scenario.attackers else "none",
        "peers": scenario.peers,
        "attackers": scenario.attackers,
        "classes_per_peer": classes,
        "samples_per_class": samples,
        "seed": scenario.seed,
        "iteration": world.iteration,
        "accuracy_mean": float(measured.accuracy.mean()),
        "accuracy_min": float(measured.accuracy.min()),
        "bytes_sent": _tidy(float(measured.bytes_sent.mean())),
        "bytes_sent_max": int(measured.bytes_sent.max()),
        "f1_mean": float(measured.f1.mean()),
        "weight_benign": measured.weight_benign,
        "weight_malicious": measured.weight_malicious,
        "accuracy_per_class": [
            float(value) if np.isfinite(value) else None for value in measured.class_accuracy.mean(axis=0)
        ],
        **({} if users is None else {"accuracy_per_user": users}),
    }


def _holdings(world: World | LargeWorld) -> tuple[float, float]:
    """Return classes per peer and samples per class and peer, on average; whole where they are."""
    held = class_counts(world.held, len(world.data.classes))
    owned = int((held > 0).sum())
    return _tidy(owned / len(held)), _tidy(int(held.sum()) / max(1, owned))


def _tidy(value: float) -> float:
    return int(value) if value.is_integer() else value


def _name_in(known: Mapping[str, object], value: object) -> str:
    return next((name for name, kind in known.items() if type(value) is kind), type(value).__name__)
