"""The project in examples/flower_strategy with every strategy, in Flower's simulation engine, for docs/integrations.md.

    make integrations                                                  # once: installs Flower
    PATH=$PWD/.integrations/flower/bin:$PATH python benchmarks/flower_strategies.py --rows out/flower.jsonl

Prints the table. A quarter of an hour on two cores. Runs that the file of rows holds already are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "examples" / "flower_strategy"
STRATEGIES = (
    *("bristle", "bristle-krum", "bristle-mda", "bristle-smea", "bristle-caf"),
    *("flower-fedavg", "flower-krum", "flower-median", "flower-trimmed-mean"),
)
CLIENTS, SHOWN = 10, (1, 2, 5, 10)


def run(strategy: str, seed: int, rows: Path) -> None:
    """Run a strategy with a seed; Flower's settings and processes are in a folder of its own, and end with it."""
    with tempfile.TemporaryDirectory() as home:
        project = Path(home) / "project"
        shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
        settings = f"strategy='{strategy}' rounds={max(SHOWN)} seed={seed} out='{rows.resolve()}'"
        command = ["flwr", "run", ".", "--stream", "--federation-config", f"num-supernodes={CLIENTS}"]
        environment = {"FLWR_HOME": home, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        environment["PYTHONPATH"] = str(ROOT / "src")
        try:
            subprocess.run(
                [*command, "--run-config", settings],
                cwd=project,
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        finally:
            end_processes(home)


def end_processes(home: str) -> None:
    """End what Flower leaves running on a folder of settings."""
    mark = f"FLWR_HOME={home}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = int(process.name) != os.getpid() and mark in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours:
            os.kill(int(process.name), signal.SIGTERM)


def read(rows: Path) -> list[dict[str, Any]]:
    """Return the rows so far."""
    return [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()] if rows.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """Return accuracy after some rounds, as means over seeds, and the range at the end; the best one first."""
    lines = [
        f"| strategy | {' | '.join(f'round {number}' for number in SHOWN)} | range at {max(SHOWN)} | seeds |",
        "|---" * (len(SHOWN) + 3) + "|",
    ]
    found = []
    for strategy in STRATEGIES:
        runs = [row["accuracy"] for row in rows if row["strategy"] == strategy]
        if runs:
            ends = [accuracy[max(SHOWN)] for accuracy in runs]
            means = [statistics.fmean(accuracy[number] for accuracy in runs) for number in SHOWN]
            cells = " | ".join(f"{mean:.1%}" for mean in means)
            found.append((means[-1], f"| `{strategy}` | {cells} | {min(ends):.1%}-{max(ends):.1%} | {len(runs)} |"))
    return "\n".join([*lines, *(line for _, line in sorted(found, reverse=True))])


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True, help="JSON Lines, a line for each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    options = parser.parse_args()
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(options.seeds):
        for strategy in options.strategies:
            if not any((row["strategy"], row["seed"]) == (strategy, seed) for row in read(options.rows)):
                run(strategy, seed, options.rows)
    print(table(read(options.rows)))


if __name__ == "__main__":
    main()
