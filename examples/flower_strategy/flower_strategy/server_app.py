"""The server: what a Flower project has to change is the strategy, one line of `strategies`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, Krum

from bristle import Bristle, Evaluation, rules
from bristle.integrations.flower import RuleStrategy

from . import task

app = ServerApp()
F = task.LIARS
EVERYBODY: dict[str, Any] = {
    "fraction_evaluate": 0.0,
    "min_train_nodes": task.CLIENTS,
    "min_available_nodes": task.CLIENTS,
}


def strategies(own: Evaluation) -> dict[str, Callable[[], Any]]:
    """Return Flower's own strategies, and Bristle's rules as strategies; `own` are the server's samples."""
    tested: dict[str, Any] = {"evaluation": own, "head": ("weight", "bias")}
    return {
        "bristle": lambda: RuleStrategy(rule=Bristle(), **tested, **EVERYBODY),
        "bristle-krum": lambda: RuleStrategy(rule=rules.Krum(f=F), **EVERYBODY),
        "bristle-mda": lambda: RuleStrategy(rule=rules.MDA(f=F), **EVERYBODY),
        "bristle-smea": lambda: RuleStrategy(rule=rules.SMEA(f=F), **EVERYBODY),
        "bristle-caf": lambda: RuleStrategy(rule=rules.CAF(f=F), **EVERYBODY),
        "flower-fedavg": lambda: FedAvg(**EVERYBODY),
        "flower-krum": lambda: Krum(num_malicious_nodes=F, **EVERYBODY),
        "flower-median": lambda: FedMedian(**EVERYBODY),
        "flower-trimmed-mean": lambda: FedTrimmedAvg(beta=F / task.CLIENTS, **EVERYBODY),
    }


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of one strategy and print the accuracy after each."""
    settings = context.run_config
    name, rounds, seed = str(settings["strategy"]), int(settings["rounds"]), int(settings["seed"])
    _, own, test = task.samples(seed)
    known = strategies(own)
    if name not in known:
        raise ValueError(f"strategy={name!r}: there are {', '.join(known)}")

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        found = task.accuracy({key: array.numpy() for key, array in arrays.items()}, test)
        return MetricRecord({"accuracy": found})

    strategy = known[name]()
    initial = ArrayRecord({key: Array(value) for key, value in task.start().items()})
    result = strategy.start(grid, initial, num_rounds=rounds, evaluate_fn=evaluate)
    reached = [record["accuracy"] for _, record in sorted(result.evaluate_metrics_serverapp.items())]
    for number, accuracy in enumerate(reached):
        print(f"{name}, round {number}: {accuracy:.1%}")
    if settings["out"]:
        row = {"strategy": name, "seed": seed, "accuracy": reached}
        with Path(str(settings["out"])).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
