"""A client: it trains the head that it gets on its own samples; the last three are liars."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from bristle import Evaluation

from . import task

app = ClientApp()


@app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """Train for one round."""
    client, seed = int(context.node_config["partition-id"]), int(context.run_config["seed"])
    number = int(message.content["config"]["server-round"])
    mine = task.samples(seed)[0][client]
    if client >= task.CLIENTS - task.LIARS:
        mine = Evaluation(mine.features, task.flipped(mine.labels))
    head = {name: array.numpy() for name, array in message.content["arrays"].items()}
    head = task.train(head, mine, np.random.default_rng([seed, client, number]))
    arrays = ArrayRecord({name: Array(value) for name, value in head.items()})
    metrics = MetricRecord({"num-examples": len(mine.labels)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
