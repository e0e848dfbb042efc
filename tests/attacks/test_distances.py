from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle import attacks
from bristle.attacks import View
from bristle.attacks.statistics import Perturbation

PERTURBATIONS: list[Perturbation] = ["std", "sign", "unit"]


def perturbation_vector(kind: Perturbation, honest: Any) -> Any:
    mean = honest.mean(axis=0)
    return {"std": -honest.std(axis=0), "sign": -np.sign(mean), "unit": -mean / np.linalg.norm(mean)}[kind]


def within_max(honest: Any, m: Any) -> bool:
    pairs = np.linalg.norm(honest[:, None] - honest[None, :], axis=-1)
    return bool(np.linalg.norm(honest - m, axis=-1).max() <= pairs.max() * (1 + 1e-9))


def within_sum(honest: Any, m: Any) -> bool:
    pairs = np.sum((honest[:, None] - honest[None, :]) ** 2, axis=-1)
    return bool(np.sum((honest - m) ** 2) <= pairs.sum(axis=1).max() * (1 + 1e-9))


def searched(honest: Any, kind: Perturbation, within: Callable[[Any, Any], bool]) -> Any:
    """The published search: halve the step, and take it where it stays within reach."""
    mean, p = honest.mean(axis=0), perturbation_vector(kind, honest)
    gamma, step = 0.0, 1e4
    while step > 1e-11:
        gamma += step if within(honest, mean + (gamma + step) * p) else 0
        step /= 2
    return mean + gamma * p


@pytest.mark.parametrize("kind", PERTURBATIONS)
@pytest.mark.parametrize(("name", "within"), [("min-max", within_max), ("min-sum", within_sum)])
@given(seed=st.integers(0, 2**32 - 1), models=st.integers(2, 9), features=st.integers(1, 6))
def test_the_closed_form_finds_what_a_search_finds(
    *, name: str, within: Callable[[Any, Any], bool], kind: Perturbation, seed: int, models: int, features: int
) -> None:
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(models, 2 * features)) * rng.uniform(0.1, 2, size=(models, 1))
    view = View(own=np.zeros((2, 2, features)), inbox=honest.reshape(models, 2, features))
    sent = attacks.create(name, perturbation=kind)(view)
    np.testing.assert_array_equal(sent[0], sent[1])
    np.testing.assert_allclose(sent[0].ravel(), searched(honest, kind, within), rtol=1e-5, atol=1e-6)
    assert within(honest, sent[0].ravel())


@pytest.mark.parametrize("kind", PERTURBATIONS)
def test_the_constraint_holds_with_near_equality(make_view: Callable[..., View], kind: Perturbation) -> None:
    view = make_view(models=7)
    honest = np.array(view.inbox).reshape(7, -1)
    pairs = np.linalg.norm(honest[:, None] - honest[None, :], axis=-1)
    farthest = np.linalg.norm(honest - attacks.create("min-max", perturbation=kind)(view)[0].ravel(), axis=1).max()
    assert farthest == pytest.approx(pairs.max(), rel=1e-7)
    total = np.sum((honest - attacks.create("min-sum", perturbation=kind)(view)[0].ravel()) ** 2)
    assert total == pytest.approx((pairs**2).sum(axis=1).max(), rel=1e-7)


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
def test_absent_heads_do_not_count(make_view: Callable[..., View], name: str) -> None:
    view = make_view(models=6)
    inbox = np.array(view.inbox)
    inbox[[1, 4]] += 50
    mask = np.array([True, False, True, True, False, True])
    left = replace(view, inbox=inbox[mask], inbox_mask=None)
    sent = attacks.create(name)(replace(view, inbox=inbox, inbox_mask=mask))
    np.testing.assert_allclose(sent, attacks.create(name)(left), rtol=1e-9)


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
def test_a_single_honest_head_is_sent_as_it_is(make_view: Callable[..., View], name: str) -> None:
    view = make_view(models=1)
    expected = np.broadcast_to(np.asarray(view.inbox), view.own.shape)
    np.testing.assert_allclose(attacks.create(name)(view), expected, rtol=1e-12)
