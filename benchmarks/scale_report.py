"""Tables, a model and a figure from what `scale.py` and `scale_workers.py` measured.

    python benchmarks/scale_report.py docs/scale/rows.jsonl --figure docs/scale/scale.png

Prints Markdown tables and the fitted model that docs/scale.md quotes, and draws the figure.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

Row = dict[str, Any]
TESTS = 40  # held-out samples of a peer in these worlds: 4 classes of 10
PARTS = (
    "for each iteration",
    "for each number of a head that is heard",
    "for each number of an own head",
    "for each output",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--figure", type=Path, help="draw this PNG or SVG")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.rows.read_text(encoding="utf-8").splitlines()]
    by: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by[row["what"]].append(row)
    model = fitted([row for row in by["curves"] if row["rule"] == "bristle" and row["varied"] != "beta"])
    tables = (millions(by["million"]), precisions(by["precision"]), processors(by["cpu"]), exchanges(by["exchange"]))
    for table in (*tables, workers(by["workers"])):
        print("\n".join(table), end="\n\n")
    print(f"Model, worst error {model.worst:.0%}:")
    for name, value in zip(PARTS, model.coefficients, strict=True):
        print(f"  {value:.3g} s {name}")
    for nodes in (10**6, 10**7, 10**8):
        print(f"  {nodes:.0e} nodes: {model.seconds(world(nodes)):.3g} s of one device an iteration")
    if options.figure is not None:
        draw(by, model, options.figure)


def world(nodes: float, *, neighbours: int = 10, classes: int = 10, features: int = 800) -> Row:
    peers = 0.7 * nodes
    sizes = {"neighbours": neighbours, "classes": classes, "features": features}
    return {"peers": peers, "attackers": nodes - peers, **sizes}


class Model:
    """seconds = a + b peers (k + 1) C D + c nodes C D + d peers (k + 1) T C, with nothing below 0."""

    def __init__(self, coefficients: Any, worst: float) -> None:
        self.coefficients, self.worst = coefficients, worst

    def seconds(self, row: Row) -> float:
        """Return what an iteration takes."""
        return float(sum(c * x for c, x in zip(self.coefficients, terms(row), strict=True)))


def terms(row: Row) -> tuple[float, float, float, float]:
    peers, nodes = row["peers"], row["peers"] + row["attackers"]
    heads, size = peers * (row["neighbours"] + 1), row["classes"] * row["features"]
    return 1.0, heads * size, nodes * size, heads * TESTS * row["classes"]


def fitted(rows: list[Row]) -> Model:
    """Fit relative errors by least squares; a term that would come out below 0 is left out."""
    matrix = np.array([terms(row) for row in rows])
    seconds = np.array([row["seconds_an_iteration"] for row in rows])
    used = list(range(matrix.shape[1]))
    while True:
        scaled = matrix[:, used] / seconds[:, None]
        size = np.abs(scaled).max(axis=0)
        found = np.linalg.lstsq(scaled / size, np.ones(len(rows)), rcond=None)[0] / size
        if (found >= 0).all():
            break
        used.pop(int(np.argmin(found * size)))
    coefficients = np.zeros(matrix.shape[1])
    coefficients[used] = found
    worst = float(np.abs(matrix @ coefficients / seconds - 1).max())
    return Model(coefficients, worst)


def millions(rows: list[Row]) -> list[str]:
    lines = [
        "| rule | benign + flippers | 100 iterations | an iteration | iterations/s | share of the copy ceiling "
        "| peak memory | accuracy, worst of 1,000 peers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = row["least_bytes_an_iteration"] / row["seconds_an_iteration"] / row["copy_bytes_a_second"]
        shown = f"{share:.0%}" if row["rule"] == "bristle" else "-"
        _, mean, worst, *_ = row["curve"][-1]
        lines.append(
            f"| {row['rule']} | {row['peers']:,} + {row['attackers']:,} | {row['seconds']:.1f} s | "
            f"{row['seconds_an_iteration']:.3f} s | {1 / row['seconds_an_iteration']:.1f} | {shown} | "
            f"{row['peak_bytes'] / 1e9:.1f} GB | {mean:.4f}, {worst:.4f} |"
        )
    return lines


def precisions(rows: list[Row]) -> list[str]:
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["rule"], row["moments"], row["shared"]].append(row)
    lines = ["| rule | moments | shared | accuracy, seeds 0 to 2 | mean | an iteration |", "|---|---|---|---|---|---|"]
    for (rule, moments, shared), some in groups.items():
        found = [row["curve"][-1][1] for row in some]
        time = np.median([row["seconds_an_iteration"] for row in some])
        each = ", ".join(f"{value:.4f}" for value in found)
        lines.append(f"| {rule} | {moments} | {shared} | {each} | {np.mean(found):.4f} | {1e3 * time:.1f} ms |")
    return lines


def processors(rows: list[Row]) -> list[str]:
    lines = ["| benign + flippers | an iteration | iterations/s | a peer | peak memory |", "|---|---|---|---|---|"]
    for row in rows:
        seconds = row["seconds_an_iteration"]
        lines.append(
            f"| {row['peers']:,} + {row['attackers']:,} | {seconds:.2f} s | {1 / seconds:.2f} | "
            f"{1e3 * seconds / row['peers']:.3f} ms | {row['peak_bytes'] / 1e9:.2f} GB |"
        )
    return lines


def exchanges(rows: list[Row]) -> list[str]:
    lines = [
        "| device | way | benign + flippers | to state | to decide | a peer | peak memory | accuracy, worst |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['device']} | {row['way']}{', 16 bits' if row['narrow'] else ''} "
            f"| {row['peers']:,} + {row['attackers']:,} | {row['seconds_to_state']:.2f} s | {row['seconds']:.2f} s "
            f"| {1e3 * (row['seconds_to_state'] + row['seconds']) / row['peers']:.2f} ms "
            f"| {row['peak_bytes'] / 1e9:.2f} GB | {row['accuracy']:.4f}, {row['worst']:.4f} |"
        )
    return lines


def workers(rows: list[Row]) -> list[str]:
    lines = [
        "| device | nodes | workers | an iteration | received by a worker | peak memory of a worker "
        "| digest of 200 heads |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['device']} | {row['nodes']:,} | {row['workers']} | {row['seconds_an_iteration']:.3f} s | "
            f"{row['bytes_received_an_iteration'] / 1e6:,.1f} MB | {row['peak_bytes'] / 1e9:.2f} GB "
            f"| `{row['heads']}` |"
        )
    return lines


def draw(by: dict[str, list[Row]], model: Model, path: Path) -> None:
    figure = Figure(figsize=(12, 7), layout="constrained")
    axes = figure.subplots(2, 3)
    for row, colour in zip(by["million"][:2], ("#0b6e4f", "#b23a48"), strict=True):
        curve = np.array(row["curve"])
        label = {"bristle": "Bristle", "fedavg": "FedAvg"}[row["rule"]]
        axes[0, 0].plot(curve[:, 0], curve[:, 1], color=colour, label=label)
        axes[0, 0].fill_between(curve[:, 0], curve[:, 2], curve[:, 1], color=colour, alpha=0.15)
    axes[0, 0].set(title="a million peers, 30 % flip labels", xlabel="iteration", ylabel="accuracy, down to the worst")
    axes[0, 0].set_ylim(0, 1)
    axes[0, 0].legend(loc="center right")
    panels = (
        (axes[0, 1], "nodes", "nodes", (1e3, 1e6), world),
        (axes[0, 2], "neighbours", "neighbours", (1, 30), lambda v: world(1e5, neighbours=v)),
        (axes[1, 0], "classes", "classes", (5, 40), lambda v: world(1e5, classes=v)),
        (axes[1, 1], "features", "features", (100, 1600), lambda v: world(1e5, features=v)),
    )
    for place, varied, words, (low, high), made in panels:
        some = [row for row in by["curves"] if row["varied"] == varied]
        place.plot(
            [row["value"] for row in some], [1e3 * row["seconds_an_iteration"] for row in some], "o", color="#0b6e4f",
            label="measured",
        )  # fmt: skip
        values = np.geomspace(low, high, 60)
        place.plot(values, [1e3 * model.seconds(made(v)) for v in values], color="#555", lw=1, label="model")
        base = "" if varied == "nodes" else ", 100,000 nodes"
        place.set(title=f"time against {words}{base}", xlabel=words, ylabel="ms an iteration")
        if varied == "nodes":
            place.set(xscale="log", yscale="log")
        else:
            place.set_ylim(bottom=0)
        place.legend(loc="upper left")
    memory = [row for row in by["curves"] if row["varied"] == "nodes"]
    sizes = [row["value"] for row in memory]
    axes[1, 2].plot(sizes, [row["peak_bytes"] / 1e9 for row in memory], "o", color="#0b6e4f", label="peak")
    axes[1, 2].plot(sizes, [row["planned_bytes"] / 1e9 for row in memory], color="#555", lw=1, label="planned")
    axes[1, 2].set(title="memory against nodes", xlabel="nodes", ylabel="GB", xscale="log", yscale="log")
    axes[1, 2].legend(loc="upper left")
    for place in axes.flat:
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
