"""What the soak has shown: a table, and a picture."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Row = dict[str, Any]
MEBIBYTE = 2**20


def _of(rows: list[Row], name: str) -> dict[int, list[tuple[float, float]]]:
    """Return what was seen of each peer, with when."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        if row.get(name) is not None:
            found[row["peer"]].append((row["seconds"], row[name]))
    return found


def growth(rows: list[Row], name: str, peers: list[int]) -> list[float]:
    """Return by how much something grows in an hour, for each of some peers, from the second quarter on.

    The slope of a straight line through what was seen.
    """
    end = max(row["seconds"] for row in rows)
    slopes = []
    for peer, seen in _of(rows, name).items():
        late = [(when, value) for when, value in seen if when >= end / 4]
        if peer in peers and len(late) > 2:
            when, values = np.array(late, dtype=np.float64).T
            slopes.append(3600 * float(np.polyfit(when, values, 1)[0]))
    return slopes


def table(rows: list[Row], summary: Row) -> str:
    """Return the figures as Markdown."""
    accuracy = [value for seen in _of(rows, "accuracy").values() for _, value in seen[-1:]]
    memory = [value / MEBIBYTE for seen in _of(rows, "memory").values() for _, value in seen[-1:]]
    files = [value for seen in _of(rows, "files").values() for _, value in seen[-1:]]
    store = [value / MEBIBYTE for seen in _of(rows, "store").values() for _, value in seen[-1:]]
    counters, happened, peers = summary["counters"], summary["happened"], summary["peers"]
    slopes = [slope / MEBIBYTE for slope in growth(rows, "memory", summary["steady"])]
    opened = growth(rows, "files", summary["steady"])
    refused = {name.removeprefix("refused."): count for name, count in counters.items() if name.startswith("refused.")}
    iterations = summary["iterations"]
    heard = summary["attackers_heard"] + summary["others_heard"]
    lines = [
        ("what went wrong", ", ".join(f"{count} x {name}" for name, count in sorted(happened.items()))),
        ("peers that ended by themselves, stores that were damaged", str(len(summary["unexpected"]))),
        ("**acknowledged iterations lost by those that were killed**", f"**{summary['lost']}**"),
        (
            "iterations of a peer: fewest, median, most",
            f"{min(iterations)}, {median(iterations):.0f}, {max(iterations)}",
        ),
        ("accuracy in the end: worst, median", f"{min(accuracy):.1%}, {median(accuracy):.1%}"),
        (
            "heads heard; from attackers",
            f"{heard:,}; {summary['attackers_heard']:,}, whose share of all that was taken over is "
            f"{summary['attackers_weight']:.2%}",
        ),
        ("memory of a peer's own in the end: median, most", f"{median(memory):.0f} MiB, {max(memory):.0f} MiB"),
        (
            f"its growth in the {len(slopes)} peers that were never killed: median, most",
            f"{median(slopes):+.1f}, {max(slopes):+.1f} MiB an hour" if slopes else "not seen for long enough",
        ),
        ("open files in the end: median, most", f"{median(files):.0f}, {max(files):.0f}"),
        ("their growth, likewise", f"{median(opened):+.1f}, {max(opened):+.1f} an hour" if opened else "likewise"),
        ("store and log in the end: median, most", f"{median(store):.1f} MiB, {max(store):.1f} MiB"),
        (
            "sent by all peers; retransmissions",
            f"{counters['bytes_out'] / 1e6:.0f} MB in {counters['heads_out']:,} heads; "
            f"{counters.get('retransmissions', 0):,}",
        ),
        (
            "datagrams between them; lost",
            f"{summary['datagrams']:,}; {summary['datagrams_lost'] / summary['datagrams']:.1%}",
        ),
        ("refused", ", ".join(f"{count:,} x {name}" for name, count in sorted(refused.items())) or "nothing"),
    ]
    return "\n".join(
        [
            f"{summary['on']}: {peers} peers ({summary['late']} of them late) and {summary['attackers']} attackers for "
            f"{summary['minutes']:.0f} minutes, an iteration every {summary['interval']:g} s at most, on 2 processors "
            f"shared with other work ({summary['machine']}).",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in lines),
        ]
    )


def draw(rows: list[Row], summary: Row, path: Path) -> None:
    """Draw accuracy, memory, open files and stores over time, a line for each peer."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 6.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True).ravel()
    for axes, (name, title, scale) in zip(
        panels,
        (
            ("accuracy", "Accuracy, %", 0.01),
            ("memory", "Memory of its own, MiB", MEBIBYTE),
            ("files", "Open files", 1),
            ("store", "Store and log, MiB", MEBIBYTE),
        ),
        strict=True,
    ):
        for peer, seen in _of(rows, name).items():
            when, values = np.array(seen).T
            steady = peer in summary["steady"]
            axes.plot(when / 60, values / scale, color="#0055b8" if steady else "#c8450a", linewidth=0.9, alpha=0.7)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_ylim(bottom=0)
        axes.grid(color="#e2e6ea", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[2:]:
        axes.set_xlabel("minutes")
    figure.suptitle(
        f"{summary['peers']} peers among {summary['attackers']} attackers: some killed (orange), all paused, cut off "
        "and on bad lines",
        fontsize=10,
        x=0.01,
        ha="left",
    )
    figure.savefig(path, dpi=110)
