"""The strategy with Flower's own messages, records and grid; `make integrations` runs these where Flower is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not here: run `make integrations`")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from bristle import Bristle, Evaluation, rules
from bristle.integrations.flower import RuleStrategy

SHAPES = {"fc.weight": (3, 4), "fc.bias": (3,)}


@pytest.fixture(autouse=True)
def on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages ask whose they are: in a run, its engine says so."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """As much of Flower's grid as a strategy asks for: nodes, and clients that answer at once."""

    def __init__(self, clients: dict[int, Any]) -> None:
        self.clients = clients

    def get_node_ids(self) -> list[int]:
        return list(self.clients)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        return [reply(message, self.clients[message.metadata.dst_node_id]) for message in messages]


def reply(message: Message, answer: Any) -> Message:
    """A client's reply: what it makes of the message, or an error."""
    if callable(answer):
        answer = answer(message)
    return Message(answer, reply_to=message)


def record(arrays: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def content(arrays: Any, examples: Any = 10, **metrics: Any) -> RecordDict:
    model = arrays if isinstance(arrays, ArrayRecord) else record(arrays)
    return RecordDict({"arrays": model, "metrics": MetricRecord({"num-examples": examples, **metrics})})


def model(seed: int, shift: float = 0.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) + shift).astype(np.float32) for name, shape in SHAPES.items()}


def one_round(strategy: RuleStrategy, answers: dict[int, Any], start: dict[str, Any] | None = None) -> Any:
    grid = Grid(answers)
    initial = record(model(0) if start is None else start)
    messages = strategy.configure_train(1, initial, ConfigRecord(), grid)
    return strategy.aggregate_train(1, grid.send_and_receive(messages))


def flat(arrays: Any) -> Any:
    return np.concatenate([arrays[name].numpy().ravel() for name in SHAPES])


def vectors(models: list[dict[str, Any]]) -> Any:
    return np.stack([np.concatenate([one[name].ravel() for name in SHAPES]) for one in models])


@pytest.mark.parametrize("rule", [rules.Median(), rules.Krum(f=2), rules.MDA(f=2), rules.CAF(f=2), rules.FedAvg()])
def test_clients_alone_are_aggregated_by_rules_that_count_all_heads_alike(rule: rules.Rule) -> None:
    models = [model(i + 1) for i in range(7)]
    strategy = RuleStrategy(rule=rule)
    arrays, metrics = one_round(strategy, {i + 1: content(one) for i, one in enumerate(models)})
    heads = vectors(models)[:, None, :]
    np.testing.assert_allclose(flat(arrays), rule(heads[0], heads[1:]).head[0], rtol=1e-6)
    assert {name: array.numpy().shape for name, array in arrays.items()} == SHAPES
    assert metrics["clients-used"] + metrics["clients-left-out"] == 7
    shares = [fate.share for fate in strategy.fates[1].values()]
    assert sum(shares) == pytest.approx(1, abs=1e-5)


def test_every_client_is_told_why() -> None:
    """Three clients flip their models, one sends NaN, one another shape, one nothing: the others are averaged."""
    answers: dict[int, Any] = {i: content(model(i)) for i in range(1, 8)}
    answers[8] = content(model(8, shift=100.0))
    answers[9] = content({**model(9), "fc.bias": np.full(3, np.nan, np.float32)})
    answers[10] = content({**model(10), "fc.bias": np.zeros(4, np.float32)})
    answers[11] = content({"fc.weight": np.zeros((3, 4), np.float32)})
    answers[12] = content({name: value.astype(np.float64) for name, value in model(12).items()})
    answers[13] = Error(code=0, reason="out of memory")
    answers[14] = RecordDict({"metrics": MetricRecord({"num-examples": 3})})
    strategy = RuleStrategy(rule=rules.MultiKrum(f=1))
    arrays, metrics = one_round(strategy, answers)
    why = {node: fate.why for node, fate in strategy.fates[1].items()}
    assert why[8] == "not chosen: others lie closer together"
    assert why[9] == "refused: it holds values that are not finite"
    assert why[10] == why[11] == why[12] == why[14] == "refused: its shape is not that of the own head"
    assert why[13] == "no model: out of memory"
    assert all(why[node].startswith("kept: 14.3% of the model") for node in range(1, 8))
    assert (metrics["clients-used"], metrics["clients-left-out"]) == (7, 7)
    np.testing.assert_allclose(flat(arrays), vectors([model(i) for i in range(1, 8)]).mean(axis=0), rtol=1e-5)


def separable(count: int, seed: int) -> Evaluation:
    """Samples that a head can tell apart, by an identity in the first three features."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    features = 0.3 * rng.standard_normal((count, 4)) + np.eye(4)[labels]
    return Evaluation(features.astype(np.float32), labels)


def test_a_rule_that_tests_uses_the_servers_samples_and_the_bias() -> None:
    good = {"fc.weight": np.eye(3, 4, dtype=np.float32), "fc.bias": np.zeros(3, np.float32)}
    bad = {"fc.weight": -np.eye(3, 4, dtype=np.float32), "fc.bias": np.ones(3, np.float32)}
    nothing = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    strategy = RuleStrategy(rule=Bristle(), evaluation=separable(60, 0), head=("fc.weight", "fc.bias"))
    answers = {**{i: content(good) for i in (1, 2)}, **{i: content(bad) for i in (3, 4, 5)}}
    arrays, _ = one_round(strategy, answers, start=nothing)
    fates = strategy.fates[1]
    assert all(fates[i].used for i in (1, 2))
    assert not any(fates[i].used for i in (3, 4, 5))
    assert "tested and rejected" in fates[3].why
    weights, bias = arrays["fc.weight"].numpy(), arrays["fc.bias"].numpy()
    samples = separable(300, 1)
    assert ((samples.features @ weights.T + bias).argmax(axis=1) == samples.labels).mean() > 0.9


def test_a_server_that_trains_takes_part() -> None:
    def train(number: int, arrays: ArrayRecord) -> ArrayRecord:
        return record({name: array.numpy() + 1 for name, array in arrays.items()})

    start = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    along = {name: np.full(shape, 2.0, np.float32) for name, shape in SHAPES.items()}
    against = {name: np.full(shape, -2.0, np.float32) for name, shape in SHAPES.items()}
    strategy = RuleStrategy(rule=rules.FLTrust(), train=train)
    arrays, _ = one_round(strategy, {1: content(along), 2: content(against)}, start=start)
    np.testing.assert_allclose(flat(arrays), 1.0, rtol=1e-6)  # Scaled to the server's own update.
    assert strategy.fates[1][2].why == "rejected: it points away from the own update"
    average = RuleStrategy(rule=rules.FedAvg(), train=train)
    arrays, _ = one_round(average, {1: content(along), 2: content(against)}, start=start)
    np.testing.assert_allclose(flat(arrays), 1 / 3, rtol=1e-6)


def test_too_few_models_leave_the_global_one_as_it_is() -> None:
    strategy = RuleStrategy(rule=rules.Krum(f=4))
    arrays, metrics = one_round(strategy, {1: content(model(1)), 2: content(model(2))})
    assert arrays is None
    assert metrics["clients-left-out"] == 2
    assert "too few models" in strategy.fates[1][1].why
    broken = content({**model(2), "fc.bias": np.full(3, np.inf, np.float32)})
    arrays, _ = one_round(RuleStrategy(rule=rules.FedAvg()), {1: content(model(1)), 2: broken})
    assert arrays is None


def test_metrics_that_do_not_fit_are_left_out() -> None:
    answers = {i: content(model(i), loss=float(i)) for i in range(1, 5)}
    answers[5] = content(model(5), loss=float("nan"))
    answers[6] = content(model(6), loss=[1.0, 2.0])
    answers[7] = content(model(7), examples=-5, loss=1.0)
    answers[8] = content(model(8), other=1.0)
    strategy = RuleStrategy(rule=rules.FedAvg())
    _, metrics = one_round(strategy, answers)
    assert metrics["loss"] == pytest.approx(2.5)
    grid = Grid(answers)
    messages = strategy.configure_evaluate(1, record(model(0)), ConfigRecord(), grid)
    evaluated = strategy.aggregate_evaluate(1, grid.send_and_receive(messages))
    assert evaluated is not None
    assert evaluated["loss"] == pytest.approx(2.5)


def test_bytes_that_lie_about_themselves_are_refused() -> None:
    honest = model(3)

    def lying(data: bytes, dtype: str = "float32", shape: tuple[int, ...] = (3,)) -> RecordDict:
        return content(
            ArrayRecord(
                {"fc.weight": Array(honest["fc.weight"]), "fc.bias": Array(dtype, shape, "numpy.ndarray", data)}
            )
        )

    whole = Array(honest["fc.bias"]).data
    huge = whole.replace(b"(3,)", b"(9999999999,)")
    answers = {
        1: content(model(1)), 2: content(model(2)), 3: lying(b""), 4: lying(b"\x80\x04pickled" + bytes(100)),
        5: lying(huge), 6: lying(whole[:-1]), 7: lying(whole + b"x"), 8: lying(whole.replace(b"<f4", b"|O4")),
    }  # fmt: skip
    strategy = RuleStrategy(rule=rules.FedAvg())
    arrays, _ = one_round(strategy, answers)
    assert [node for node, fate in strategy.fates[1].items() if fate.used] == [1, 2]
    np.testing.assert_allclose(flat(arrays), vectors([model(1), model(2)]).mean(axis=0), rtol=1e-6)


def test_whole_numbers_and_types_come_back() -> None:
    models = [
        {"w": np.full(2, i, np.float64), "steps": np.array([i], np.int64), "half": np.ones(3, np.float16)}
        for i in (1, 2, 4)
    ]
    strategy = RuleStrategy(rule=rules.Median())
    arrays, _ = one_round(strategy, {i: content(one) for i, one in enumerate(models, 1)}, start=models[0])
    assert [array.numpy().dtype for array in arrays.values()] == [np.float64, np.int64, np.float16]
    assert arrays["steps"].numpy().tolist() == [2]


def test_a_whole_run_through_flowers_own_loop() -> None:
    target = model(5)

    def client(message: Message) -> RecordDict:
        mine = {name: array.numpy() for name, array in message.content["arrays"].items()}
        return content({name: value + (target[name] - value) / 2 for name, value in mine.items()}, loss=1.0)

    def liar(message: Message) -> RecordDict:
        return content({name: -10 * value for name, value in target.items()}, loss=0.0)

    strategy = RuleStrategy(rule=rules.TrimmedMean(f=2))
    grid = Grid({**dict.fromkeys(range(1, 6), client), 6: liar, 7: liar})
    result = strategy.start(grid, record(model(0)), num_rounds=12)
    np.testing.assert_allclose(flat(result.arrays), vectors([target])[0], atol=2e-3)
    assert sorted(strategy.fates) == list(range(1, 13))
    again = RuleStrategy(rule=rules.Balance(gamma=5.0))
    found = flat(again.start(grid, record(model(0)), num_rounds=12).arrays)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "krum"}, r"rule must be a Rule, made with rules.create\(name\), not 'krum'"),
        ({"rule": Bristle()}, "Bristle tests models on samples: pass evaluation=Evaluation"),
        ({"rule": rules.Evidence()}, "evidence exchanges statements about data, not models"),
        ({"rule": rules.FLTrust()}, "FLTrust compares updates with the own one: pass train="),
    ],
)
def test_what_a_rule_lacks_is_said_when_the_strategy_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        RuleStrategy(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "features", "start", "message"),
    [
        (("fc.weight",), 4, SHAPES, r"the model has more arrays than its head \(fc.bias\)"),
        (("weight",), 4, SHAPES, "the model has no array 'weight' for head=; it has fc.weight, fc.bias"),
        (("fc.weight", "fc.bias"), 5, SHAPES, "evaluation has features of 5 numbers, but 'fc.weight' has shape"),
        (("fc.bias", "fc.weight"), 4, SHAPES, r"head= takes weights \[classes, features\] and a bias \[classes\]"),
        (("fc.weight",), 4, {}, "the model has no numbers to aggregate"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_anybody_trains(
    head: tuple[str, ...], features: int, start: dict[str, Any], message: str
) -> None:
    evaluation = Evaluation(np.zeros((3, features), np.float32), np.arange(3))
    strategy = RuleStrategy(rule=Bristle(), evaluation=evaluation, head=head)
    arrays = record({name: np.zeros(shape, np.float32) for name, shape in start.items()})
    with pytest.raises(ValueError, match=message):
        strategy.start(Grid({}), arrays)


def test_numbers_of_unknown_types_are_named() -> None:
    strategy = RuleStrategy(rule=rules.Median())
    arrays = ArrayRecord({"w": Array("float8_e4m3fn", (3,), "numpy.ndarray", b"abc")})
    with pytest.raises(ValueError, match="an array of type float8_e4m3fn cannot be aggregated; send it as float32"):
        strategy.start(Grid({}), arrays)


def test_aggregation_before_anything_was_sent() -> None:
    with pytest.raises(ValueError, match="call configure_train or start first"):
        RuleStrategy(rule=rules.Median()).aggregate_train(1, [])
