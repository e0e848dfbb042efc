"""Draw the pictures of docs/how-it-works.md, in light and dark, from what the library really does.

    make docs-pictures        (or: python docs/make_figures.py [--quick] [--out docs/pictures])

The same library draws the same bytes. `--quick` runs shorter worlds, to see that all works.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from bristle import attacks, rules
from bristle._core import Pool
from bristle.backbones import bundled
from bristle.data import Dataset, mnist
from bristle.learning import Evaluation, accuracy_on, f1_scores, predict, train_oracle
from bristle.report.figure import ELSEWHERE, SETTINGS
from bristle.report.style import DARK_OF, GRID, INK, MUTED, PAPER, REFERENCES, RULES, Style
from bristle.rules import Bristle, Decision, Prioritiser
from bristle.rules.bristle import tier_sizes
from bristle.simulation import FeatureData, Scenario, World, prepare, run

Floats = np.ndarray[Any, np.dtype[np.float32]]
WIDTH = 7.1


@dataclass(frozen=True)
class Scheme:
    """The colours of one scheme; those of peers and attackers differ in shape as well wherever they are used."""

    name: str
    paper: str
    ink: str
    muted: str
    grid: str
    band: str
    benign: str
    attacker: str

    def colour_of(self, style: Style) -> str:
        """Return what a rule's line looks like here."""
        return style.colour if self.name == "light" else style.dark


LIGHT = Scheme("light", PAPER, INK, MUTED, GRID, "#f1f4f7", "#0055b8", "#c8450a")
DARK = Scheme(  # On the ground of the site's dark pages.
    "dark", "#1e2129", DARK_OF[INK], DARK_OF[MUTED], DARK_OF[GRID], "#272b35", "#5cadff", "#ff8a4d"
)


@dataclass(frozen=True)
class Inbox:
    """What one peer had before it in one call of the rule, and what it decided."""

    own: Floats
    received: Floats
    evaluation: Evaluation
    draws: Floats
    decision: Decision
    attackers: int

    @property
    def senders(self) -> list[str]:
        """Names of the senders: benign peers first, then attackers."""
        benign = len(self.received) - self.attackers
        return [f"peer {number + 1}" for number in range(benign)] + [
            f"attacker {number + 1}" for number in range(self.attackers)
        ]


@dataclass(frozen=True, kw_only=True)
class Recording(Bristle):
    """Bristle's rule, which also keeps what it was called with."""

    calls: list[tuple[Any, ...]] = field(default_factory=list, compare=False)

    def __call__(self, own: Any, received: Any, **options: Any) -> Decision:
        """Decide as Bristle does."""
        decision = super().__call__(own, received, **options)
        self.calls[:] = [(own, received, options, decision)]
        return decision


def digits(quick: bool) -> FeatureData:
    """Return features of the bundled digits."""
    whole, count = mnist(), 1000 if quick else 10_000
    some = Dataset(
        whole.x_train[:3000], whole.y_train[:3000], whole.x_test[:count], whole.y_test[:count], classes=whole.classes
    )
    return prepare(some, bundled(threads=1))


def inbox_of_peer_0(scenario: Scenario, data: FeatureData, *, iteration: int) -> Inbox:
    """Let a world run for a while, and return what its first peer then finds in its inbox."""
    rule = Recording()
    world = World(replace(scenario, rule=rule), data)
    for _ in range(iteration):
        world.advance()
    own, received, options, decision = rule.calls[-1]
    assert isinstance(received, Pool)
    evaluation = options["evaluation"]
    return Inbox(
        own[0],
        received.heads[received.index[0]],
        Evaluation(evaluation.features[0], evaluation.labels[0]),
        options["rng"][0],
        Decision(head=decision.head[0], weights=lambda: decision.weights[0], reasons=decision.reasons[0]),
        scenario.attackers,
    )


def draw_prioritiser(data: FeatureData, quick: bool) -> Callable[[Scheme], Figure]:
    """Draw which of 48 received heads are tested: few that are near, more from the middle, some that are far."""
    scenario = Scenario(peers=37, attackers=12, attack=attacks.create("label-flip"), reuse=True)
    inbox = inbox_of_peer_0(scenario, data, iteration=4 if quick else 12)
    prioritiser = Prioritiser()
    passes = prioritiser(inbox.own, inbox.received, rng=inbox.draws)
    distances = np.sqrt(((inbox.received - inbox.own) ** 2).sum(axis=(1, 2)))
    sizes, quotas = tier_sizes(len(distances)), prioritiser.quotas(len(distances))
    order = np.argsort(distances, kind="stable")
    attacker = np.arange(len(distances)) >= len(distances) - inbox.attackers

    def draw(scheme: Scheme) -> Figure:
        figure = Figure(figsize=(WIDTH, 2.5), layout="constrained", facecolor=scheme.paper)
        axes = figure.add_subplot(xlim=(-0.8, len(distances) - 0.2), yscale="log")
        start = 0
        for number, (name, size, quota) in enumerate(zip(("near", "middle", "far"), sizes, quotas, strict=True)):
            if number != 1:
                axes.axvspan(start - 0.5, start + size - 0.5, color=scheme.band, linewidth=0, zorder=0)
            axes.text(
                start + size / 2 - 0.5,
                1.02,
                f"{name}: {quota} of {size} are tested",
                transform=axes.get_xaxis_transform(),
                ha="center",
            )
            start += size
        for place, model in enumerate(order):
            colour = scheme.attacker if attacker[model] else scheme.benign
            axes.plot(
                [place],
                [distances[model]],
                marker="s" if attacker[model] else "o",
                color=colour,
                markerfacecolor=colour if passes[model] else scheme.paper,
                markersize=5.5,
                linestyle="",
            )
        axes.set(xlabel="received heads, by their distance from the own one", ylabel="distance", xticks=[])
        axes.set_yticks([0.05, 0.1, 0.2, 0.5])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(axis="x", visible=False)
        _legend(
            figure,
            [
                _dot("peer, will be tested", "o", scheme.benign, True, scheme),
                _dot("peer, not sampled", "o", scheme.benign, False, scheme),
                _dot("attacker, will be tested", "s", scheme.attacker, True, scheme),
                _dot("attacker, not sampled", "s", scheme.attacker, False, scheme),
            ],
        )
        return figure

    return draw


def draw_integrator(data: FeatureData, quick: bool) -> Callable[[Scheme], Figure]:
    """Draw what one peer measures, class by class, and what it then takes from whom."""
    scenario = Scenario(peers=10, attackers=2, attack=attacks.create("label-flip"))
    inbox = inbox_of_peer_0(scenario, data, iteration=4 if quick else 10)
    classes = len(data.classes)
    heads = np.concatenate([inbox.own[None], inbox.received])
    features, labels = inbox.evaluation.features, inbox.evaluation.labels
    predictions = predict(features @ heads.transpose(0, 2, 1))
    f1 = f1_scores(predictions, labels, classes, np.float32)
    familiar = np.isin(np.arange(classes), labels[labels >= 0])
    weights = np.concatenate([1 - inbox.decision.weights.sum(axis=0, keepdims=True), inbox.decision.weights])
    names = ["peer 0, its own", *inbox.senders]
    testable = np.broadcast_to(familiar, f1.shape)

    def draw(scheme: Scheme) -> Figure:
        figure = Figure(figsize=(WIDTH, 3.4), layout="constrained", facecolor=scheme.paper)
        left, right = figure.subplots(1, 2, sharey=True)
        left.set_title("F1 on the samples that it holds out", loc="left", fontweight="bold")
        right.set_title("share in each of its new rows", loc="left", fontweight="bold")
        _cells(left, f1, scheme, shown=testable, most=1.0)
        _cells(right, weights, scheme, shown=np.full(weights.shape, True), most=0.6)
        left.set_yticks(range(len(names)), names)
        for axes in (left, right):
            axes.set_xticks(range(classes), data.classes)
            axes.set_xlabel("class")
        left.text(
            np.flatnonzero(~familiar).mean(),
            len(names) / 2 - 0.5,
            "no samples of these:\ncannot be tested",
            ha="center",
            va="center",
            color=scheme.muted,
        )
        return figure

    return draw


def draw_curve(data: FeatureData, quick: bool) -> Callable[[Scheme], Figure]:
    """Draw how well ten peers do among five attackers, by rule, with the oracle and local-only."""
    names = ("bristle", "median", "fedavg", "local")
    scenario = Scenario(peers=10, attackers=5, attack=attacks.create("label-flip"), iterations=20 if quick else 300)
    lines = {name: run(replace(scenario, rule=rules.create(name)), data).rows for name in names}
    held = World(scenario, data).held
    assert held.index is not None
    mine = held.index[held.index >= 0]
    oracle = float(
        accuracy_on(
            train_oracle(data.train[mine], data.train_labels[mine], len(data.classes)), data.test, data.test_labels
        )
    )

    def draw(scheme: Scheme) -> Figure:
        figure = Figure(figsize=(WIDTH, 3.0), layout="constrained", facecolor=scheme.paper)
        axes = figure.add_subplot(xlabel="iteration", ylabel="accuracy", ylim=(-0.02, 1.02))
        axes.axhline(oracle, color=scheme.colour_of(REFERENCES["oracle"]), linestyle=(0, REFERENCES["oracle"].dash))
        handles = [_line("oracle: all samples pooled", REFERENCES["oracle"], scheme)]
        for name, rows in lines.items():
            style = REFERENCES["local"] if name == "local" else RULES[name]
            at = [row["iteration"] for row in rows]
            mean, worst = ([row[key] for row in rows] for key in ("accuracy_mean", "accuracy_min"))
            line = _line("local only: never integrates" if name == "local" else name, style, scheme)
            axes.fill_between(at, worst, mean, color=line.get_color(), alpha=0.2, linewidth=0)
            drawn = axes.add_line(_line(line.get_label(), style, scheme))
            drawn.set_data(at, mean)
            drawn.set_markevery(max(1, len(at) // 6))
            handles.append(line)
        axes.set_xlim(0, scenario.iterations * 1.01)
        _legend(figure, handles)
        return figure

    return draw


def _cells(axes: Axes, values: Floats, scheme: Scheme, *, shown: Any, most: float) -> None:
    """Draw a table of numbers, each on a ground that is the stronger, the nearer it is to `most`."""
    colours = LinearSegmentedColormap.from_list("cells", [scheme.band, scheme.benign])
    for (row, column), value in np.ndenumerate(values):
        if shown[row, column]:
            face = colours(min(1.0, float(value) / most))
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=face, edgecolor=scheme.paper))
            ink = "#14181d" if sum(face[:3]) > 1.4 else "#ffffff"
            text = f"{value:.2f}".removeprefix("0") if 0.005 <= value < 0.995 else f"{value:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=ink)
    axes.set(xlim=(-0.5, values.shape[1] - 0.5), ylim=(values.shape[0] - 0.5, -0.5))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _dot(label: str, marker: str, colour: str, filled: bool, scheme: Scheme) -> Line2D:
    face = colour if filled else scheme.paper
    return Line2D([], [], linestyle="", marker=marker, color=colour, markerfacecolor=face, label=label, markersize=5.5)


def _line(label: Any, style: Style, scheme: Scheme) -> Line2D:
    dash: Any = (0, style.dash) if style.dash else "-"
    return Line2D(
        [],
        [],
        color=scheme.colour_of(style),
        linewidth=style.width,
        linestyle=dash,
        marker=style.marker,
        label=str(label),
    )


def _legend(figure: Figure, handles: list[Line2D]) -> None:
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), columnspacing=1.2, handletextpad=0.4)


def _svg(draw: Callable[[Scheme], Figure], scheme: Scheme, name: str) -> bytes:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS | _recoloured(scheme) | {"svg.hashsalt": name, "legend.fontsize": 7.5})
        file = io.BytesIO()
        draw(scheme).savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue().replace(b"'DejaVu Sans'", ELSEWHERE)


def _recoloured(scheme: Scheme) -> dict[str, str]:
    of = {INK: scheme.ink, MUTED: scheme.muted, GRID: scheme.grid}
    found = {key: of[value] for key, value in SETTINGS.items() if isinstance(value, str) and value in of}
    return found | {"axes.facecolor": scheme.paper, "axes.titlecolor": scheme.ink}


def main() -> None:
    """Draw everything."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--quick", action="store_true", help="shorter worlds, to see that all works")
    asked.add_argument("--out", type=Path, default=Path(__file__).parent / "pictures", help="the folder to write to")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = digits(options.quick)
    for name, make in (("prioritiser", draw_prioritiser), ("integrator", draw_integrator), ("curve", draw_curve)):
        draw = make(data, options.quick)
        for scheme in (LIGHT, DARK):
            path = options.out / f"how-{name}-{scheme.name}.svg"
            path.write_bytes(_svg(draw, scheme, name))
            print(path)


if __name__ == "__main__":
    main()
