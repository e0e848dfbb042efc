"""Make the figures of parameters.md: each parameter of the rule, shown by an experiment.

    python docs/make_parameter_figures.py

Runs the worlds that are not yet in pictures/parameters.jsonl (minutes) and draws one PNG per parameter. Delete that
file to measure anew. Needs matplotlib, which the extra named plots brings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from bristle.report.content import Line, Panel, Section
from bristle.report.figure import section_files
from bristle.report.style import Styles
from bristle.simulation import FeatureData, prepare, run
from bristle.simulation.build import make_data, scenario_of
from bristle.simulation.config import DataSection, read

PICTURES = Path(__file__).parent / "pictures"
KEPT = PICTURES / "parameters.jsonl"
SEEDS = (0, 1)
SMALL = ("world.iterations=60", "data.train_samples=12000", "data.test_samples=2000")
NOBODY = ("world.attackers=0", "attack.name=none")


def attacked(attack: str, attackers: int) -> tuple[str, ...]:
    """Return the settings of so many attackers."""
    return (f"attack.name={attack}", f"world.attackers={attackers}")


USUAL = {"no attackers": NOBODY, "5 trimmed-mean attackers": attacked("trimmed-mean", 5)}
CROWD = {"no attackers": NOBODY, "12 label flips": attacked("label-flip", 12)}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A panel: a parameter's values, what each sets, and the worlds that it is tried in."""

    title: str
    xlabel: str
    values: Sequence[float]
    sets: Sequence[str]
    worlds: Mapping[str, tuple[str, ...]]
    always: tuple[str, ...] = ()
    log: bool = False
    ylim: tuple[float, float] = (0, 1)
    seeds: tuple[int, ...] = SEEDS

    def settings(self, world: str, value: float, seed: int) -> list[str]:
        """Return what is to be simulated for one point."""
        own = [text.format(value, 0.4 * value) for text in self.sets]
        return [*SMALL, *self.always, *self.worlds[world], *own, f"world.seed={seed}"]


def _second_omega(pair: str, values: Sequence[float]) -> Sweep:
    return Sweep(
        title=f"{pair.capitalize()} classes, omega 1 = 10",
        xlabel=f"{pair} omega 2",
        values=values,
        sets=[f"rule.{pair}=[10,{{}}]"],
        worlds=USUAL,
        seeds=SEEDS[:1],
    )


def _first_omega(pair: str) -> Sweep:
    return Sweep(
        title=f"{pair.capitalize()}, omega 2 = 0.4 omega 1",
        xlabel=f"{pair} omega 1",
        values=(0.1, 1, 10, 100),
        sets=[f"rule.{pair}=[{{}},{{}}]"],
        worlds=USUAL,
        seeds=SEEDS[:1],
        log=True,
    )


FIGURES: dict[str, tuple[Sweep, ...]] = {
    "alpha": (
        Sweep(
            title="12 peers, 5 heads tested",
            xlabel="alpha",
            values=(0, 0.2, 0.4, 0.6, 0.8, 1),
            sets=["rule.alpha={}"],
            worlds=CROWD,
            always=("world.peers=12", "rule.beta=5"),
        ),
    ),
    "beta": (
        Sweep(
            title="12 peers",
            xlabel="beta",
            values=(1, 2, 3, 5, 10, 20),
            sets=["rule.beta={}"],
            worlds=CROWD,
            always=("world.peers=12",),
            log=True,
        ),
    ),
    "phi": (
        Sweep(
            title="10 peers with 7 classes each",
            xlabel="phi",
            values=(1, 2, 3, 4, 5, 6),
            sets=["rule.phi={}"],
            worlds=USUAL,
            always=("partition.classes_per_peer=7",),
            ylim=(0.85, 1),
        ),
    ),
    "kappa": (
        Sweep(
            title="10 peers with 60 samples each",
            xlabel="kappa",
            values=(1, 2, 3, 5, 8, 10),
            sets=["rule.kappa={}"],
            worlds=USUAL,
            always=("partition.name=dirichlet", "partition.alpha=0.5", "data.train_samples=600"),
        ),
    ),
    "eta": (
        Sweep(
            title="10 peers with 4 classes each",
            xlabel="eta",
            values=(0.5, 1, 2, 5, 10, 20, 50, 100),
            sets=["rule.eta={}"],
            worlds=USUAL,
            log=True,
        ),
    ),
    "omega": (
        _second_omega("foreign", (0, 2, 4, 4.5, 5, 6)),
        _second_omega("familiar", (0, 2, 4, 5, 7, 10)),
        _first_omega("foreign"),
        _first_omega("familiar"),
    ),
}


def main() -> None:
    """Measure what is missing, then draw."""
    known = {tuple(row["settings"]): row["accuracy"] for row in _kept()}
    wanted = dict.fromkeys(
        tuple(sweep.settings(world, value, seed))
        for panels in FIGURES.values()
        for sweep in panels
        for world in sweep.worlds
        for value in sweep.values
        for seed in sweep.seeds
    )
    missing = [settings for settings in wanted if settings not in known]
    PICTURES.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        for number, settings in enumerate(missing, start=1):
            known[settings] = _accuracy(settings)
            file.write(json.dumps({"settings": settings, "accuracy": known[settings]}) + "\n")
            file.flush()
            print(f"{number} of {len(missing)} worlds", file=sys.stderr)
    for name, sweeps in FIGURES.items():
        panels = tuple(_panel(sweep, known) for sweep in sweeps)
        section = Section(name=name, title=name, text="", panels=panels)
        styles = Styles.of(line for panel in panels for line in panel.lines)
        (PICTURES / f"parameter-{name}.png").write_bytes(section_files(section, styles)[0])


def _accuracy(settings: Sequence[str]) -> float:
    config = read({}, settings)
    data = _features(config.data)
    scenario = scenario_of(config, classes=len(data.classes))
    return round(float(run(scenario, data, every=scenario.iterations).last()["accuracy_mean"]), 5)


@cache
def _features(section: DataSection) -> FeatureData:
    dataset, backbone = make_data(section)
    return prepare(dataset, backbone, test_samples=section.test_samples)


def _kept() -> Iterator[dict[str, Any]]:
    if KEPT.exists():
        yield from map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())


def _panel(sweep: Sweep, known: Mapping[tuple[str, ...], float]) -> Panel:
    lines = []
    for world in sweep.worlds:
        runs = [[known[tuple(sweep.settings(world, value, seed))] for seed in sweep.seeds] for value in sweep.values]
        middle, low, high = ([of(some) for some in runs] for of in (mean, min, max))
        lines.append(Line(label=world, x=list(sweep.values), y=middle, low=low, high=high))
    return Panel(
        title=sweep.title, lines=tuple(lines), xlabel=sweep.xlabel, ylabel="accuracy", ylim=sweep.ylim, log_x=sweep.log
    )


if __name__ == "__main__":
    main()
