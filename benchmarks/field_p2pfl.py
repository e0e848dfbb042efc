"""The task of `field_task.py` on p2pfl 0.4.4: real gRPC on loopback, FedAvg, everybody connected to everybody.

    .field/p2pfl/bin/python benchmarks/field_p2pfl.py task.npz --rounds 3

Runs in p2pfl's own environment (`make field`) and prints a row of JSON for every round. Its nodes are threads of this
process. Its settings are left as they are, except that Ray is off: it would only carry training to other processes.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from p2pfl.settings import Settings

from field_task import Array, Task, Trainer, loopback_bytes, say

# Before anything else is imported: p2pfl starts Ray on import unless told not to.
Settings.general.DISABLE_RAY = True
Settings.general.LOG_LEVEL = "ERROR"

from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol  # noqa: E402
from p2pfl.learning.aggregators.fedavg import FedAvg  # noqa: E402
from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset  # noqa: E402
from p2pfl.learning.frameworks.learner import Learner  # noqa: E402
from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel  # noqa: E402
from p2pfl.management.logger import logger  # noqa: E402
from p2pfl.node import Node  # noqa: E402
from p2pfl.utils.utils import full_connection, wait_convergence  # noqa: E402

STALLED = 20.0
"""Seconds without a test after which nodes will not go on; then the rounds that all have done are printed."""


class HeadModel(P2PFLModel):  # type: ignore[misc]
    """A head, as p2pfl wants its models."""

    def get_parameters(self) -> list[Array]:
        """Return the parameters, a list with one array."""
        return [self.model]

    def set_parameters(self, params: list[Array] | bytes) -> None:
        """Take parameters as arrays or as they were sent."""
        if isinstance(params, bytes):
            params, self.additional_info = self.decode_parameters(params)
        self.model = np.asarray(params[0], np.float32)

    def get_framework(self) -> str:
        """Return what trains it."""
        return "numpy"


class HeadLearner(Learner):  # type: ignore[misc]
    """One mini-batch a round, and an evaluation whenever p2pfl asks for one."""

    def __init__(self, task: Task, peer: int) -> None:
        super().__init__()
        self.task, self.trainer = task, Trainer(task, peer)
        self.seen: list[tuple[float, float, int]] = []

    def fit(self) -> P2PFLModel:
        """Train one mini-batch."""
        model = self.get_model()
        model.set_parameters([self.trainer.step(model.get_parameters()[0])])
        model.set_contribution([self.addr], self.trainer.samples)
        return model

    def interrupt_fit(self) -> None:
        """A mini-batch is over before it could be interrupted."""

    def evaluate(self) -> dict[str, float]:
        """Test the head; p2pfl asks at the start of a round and after the last."""
        accuracy = self.task.accuracy(self.get_model().get_parameters()[0])
        self.seen.append((time.monotonic(), accuracy, loopback_bytes()))
        return {"accuracy": accuracy}

    def get_framework(self) -> str:
        """Return what trains it."""
        return "numpy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path, help="what `benchmarks/field.py` wrote")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="p2pfl's transport within a process instead of gRPC")
    options = parser.parse_args()
    task = Task.load(options.task)
    logger.set_level("ERROR")
    learners = [HeadLearner(task, peer) for peer in range(len(task.labels))]
    nodes = [node(learner, task, memory=options.memory) for learner in learners]
    for each in nodes:
        each.start()
    for place, each in enumerate(nodes):
        full_connection(each, nodes[:place])
    wait_convergence(nodes, len(nodes) - 1, wait=60, only_direct=True)
    nodes[0].set_start_learning(rounds=options.rounds, epochs=1, trainset_size=len(nodes))
    wait_to_finish(learners, options.rounds)
    for round_, seen in enumerate(zip(*(learner.seen for learner in learners), strict=False)):
        at = max(moment for moment, _, _ in seen)
        say(round=round_, at=at, accuracy=fmean(accuracy for _, accuracy, _ in seen), bytes=seen[0][2])
    for each in nodes:
        each.stop()
    # Whatever threads it has left shall not hold this up.
    os._exit(0)


def wait_to_finish(learners: list[HeadLearner], rounds: int) -> None:
    """Wait until all have been tested after the last round, or nobody has gone on for a while."""
    done, since = 0, time.monotonic()
    while min(len(learner.seen) for learner in learners) <= rounds and time.monotonic() - since < STALLED:
        if (now := sum(len(learner.seen) for learner in learners)) > done:
            done, since = now, time.monotonic()
        time.sleep(0.05)


def node(learner: HeadLearner, task: Task, *, memory: bool) -> Any:
    """Return a node that has a port of its own; the data's container is p2pfl's, and nothing is looked up in it."""
    data = P2PFLDataset(None, batch_size=5, dataset_name="digits")
    model = HeadModel(np.zeros(task.shape, np.float32))
    where: dict[str, Any] = {"protocol": MemoryCommunicationProtocol()} if memory else {"addr": "127.0.0.1"}
    return Node(model, data, learner=learner, aggregator=FedAvg(), **where)


if __name__ == "__main__":
    main()
