"""Both directions with the real aggregators of ByzFL 0.0.11, from `make peers`."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import numpy as np
import pytest
import torch

import peers
from bristle import Bristle, rules
from bristle.integrations import byzfl
from bristle.integrations.byzfl import AsAggregator, AsRule
from bristle.rules import Reason
from bristle.testing import check_rule

pytestmark = pytest.mark.skipif(not peers.available(), reason="ByzFL is not here: run `make peers`")


@pytest.fixture(autouse=True)
def there() -> Any:
    """ByzFL's aggregators, importable."""
    return peers.load()[0]


def vectors_of(count: int = 12, size: int = 30) -> Any:
    return np.random.default_rng(0).standard_normal((count, size))


PAIRS = [
    (rules.FedAvg(), "Average", {}),
    (rules.Median(), "Median", {}),
    (rules.TrimmedMean(f=3), "TrMean", {"f": 3}),
    (rules.MeanAroundMedian(f=3), "Meamed", {"f": 3}),
    (rules.MDA(f=3), "MDA", {"f": 3}),
    (rules.NearestNeighbourAveraging(f=3), "MoNNA", {"f": 3}),
]


@pytest.mark.parametrize(("rule", "name", "parameters"), PAIRS)
def test_our_rules_answer_as_their_aggregators_do(there: Any, rule: Any, name: str, parameters: Any) -> None:
    theirs, ours = getattr(there, name)(**parameters), AsAggregator(rule)
    vectors = vectors_of()
    for given in (vectors, list(vectors), torch.tensor(vectors), list(torch.tensor(vectors))):
        expected, found = theirs(given), ours(given)
        assert type(found) is type(expected)
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-6)
    cube = vectors.reshape(12, 5, 6)
    np.testing.assert_allclose(ours(cube), ours(vectors).reshape(5, 6), rtol=1e-12)
    half = ours(torch.tensor(vectors, dtype=torch.float16))
    assert half.dtype == torch.float16


@pytest.mark.parametrize(("rule", "name", "parameters"), PAIRS)
def test_their_aggregators_answer_as_our_rules_do(rule: Any, name: str, parameters: Any) -> None:
    heads = vectors_of().reshape(12, 5, 6)
    found = AsRule(aggregator=name, parameters=parameters)(heads[0], heads[1:])
    expected = rule(heads[0], heads[1:])
    np.testing.assert_allclose(found.head, expected.head, rtol=1e-9)
    if name not in ("Median", "TrMean", "Meamed"):  # These mix no whole vectors.
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
        np.testing.assert_array_equal(found.reasons == int(Reason.KEPT), expected.reasons == int(Reason.KEPT))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Median", {}), ("TrMean", {"f": 2}), ("Krum", {"f": 2}), ("MultiKrum", {"f": 2}), ("MDA", {"f": 2})],
)
def test_they_keep_what_all_rules_promise(name: str, parameters: Any) -> None:
    check_rule(AsRule(aggregator=name, parameters=parameters))


def test_aggregators_with_memory_start_anew() -> None:
    heads = vectors_of().reshape(12, 5, 6)
    rule = AsRule(aggregator="CenteredClipping", parameters={"L": 2, "tau": 1.0})
    np.testing.assert_array_equal(rule(heads[0], heads[1:]).head, rule(heads[0], heads[1:]).head)


def test_nan_and_huge_vectors_reach_nobody(there: Any) -> None:
    vectors = vectors_of()
    expected = rules.Median()(vectors[1:2], vectors[2:, None]).head[0]
    vectors[0] = np.nan
    assert np.isnan(there.Median()(vectors)).any()
    np.testing.assert_allclose(AsAggregator(rules.Median())(vectors), expected)
    np.testing.assert_allclose(AsAggregator("median")(torch.tensor(vectors)), expected)
    head = AsRule(aggregator="Median")(vectors[1:2], np.concatenate([vectors[:1], vectors[2:]])[:, None]).head
    np.testing.assert_allclose(head[0], expected)


def test_their_server_takes_a_rule_by_name() -> None:
    byzfl.register()
    server = import_module("byzfl.fed_framework.robust_aggregator")
    vectors = vectors_of()
    settings = {"name": "Bristle", "parameters": {"rule": "caf", "options": {"f": 3}}}
    robust = server.RobustAggregator(settings, pre_agg_list=[{"name": "NNM", "parameters": {"f": 3}}])
    mixed = peers.load()[0].NNM(f=3)(vectors)
    np.testing.assert_allclose(robust.aggregate_vectors(vectors), AsAggregator(rules.CAF(f=3))(mixed), rtol=1e-9)


def trained(aggregator: Any) -> list[float]:
    """The losses of ByzFL's own server, model and attack: two of eight gradients are -10 times the others' mean."""
    framework = import_module("byzfl.fed_framework")
    attack = import_module("byzfl.attacks").InnerProductManipulation(tau=10.0)
    rng = torch.Generator().manual_seed(0)
    samples = torch.utils.data.TensorDataset(torch.randn(32, 1, 28, 28, generator=rng), torch.arange(32) % 10)
    settings = {
        **{"device": "cpu", "model_name": "logreg_mnist", "optimizer_name": "SGD", "learning_rate": 0.5},
        **{"weight_decay": 0.0, "milestones": [], "learning_rate_decay": 1.0, "pre_agg_list": []},
        "test_loader": torch.utils.data.DataLoader(samples, batch_size=32),
        "aggregator_info": aggregator,
    }
    server = framework.Server(settings)
    losses = []
    for _ in range(15):
        gradients, total = [], 0.0
        for part in range(6):
            images, labels = samples[part::6]
            loss = torch.nn.functional.nll_loss(torch.log_softmax(server.model(images), dim=1), labels)
            found = torch.autograd.grad(loss, list(server.model.parameters()))
            gradients.append(torch.cat([one.reshape(-1) for one in found]))
            total += float(loss.detach())
        losses.append(total / 6)
        server.update_model_with_gradients([*gradients, *[attack(torch.stack(gradients))] * 2])
    return losses


def test_a_training_of_theirs_by_a_rule_of_ours() -> None:
    byzfl.register()
    ours = trained({"name": "Bristle", "parameters": {"rule": "multi-krum", "options": {"f": 2}}})
    average = trained({"name": "Average", "parameters": {}})
    assert ours[-1] < 0.75 * ours[0]
    assert average[-1] > average[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AsAggregator("krumm"), "there is no rule 'krumm'; did you mean 'krum'"),
        (lambda: AsAggregator(Bristle()), "Bristle tests heads on samples, which ByzFL's aggregators do not get"),
        (lambda: AsAggregator(rules.Median(), {"f": 3}), "options= go with the name of a rule"),
        (lambda: AsAggregator(cast(Any, 3)), "rule must be a Rule or the name of one, not 3"),
        (lambda: AsAggregator("median")([]), "vectors must be a list of NumPy arrays or torch tensors"),
        (lambda: AsAggregator("median")([np.ones(2), np.ones(3)]), r"vectors must be of one shape, not of \(2,\), "),
        (lambda: AsAggregator("median")(np.ones(3)), r"vectors must be NumPy arrays or torch tensors \[n, ...\]"),
        (lambda: AsAggregator("median", own=9)(np.ones((3, 2))), "own=9 names none of the 3 vectors"),
        (lambda: AsAggregator("median")(np.full((3, 2), np.nan)), "vector 0 is the own one and is not fin"),
        (lambda: AsAggregator("krum", {"f": 4})(np.ones((5, 2))), r"Krum\(f=4.* has no answer for 5 usable vectors"),
        (lambda: AsRule(aggregator="Krumm"), "ByzFL has no aggregator 'Krumm'; it has Average, "),
        (lambda: AsRule(aggregator="Krum", parameters={"g": 1}), "ByzFL's Krum does not take {'g': 1}"),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
