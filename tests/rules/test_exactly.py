"""Small scenes whose answer can be told by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import rules
from bristle.learning.metrics import Evaluation
from bristle.rules import Rule
from bristle.rules.inbox import ArrayInbox

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("name", rules.names(shares="heads"))
def test_where_all_agree_nothing_changes(name: str) -> None:
    rule: Rule = rules.create(name)
    own = RNG.standard_normal((3, 4))
    features = np.concatenate([own * 3] * 12)
    held = Evaluation(features, np.tile(np.arange(3), 12))
    everyone = np.stack([own] * 9)
    claims = np.ones((9, 3), bool)
    decision = rule(own, everyone, evaluation=held, claims=claims, rng=np.random.default_rng(1))
    np.testing.assert_allclose(decision.head, own, rtol=1e-9, atol=1e-12)


def heads_at(*places: float) -> Any:
    return np.array(places)[:, None, None] * np.ones((1, 2, 2))


def test_of_equally_central_heads_krum_takes_the_one_nearest_to_the_own() -> None:
    for places in ((5.0, 3.0, 8.0), (3.0, 5.0, 8.0), (8.0, 5.0, 3.0)):
        decision = rules.Krum(f=1)(heads_at(0.0)[0], heads_at(*places))
        np.testing.assert_array_equal(decision.head, heads_at(3.0)[0])


@pytest.mark.parametrize("seed", range(8))
def test_a_remainder_belongs_to_the_lower_tiers(seed: int) -> None:
    # Four models are tiers of two, one and one: with alpha 0 the two nearest pass, whatever is drawn.
    passes = rules.Prioritiser(alpha=0.0, beta=2)(
        heads_at(0.0)[0], heads_at(4.0, 1.0, 3.0, 2.0), rng=np.random.default_rng(seed)
    )
    np.testing.assert_array_equal(passes, [False, True, False, True])


def test_mixtures_project_as_if_they_were_written_out() -> None:
    own, models = RNG.standard_normal((2, 6)), RNG.standard_normal((2, 4, 6))
    inbox = ArrayInbox(own, 2, models)
    matrix = RNG.random((2, 4, 5))
    matrix /= matrix.sum(axis=-1, keepdims=True)  # mixtures: each row sums to 1
    direction = RNG.standard_normal((2, 6))
    everyone = np.concatenate([own[:, None], models], axis=1)
    written = matrix @ everyone
    expected = np.einsum("bmf,bf->bm", written[:, 1:] - written[:, :1], direction)
    np.testing.assert_allclose(inbox.mixed(matrix).project(direction), expected, rtol=1e-9)
