"""The task of `field_task.py` on Flower 1.42: a server and clients over gRPC on loopback, FedAvg.

    .field/flower/bin/python benchmarks/field_flower.py task.npz --rounds 3

Runs in Flower's own environment (`make field`) and prints a row of JSON for every round. Flower has no peers: a server
averages. Every client is a process. `start_server` and `start_client` are used, which Flower calls deprecated; they
keep a stream open to every client, where what replaces them polls.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import time
from pathlib import Path

import numpy as np

from field_task import Array, Task, Trainer, loopback_bytes, say

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

from flwr.client import NumPyClient, start_client
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig, start_server
from flwr.server.strategy import FedAvg


class HeadClient(NumPyClient):  # type: ignore[misc]
    """One mini-batch a round."""

    def __init__(self, task: Task, peer: int) -> None:
        self.trainer = Trainer(task, peer)

    def fit(self, parameters: list[Array], config: dict[str, object]) -> tuple[list[Array], int, dict[str, float]]:
        """Train one mini-batch."""
        return [self.trainer.step(parameters[0])], self.trainer.samples, {}


def client(address: str, path: Path, peer: int) -> None:
    """Be one client until the server is done."""
    start_client(server_address=address, client=HeadClient(Task.load(path), peer).to_client())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path, help="what `benchmarks/field.py` wrote")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    task = Task.load(options.task)
    clients = len(task.labels)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=client, args=(address, options.task, peer)) for peer in range(clients)]
    for process in processes:
        process.start()

    def evaluated(round_: int, parameters: list[Array], config: object) -> tuple[float, dict[str, float]]:
        accuracy = task.accuracy(parameters[0])
        say(round=round_, at=time.monotonic(), accuracy=accuracy, bytes=loopback_bytes())
        return 0.0, {"accuracy": accuracy}

    start_server(
        server_address=address,
        config=ServerConfig(num_rounds=options.rounds),
        strategy=FedAvg(
            fraction_evaluate=0.0,
            min_fit_clients=clients,
            min_available_clients=clients,
            evaluate_fn=evaluated,
            initial_parameters=ndarrays_to_parameters([np.zeros(task.shape, np.float32)]),
        ),
    )
    for process in processes:
        process.join(timeout=30)
        if process.is_alive():
            process.terminate()


if __name__ == "__main__":
    main()
