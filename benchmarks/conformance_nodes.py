"""How nodes of p2pfl and Murmura take hostile models and messages, by their own code.

`make peers` installs p2pfl beside the project, without its dependencies. Libraries that the two import and that play no
part here (Ray, OpenDP, datasets, Lightning, torchvision) are stood in for by empty modules.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

import conformance_cases as cases
import peers

torch.set_warn_always(True)  # once for each process would tell of the first rule alone

VICTIM = "victim"


def p2pfl(folder: Path) -> dict[str, str]:
    """p2pfl: `PartialModelCommand`, which is what a node does with a model that came in, then its aggregator."""
    _stand_ins("opendp", "opendp.prelude", "opendp.mod", "datasets", "datasets.arrow_dataset", "pandas", "torchvision")
    sys.modules["ray"] = None  # type: ignore[assignment]  # it would start a cluster when imported
    lightning = types.ModuleType("lightning")
    vars(lightning)["LightningModule"] = torch.nn.Module
    sys.modules["lightning"] = lightning
    sys.path.append(str(peers.FOLDER))
    from p2pfl.communication.commands.weights.partial_model_command import PartialModelCommand  # noqa: PLC0415
    from p2pfl.experiment import Experiment  # noqa: PLC0415
    from p2pfl.learning.aggregators.fedavg import FedAvg  # noqa: PLC0415
    from p2pfl.learning.aggregators.fedmedian import FedMedian  # noqa: PLC0415
    from p2pfl.learning.aggregators.krum import Krum  # noqa: PLC0415
    from p2pfl.learning.frameworks.pytorch.lightning_model import LightningModel  # noqa: PLC0415
    from p2pfl.management.logger import logger  # noqa: PLC0415
    from p2pfl.node_state import NodeState  # noqa: PLC0415

    logger.register_node(VICTIM)
    names = [f"node-{number}" for number in range(cases.HONEST + cases.HOSTILE)]

    class Receiver:
        """A node in a round, with all of its own code that deals with a model that arrives."""

        def __init__(self, aggregator: Any) -> None:
            self.aggregator, self.stopped = aggregator, False
            aggregator.set_addr(VICTIM)
            aggregator.set_nodes_to_aggregate(names)
            layer = torch.nn.Linear(cases.FEATURES, cases.CLASSES, bias=False)
            self.model = LightningModel(layer, num_samples=1, contributors=[VICTIM])
            state = NodeState(VICTIM)
            state.train_set = names
            vars(state)["experiment"] = Experiment("conformance", 1)
            learner = types.SimpleNamespace(get_model=lambda: self.model)
            self.command = PartialModelCommand(state, self._stop, aggregator, MagicMock(), learner)

        def _stop(self) -> None:
            self.stopped = True

        def hear(self, data: bytes, contributor: str) -> None:
            # From one and the same source, whatever the message says.
            self.command.execute("stranger", 0, weights=data, contributors=[contributor], num_samples=10)

        def added(self) -> list[str]:
            added: list[str] = self.aggregator.get_aggregated_models()
            return added

    def packed(*params: Any) -> bytes:
        inner = pickle.dumps({"params": list(params), "additional_info": {"applied_techniques": []}})
        return pickle.dumps({"byte_compressor": None, "bytes": inner})

    def numbers(aggregator: Any, case: str) -> str:
        receiver = Receiver(aggregator)
        hostile = cases.hostile_head(case)

        def work() -> Any:
            for name, head in zip(names, [*cases.honest_heads(), *[hostile] * cases.HOSTILE], strict=True):
                receiver.hear(packed() if case == "empty" and head is hostile else packed(head), name)
            return receiver.aggregator.aggregate(receiver.aggregator._Aggregator__models).get_parameters()[0]

        verdict = cases.judged(work)
        if receiver.stopped:
            return "the node stops itself"
        if case == "empty" and verdict == "holds" and set(names[cases.HONEST :]) <= set(receiver.added()):
            return "taken: the receiver's own model counts once more for each"
        return verdict

    aggregators = {"FedAvg": FedAvg, "FedMedian": FedMedian, "Krum": Krum}
    seen = {
        case: cases.summary({name: numbers(make(), case) for name, make in aggregators.items()})
        for case in cases.NUMBERS
    }
    flag = folder / "executed"
    receiver = Receiver(FedMedian())
    receiver.hear(cases.bomb(flag), names[1])
    stopped = "; the node then stops itself" if receiver.stopped else ""
    seen["pickle bomb"] = "executes the pickle" + stopped if flag.exists() else "not executed" + stopped
    receiver = Receiver(FedMedian())
    for _ in range(2):
        receiver.hear(packed(cases.honest_heads()[1]), names[1])
    seen["replay"] = f"taken {receiver.added().count(names[1])} time in the round, the second is dropped"
    seen["forged sender"] = "believed: taken as its contributor's" if names[1] in receiver.added() else "refused"
    return seen


def murmura(folder: Path, path: Path) -> dict[str, str]:
    """Murmura: a node's own `_collect_neighbor_states` over ZeroMQ on loopback, then its aggregators."""
    _stand_ins("torchvision", "torchvision.transforms", "torchvision.datasets")
    sys.path.append(str(path))
    import zmq  # noqa: PLC0415
    from murmura.aggregation import (  # noqa: PLC0415
        BALANCEAggregator,
        FedAvgAggregator,
        KrumAggregator,
        SketchguardAggregator,
    )
    from murmura.distributed import messaging  # noqa: PLC0415
    from murmura.distributed.node_process import NodeProcess  # noqa: PLC0415

    context = zmq.Context()

    def collect(frames: list[list[bytes]], expected: int) -> Any:
        """Return the states that a node takes from what one peer pushes."""
        process = NodeProcess(0, None, None, 0.0)
        process._pull = context.socket(zmq.PULL)
        port = process._pull.bind_to_random_port("tcp://127.0.0.1")
        push = context.socket(zmq.PUSH)
        push.connect(f"tcp://127.0.0.1:{port}")
        pusher = threading.Thread(target=lambda: [push.send_multipart(each) for each in frames])
        pusher.start()
        try:
            return process._collect_neighbor_states(list(range(1, expected + 1)), 0, time.monotonic() + 5)
        finally:
            pusher.join()
            push.close(linger=0)
            process._pull.close(linger=0)

    def framed(sender: int, payload: bytes) -> list[bytes]:
        frames: list[bytes] = messaging.encode(messaging.MsgType.MODEL_STATE, sender, payload)
        return frames

    def states(case: str) -> tuple[dict[str, torch.Tensor], dict[int, dict[str, torch.Tensor]]]:
        heads = [{"head": torch.from_numpy(head)} for head in cases.honest_heads()]
        hostile = {} if case == "empty" else {"head": torch.from_numpy(cases.hostile_head(case))}
        sent = [*heads[1:], *[hostile] * cases.HOSTILE]
        frames = [framed(number, messaging.pack_state(state)) for number, state in enumerate(sent, start=1)]
        return heads[0], collect(frames, len(sent))

    aggregators: dict[str, Callable[[], Any]] = {
        "FedAvg": FedAvgAggregator,
        "Krum": lambda: KrumAggregator(num_compromised=cases.F),
        "BALANCE": BALANCEAggregator,
        "Sketchguard": lambda: SketchguardAggregator(model_dim=cases.CLASSES * cases.FEATURES),
    }

    def numbers(make: Callable[[], Any], case: str) -> str:
        own, received = states(case)
        return cases.judged(lambda: make().aggregate(0, own, received, 0)["head"])

    seen = {
        case: cases.summary({name: numbers(make, case) for name, make in aggregators.items()}) for case in cases.NUMBERS
    }
    own, received = states("empty")
    mean = np.mean([state["head"].numpy() for state in received.values() if state], axis=0)
    shrunk = BALANCEAggregator(alpha=0.0).aggregate(0, own, received, 0)["head"].numpy()
    share = np.vdot(mean, shrunk) / np.vdot(mean, mean)
    seen["empty"] += f"; BALANCE's mean of the neighbours comes out as {share:.2f} of what they sent"
    flag = folder / "executed"
    try:
        collect([framed(1, cases.bomb(flag))], 1)
        after = ""
    except Exception as error:
        after = f", then raises {type(error).__name__}"
    seen["pickle bomb"] = ("executes the pickle" if flag.exists() else "not executed") + after
    old = framed(1, messaging.pack_state({"head": torch.zeros(2)}))
    taken = [1 in collect([old], 1) for _ in range(2)]
    seen["replay"] = "taken again in a later round: nothing tells rounds apart" if all(taken) else "refused"
    seen["forged sender"] = "believed: a number in the header says who sent it" if taken[0] else "refused"
    return seen


def _stand_ins(*names: str) -> None:
    for name in names:
        sys.modules[name] = MagicMock()
