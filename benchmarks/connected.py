"""Time of one iteration of one peer against how many peers it hears, for every rule: a table and a figure.

    python benchmarks/connected.py [--quick] [--seconds 0.05] [--json rows.json] [--figure figure.png]

One iteration is what a live peer does when its turn comes: integrate the newest head of everybody it hears, then train
one mini-batch (`bristle.peer.step.step`). Heads are 10 x 800; the peer holds 4 classes, 2 samples each to train on and
10 each to test with; f is a tenth of what is heard, where a rule needs one. Contenders take turns; medians count.
Times are processor time of one thread, which other work on the machine disturbs less than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from bristle import Evaluation, rules
from bristle.learning.optimiser import HeadState
from bristle.learning.samples import Samples
from bristle.peer.step import StepState, step
from bristle.rules import Rule
from timing import take_turns

CONNECTED = (1, 3, 10, 30, 100, 300, 1000)
SHAPE = (10, 800)
BETA = 30
SLOW = 300.0
"""Milliseconds of an iteration from which on a rule is measured once, apart from the others and with more peers."""
# Each is drawn in a colour of its own; all others stay in the background.
SHOWN = {"bristle": "#c1121f", "fedavg": "#003049", "median": "#2a9d8f", "krum": "#6a4c93"}
Row = dict[str, Any]


def rule_for(name: str, connected: int) -> Rule:
    """Return the rule, for so many received heads."""
    try:
        rule = rules.create(name, f=max(1, connected // 10))
    except (TypeError, ValueError):  # It needs no number of attackers.
        rule = rules.create(name)
    assert isinstance(rule, Rule)
    return rule


class Iteration:
    """What a peer that hears so many others does in an iteration; calling it does one."""

    def __init__(self, rule: Rule, own: np.ndarray[Any, Any], heads: np.ndarray[Any, Any]) -> None:
        rng = np.random.default_rng(0)
        classes, features = SHAPE
        self.rule, self.heads, self.turn = rule, heads, 0
        self.state = StepState.start(HeadState.start(own))
        self.samples = Samples(rng.random((8, features), dtype=np.float32), np.repeat(np.arange(4), 2))
        self.evaluation = Evaluation(rng.random((40, features), dtype=np.float32), np.repeat(np.arange(4), 10))
        self.draws = rng.random((16, 8), dtype=np.float32)
        self.model_draws = rng.random((16, len(heads)), dtype=np.float32) if rule.stochastic else None
        self.claims = np.ones((len(heads), classes), np.bool_) if rule.uses_claims else None
        self.senders = np.arange(len(heads))

    def __call__(self) -> None:
        """Do one iteration."""
        turn = self.turn % 16
        self.turn += 1
        # The state stays as it is, so that every call has the same to do.
        step(
            self.state,
            self.heads,
            rule=self.rule,
            samples=self.samples,
            evaluation=self.evaluation,
            claims=self.claims,
            senders=self.senders,
            batch_draws=self.draws[turn],
            model_draws=None if self.model_draws is None else self.model_draws[turn],
            iteration=10,
            total=300,
        )


def measure(*, seconds: float, connected: tuple[int, ...] = CONNECTED) -> list[Row]:
    """Return milliseconds an iteration, a row for every rule and number of connected peers."""
    rng = np.random.default_rng(1)
    common = 0.1 * rng.standard_normal(SHAPE)
    heads = (common + 0.05 * rng.standard_normal((max(connected) + 1, *SHAPE))).astype(np.float32)
    rows: list[Row] = []
    before = dict.fromkeys(rules.names(shares="heads"), 0.0)
    for count in connected:
        contenders = {name: Iteration(rule_for(name, count), heads[-1], heads[:count]) for name in before}
        quick = {name: contenders[name] for name, took in before.items() if took < SLOW}
        slow = {name: contenders[name] for name, took in before.items() if took >= SLOW}
        before = take_turns(quick, seconds=seconds, clock=time.process_time)
        before |= {name: _once(call) for name, call in slow.items()}
        rows += [{"rule": name, "connected": count, "milliseconds": before[name]} for name in contenders]
    return [{**row, "load": os.getloadavg()[0]} for row in rows]


def _once(call: Iteration) -> float:
    begin = time.process_time()
    call()
    return 1e3 * (time.process_time() - begin)


def table(rows: list[Row]) -> str:
    """Return a Markdown table: a line for every rule, and how much 1,000 cost against beta."""
    counts = sorted({row["connected"] for row in rows})
    found = {(row["rule"], row["connected"]): row["milliseconds"] for row in rows}
    last, near = counts[-1], min(counts, key=lambda count: abs(count - BETA))
    lines = [
        "| rule | " + " | ".join(f"{count:,}" for count in counts) + f" | {last:,} / {near} |",
        "|---" * (len(counts) + 2) + "|",
    ]
    for name in dict.fromkeys(row["rule"] for row in rows):
        cells = [f"{found[name, count]:.3g}" if (name, count) in found else "-" for count in counts]
        growth = f"{found[name, last] / found[name, near]:.1f}" if (name, last) in found else "-"
        lines.append(f"| {name} | {' | '.join(cells)} | {growth} |")
    return "\n".join(lines)


def draw(rows: list[Row], path: Path) -> None:
    """Draw time against connected peers, both on logarithmic axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only where a figure is wanted

    figure = Figure(figsize=(8.5, 5.5), layout="constrained")
    axes = figure.add_subplot(
        xscale="log", yscale="log", xlabel="connected peers", ylabel="milliseconds an iteration (processor)"
    )
    ends = []
    for name in dict.fromkeys(row["rule"] for row in rows):
        some = [row for row in rows if row["rule"] == name]
        counts, times = [row["connected"] for row in some], [row["milliseconds"] for row in some]
        colour, width = (SHOWN[name], 2.5) if name in SHOWN else ("0.65", 1.0)
        above = 3 if name in SHOWN else 2
        axes.plot(counts, times, color=colour, linewidth=width, marker="o", markersize=3, zorder=above)
        ends.append((times[-1], counts[-1], name, colour))
    _label(axes, ends)
    axes.axvline(BETA, color="0.4", linestyle=":", linewidth=1)
    axes.annotate(f"beta = {BETA}", (BETA, 0.98), xycoords=("data", "axes fraction"), xytext=(4, 0),
                  textcoords="offset points", va="top", fontsize=9, color="0.3")  # fmt: skip
    ticks = sorted({row["connected"] for row in rows})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.set_title("What an iteration costs a peer, against how many it hears", fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)


def _label(axes: Any, ends: list[tuple[float, int, str, str]]) -> None:
    """Write the names beside the ends of the lines, moved apart where they would overlap."""
    axes.set_xlim(0.8, 10_000)
    ends = sorted(ends)
    low, high = np.log(axes.get_ylim())
    places, room = np.log([took for took, *_ in ends]), (high - low) / 25
    for _ in range(500):
        close = np.maximum(0, room - np.diff(places)) / 2
        places[:-1] -= close
        places[1:] += close
    for place, (took, count, name, colour) in zip(np.exp(places), ends, strict=True):
        axes.annotate(name, (count, took), xytext=(1.35 * count, place), va="center", fontsize=8.5,
                      color=colour if name in SHOWN else "0.35",
                      fontweight="bold" if name == "bristle" else "normal",
                      arrowprops={"arrowstyle": "-", "color": "0.75", "linewidth": 0.6, "relpos": (0, 0.5),
                                  "shrinkA": 1, "shrinkB": 3})  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 30 peers and few turns, to see that it works")
    parser.add_argument("--seconds", type=float, default=0.05, help="about how long each has its turns")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--figure", type=Path, help="draw them into this PNG file")
    options = parser.parse_args()
    rows = measure(seconds=0.01, connected=(1, 10, 30)) if options.quick else measure(seconds=options.seconds)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows))
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
