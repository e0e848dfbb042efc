"""The aggregator in p2pfl's own nodes, learners and gossip; `make integrations` runs these where p2pfl is."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest

pytest.importorskip("p2pfl.settings", reason="p2pfl is not here: run `make integrations`")

from p2pfl.settings import Settings

# Before anything else is imported: p2pfl starts Ray on import unless told not to.
Settings.general.DISABLE_RAY = True
Settings.general.LOG_LEVEL = "ERROR"
Settings.general.LOG_DIR = tempfile.mkdtemp()
# Nodes that train in no time miss each other's first models: let them be sent until everybody has all.
Settings.training.AGGREGATION_TIMEOUT = 30
Settings.gossip.MODELS_PER_ROUND = 4
Settings.gossip.EXIT_ON_X_EQUAL_ROUNDS = 100

from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol  # noqa: E402
from p2pfl.learning.aggregators.aggregator import NoModelsToAggregateError  # noqa: E402
from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset  # noqa: E402
from p2pfl.learning.frameworks.learner import Learner  # noqa: E402
from p2pfl.learning.frameworks.p2pfl_model import P2PFLModel  # noqa: E402
from p2pfl.management.logger import logger  # noqa: E402
from p2pfl.node import Node  # noqa: E402
from p2pfl.utils.utils import full_connection, wait_convergence, wait_to_finish  # noqa: E402

from bristle import Bristle, Evaluation, rules  # noqa: E402
from bristle.integrations.p2pfl import RuleAggregator  # noqa: E402

TARGET = [np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1.0, -1.0, 2.0], np.float32)]


class Model(P2PFLModel):  # type: ignore[misc]
    """Arrays, as p2pfl wants its models."""

    def get_parameters(self) -> list[Any]:
        return list(self.model)

    def set_parameters(self, params: list[Any] | bytes) -> None:
        if isinstance(params, bytes):
            params, self.additional_info = self.decode_parameters(params)
        self.model = [np.asarray(array, np.float32) for array in params]

    def get_framework(self) -> str:
        return "numpy"


class Halfway(Learner):  # type: ignore[misc]
    """Goes half of the way to the target each round; a liar goes to its opposite."""

    def __init__(self, liar: bool) -> None:
        super().__init__()
        self.liar = liar

    def fit(self) -> P2PFLModel:
        model = self.get_model()
        model.set_parameters(
            [
                -20 * there if self.liar else (mine + there) / 2
                for mine, there in zip(model.get_parameters(), TARGET, strict=True)
            ]
        )
        model.set_contribution([self.addr], 10)
        return model

    def interrupt_fit(self) -> None: ...

    def evaluate(self) -> dict[str, float]:
        return {}

    def get_framework(self) -> str:
        return "numpy"


def model(arrays: list[Any], *contributors: str) -> Model:
    return Model(arrays, num_samples=10, contributors=list(contributors))


def aggregator(rule: rules.Rule, **options: Any) -> RuleAggregator:
    made = RuleAggregator(rule, **options)
    made.set_addr("me")
    return made


def around(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [(array + rng.standard_normal(array.shape)).astype(np.float32) for array in TARGET]


def flat(arrays: Any) -> Any:
    return np.concatenate([np.ravel(array) for array in arrays])


@pytest.mark.parametrize(
    "rule", [rules.Median(), rules.Krum(f=1), rules.MDA(f=1), rules.NearestNeighbourAveraging(f=1)]
)
def test_own_model_is_the_own_head(rule: rules.Rule) -> None:
    models = [model(around(i), name) for i, name in enumerate(("a", "b", "me", "c", "d"))]
    ours = aggregator(rule).aggregate(models)
    heads = np.stack([flat(one.get_parameters()) for one in models])[[2, 0, 1, 3, 4], None, :]
    np.testing.assert_allclose(flat(ours.get_parameters()), rule(heads[0], heads[1:]).head[0], rtol=1e-5)
    assert [array.shape for array in ours.get_parameters()] == [(3, 4), (3,)]
    assert sorted(ours.get_contributors()) == ["a", "b", "c", "d", "me"]


def test_models_that_do_not_fit_are_left_out_with_a_reason() -> None:
    odd = [np.full((3, 4), np.nan, np.float32), TARGET[1]]
    models = [
        model(around(0), "me"), model(around(1), "a"), model(odd, "b"), model(around(2)[:1], "c"),
        model([TARGET[0], np.zeros(5, np.float32)], "d"),
    ]  # fmt: skip
    made = aggregator(rules.FedAvg())
    mean = (flat(around(0)) + flat(around(1))) / 2
    np.testing.assert_allclose(flat(made.aggregate(models).get_parameters()), mean, rtol=1e-5)
    assert made.fates["a"].startswith("kept: 50.0%")
    assert made.fates["b"] == "refused: it holds values that are not finite"
    assert made.fates["c"] == made.fates["d"] == "refused: its shape is not that of the own head"


def test_a_rule_that_tests() -> None:
    labels = np.arange(60) % 3
    features = (np.eye(4)[labels] + 0.2 * np.random.default_rng(0).standard_normal((60, 4))).astype(np.float32)
    good, bad = [np.eye(3, 4, dtype=np.float32), np.zeros(3, np.float32)], [-np.eye(3, 4, dtype=np.float32), TARGET[1]]
    made = aggregator(Bristle(), evaluation=Evaluation(features, labels), head=(0, 1))
    nothing = [np.zeros_like(array) for array in good]
    made.aggregate([model(nothing, "me"), model(good, "a"), model(bad, "b"), model(bad, "c")])
    assert made.fates["a"].startswith("kept")
    assert made.fates["b"].startswith("tested and rejected")


def test_nothing_to_aggregate() -> None:
    made = aggregator(rules.Median())
    with pytest.raises(NoModelsToAggregateError, match="there are no models"):
        made.aggregate([])
    with pytest.raises(NoModelsToAggregateError, match="its own model is not among those"):
        made.aggregate([model(around(0), "a")])
    with pytest.raises(ValueError, match="Bristle tests models on samples: pass evaluation="):
        RuleAggregator(Bristle())


def test_nodes_of_theirs_learn_beside_a_liar() -> None:
    """Four nodes and their gossip: the mean of all would be pulled to -4 times the target."""
    logger.set_level("ERROR")
    data = P2PFLDataset(None, batch_size=5, dataset_name="nothing")
    nodes = [
        Node(
            Model([np.zeros_like(array) for array in TARGET]),
            data,
            learner=Halfway(liar=place == 3),
            aggregator=RuleAggregator(rules.TrimmedMean(f=1)),
            protocol=MemoryCommunicationProtocol(),
        )
        for place in range(4)
    ]
    try:
        for node in nodes:
            node.start()
        for place, node in enumerate(nodes):
            full_connection(node, nodes[:place])
        wait_convergence(nodes, len(nodes) - 1, wait=60, only_direct=True)
        nodes[0].set_start_learning(rounds=2, epochs=1, trainset_size=len(nodes))
        wait_to_finish(nodes, timeout=300)
        for node in nodes[:3]:
            reached = flat(node.learner.get_model().get_parameters())
            assert np.linalg.norm(reached - flat(TARGET)) < 0.5 * np.linalg.norm(flat(TARGET))
    finally:
        for node in nodes:
            node.stop()
