"""ByzFL's training loop and ByzPy's peers, given the same network, samples and attack as ours, by their public names.

ByzFL trains one model through a server: gradients of all clients are aggregated once a round. ByzPy's runner has peers
that send each other models. Its `DecentralizedPeerToPeer.run_round_async` always takes the median, throws its result
away, and sleeps 0.1 s for messages to arrive and 0.1 s for each attacker; so its nodes are also called one after
another without the runner, by the two methods that a node has for a round, with which they do learn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from peers import load

Network = Callable[[], torch.nn.Module]
Samples = list[tuple[torch.Tensor, torch.Tensor]]
BATCH = 5
EPSILON = 0.1  # of the attack: the mean of the honest, turned and shortened


class ByzFL:
    """The loop of `byzfl.benchmark.train` (DSGD) without its evaluations and files: clients, attack, server."""

    def __init__(self, network: Network, samples: Samples, attackers: int, rule: str, *, mixing: bool = False) -> None:
        load()
        models: Any = import_module("byzfl.fed_framework.models")
        framework = import_module("byzfl.fed_framework")
        # Models are looked up there by their names.
        models.BenchmarkNetwork = network
        common = {
            "model_name": "BenchmarkNetwork", "device": "cpu", "optimizer_name": "Adam", "learning_rate": 1e-3,
            "weight_decay": 5e-3, "milestones": [], "learning_rate_decay": 1.0,
        }  # fmt: skip
        loaders = [DataLoader(TensorDataset(*held), batch_size=BATCH, shuffle=True) for held in samples]
        self.clients = [
            framework.Client({
                **common, "loss_name": "CrossEntropyLoss", "LabelFlipping": False, "training_dataloader": loader,
                "momentum": 0.0, "nb_labels": 10, "store_per_client_metrics": False,
            })
            for loader in loaders
        ]  # fmt: skip
        self.server = framework.Server({
            **common, "test_loader": loaders[0], "validation_loader": None,
            "aggregator_info": {"name": rule, "parameters": {"f": attackers}},
            "pre_agg_list": [{"name": "NNM", "parameters": {"f": attackers}}] if mixing else [],
        })  # fmt: skip
        name = "InnerProductManipulation" if attackers else "NoAttack"
        self.attack = framework.ByzantineClient({"name": name, "f": attackers, "parameters": {"tau": EPSILON}})
        self._send()

    def advance(self, rounds: int) -> None:
        """Do so many rounds."""
        for _ in range(rounds):
            for client in self.clients:
                client.compute_gradients()
            honest = [client.get_flat_gradients_with_momentum() for client in self.clients]
            self.server.update_model_with_gradients(honest + self.attack.apply_attack(honest))
            self._send()

    def accuracy(self, test: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the accuracy of the server's model."""
        return _accuracy([self.server.model], test, labels)

    def close(self) -> None:
        """Nothing is left running."""

    def _send(self) -> None:
        state = self.server.get_dict_parameters()
        for client in self.clients:
            client.set_model_state(state)


class _Byzpy:
    """Peers of ByzPy and what they have in common."""

    def __init__(self, network: Network, samples: Samples, attackers: int, aggregator: Any) -> None:
        load()
        mixin = import_module("byzpy.engine.node.mixin")
        empire = import_module("byzpy.attacks.empire").EmpireAttack

        class Honest(mixin.P2PHonestMixin):  # type: ignore[name-defined, misc]
            def __init__(self, number: int) -> None:
                torch.manual_seed(0)
                self.model, self.device, self.criterion = network(), torch.device("cpu"), torch.nn.CrossEntropyLoss()
                self.p2p_agg, self.p2p_pre = aggregator, None
                self.features, self.labels = samples[number]
                self.rng = torch.Generator().manual_seed(number)

            def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
                chosen = torch.randperm(len(self.labels), generator=self.rng)[:BATCH]
                return self.features[chosen], self.labels[chosen]

        class Byzantine(mixin.P2PByzantineMixin):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                self.device, self.attack = torch.device("cpu"), empire(scale=-EPSILON)

        self.honest_class, self.byzantine_class = Honest, Byzantine
        self.peers, self.attackers = len(samples), attackers


class ByzPyNodes(_Byzpy):
    """Nodes of ByzPy in a plain loop: half a step each, then each aggregates what all have sent."""

    def __init__(self, network: Network, samples: Samples, attackers: int, aggregator: Any) -> None:
        super().__init__(network, samples, attackers, aggregator)
        self.honest = [self.honest_class(number) for number in range(self.peers)]
        self.byzantine = [self.byzantine_class() for _ in range(attackers)]

    def advance(self, rounds: int) -> None:
        """Do so many rounds."""
        for _ in range(rounds):
            sent = [node.p2p_half_step(0.05) for node in self.honest]
            bad = [node.p2p_broadcast_vector(neighbor_vectors=sent, like=sent[0]) for node in self.byzantine]
            for number, node in enumerate(self.honest):
                node.p2p_aggregate_and_set(sent[number], sent[:number] + sent[number + 1 :] + bad)

    def accuracy(self, test: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the mean accuracy of the honest peers."""
        return _accuracy([node.model for node in self.honest], test, labels)

    def close(self) -> None:
        """Nothing is left running."""


class ByzPyRunner(_Byzpy):
    """ByzPy's `PeerToPeer` runner, all nodes in this process: the quickest of its ways to run them."""

    def __init__(self, network: Network, samples: Samples, attackers: int) -> None:
        super().__init__(network, samples, attackers, aggregator=None)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        actors, thread = import_module("byzpy.engine.node.actors"), import_module("byzpy.engine.actor.backends.thread")
        context, train = import_module("byzpy.engine.node.context"), import_module("byzpy.engine.peer_to_peer.train")
        topology = import_module("byzpy.engine.peer_to_peer.topology")

        def backend() -> Any:
            return thread.ThreadActorBackend()

        spawn, spawn_bad = actors.HonestNodeActor.spawn, actors.ByzantineNodeActor.spawn
        self.honest = [await spawn(self.honest_class, backend=backend(), args=(n,)) for n in range(self.peers)]
        self.bad = [await spawn_bad(self.byzantine_class, backend=backend()) for _ in range(self.attackers)]
        everybody = topology.Topology.complete(self.peers + self.attackers)
        self.runner = train.PeerToPeer(
            self.honest, self.bad, everybody, lr=0.05, context_factory=lambda name, place: context.InProcessContext()
        )
        await self.runner.bootstrap()

    def advance(self, rounds: int) -> None:
        """Do so many rounds."""
        for _ in range(rounds):
            self.loop.run_until_complete(self.runner.round())

    def accuracy(self, test: torch.Tensor, labels: torch.Tensor) -> float:
        """Return the mean accuracy of the honest peers, put into networks of their shape."""

        async def found() -> list[Any]:
            return [await actor.get_param_vector() for actor in self.honest]

        nodes = [self.honest_class(number) for number in range(self.peers)]
        for node, vector in zip(nodes, self.loop.run_until_complete(found()), strict=True):
            node.set_param_vector(vector)
        return _accuracy([node.model for node in nodes], test, labels)

    def close(self) -> None:
        """Stop its threads."""
        self.loop.run_until_complete(self.runner.shutdown())
        for actor in (*self.honest, *self.bad):
            self.loop.run_until_complete(actor._ref._backend.close())
        self.loop.close()


def _accuracy(networks: list[torch.nn.Module], test: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        right = [float((network(test).argmax(dim=1) == labels).float().mean()) for network in networks]
    return sum(right) / len(right)
