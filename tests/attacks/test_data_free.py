from collections.abc import Callable
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle import attacks
from bristle.attacks import LabelFlip, View


def test_without_an_attack_heads_go_out_as_they_are(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(2,))
    np.testing.assert_array_equal(attacks.create("none")(view), view.own)
    labels = np.array([1, -1])
    assert attacks.create("none").labels(labels) is labels


@given(st.lists(st.integers(-1, 6), max_size=20), st.sampled_from([np.int8, np.int16, np.int32, np.int64]))
def test_label_flip_teaches_the_next_class(labels: list[int], dtype: Any) -> None:
    attack = LabelFlip(classes=7)
    flipped = attack.labels(np.array(labels, dtype=dtype))
    assert flipped.dtype == dtype
    assert flipped.tolist() == [-1 if y == -1 else (y + 1) % 7 for y in labels]


def test_label_flip_at_the_end_of_a_type() -> None:
    assert LabelFlip(classes=128).labels(np.array([126, 127, -1], dtype=np.int8)).tolist() == [127, 0, -1]
    assert LabelFlip(classes=256).labels(np.array([0, 254, 255], dtype=np.uint8)).tolist() == [1, 255, 0]


def test_label_flip_on_other_libraries() -> None:
    flipped = LabelFlip(classes=3).labels(array_api_strict.asarray([0, 1, 2, -1]))
    assert np.asarray(flipped).tolist() == [1, 2, 0, -1]


@pytest.mark.parametrize("labels", [np.array([10]), np.array([-2]), np.array([0.5]), [1, 2]])
def test_label_flip_refuses_labels_of_other_data(labels: Any) -> None:
    with pytest.raises(ValueError, match="labels must"):
        LabelFlip().labels(labels)


def test_label_flip_sends_what_it_trained(make_view: Callable[..., View]) -> None:
    view = make_view()
    np.testing.assert_array_equal(LabelFlip()(view), view.own)
    assert LabelFlip().flips_labels
    assert not attacks.create("none").flips_labels


def test_sign_flip(make_view: Callable[..., View]) -> None:
    view = make_view()
    np.testing.assert_array_equal(attacks.create("sign-flip")(view), -view.own)


@pytest.mark.parametrize("classes", [4, 5])
def test_noise_is_below_zero_in_the_first_half_and_above_in_the_rest(
    make_view: Callable[..., View], classes: int
) -> None:
    view = make_view(classes=classes, features=200)
    sent = attacks.create("additive-noise", scale=0.25)(view, rng=np.random.default_rng(0))
    low, high = sent[:, :2], sent[:, 2:]
    assert low.max() <= 0
    assert high.min() >= 0
    assert np.abs(sent).max() <= 0.25
    np.testing.assert_allclose(low.mean(), -0.125, atol=0.01)
    np.testing.assert_allclose(high.mean(), 0.125, atol=0.01)


def test_noise_has_the_authors_scale_by_default(make_view: Callable[..., View]) -> None:
    view = make_view()
    draws = np.random.default_rng(0).random(view.own.shape)
    attack = attacks.create("additive-noise")
    assert not attack.trains
    sent = attack(view, rng=draws)
    np.testing.assert_allclose(sent[:, 0], -0.5 * draws[:, 0])
    np.testing.assert_allclose(sent[:, -1], 0.5 * draws[:, -1])


def test_non_finite_values_come_in_turn(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=4, dtype=np.float32)
    attack = attacks.create("non-finite")
    assert not attack.finite
    first = attack(replace(view, iteration=1))[:, 0, 0]
    np.testing.assert_array_equal(first, np.array([np.nan, np.inf, 1e38, np.nan], dtype=np.float32))
    second = attack(replace(view, iteration=2))[:, 0, 0]
    np.testing.assert_array_equal(second, np.array([np.inf, 1e38, np.nan, np.inf], dtype=np.float32))


@pytest.mark.parametrize("last", [1, 3])
def test_stale_sends_the_same_head_for_ever(make_view: Callable[..., View], last: int) -> None:
    attack, sent, history = attacks.create("stale", last=last), None, []
    for iteration in range(1, 7):
        view = replace(make_view(seed=iteration), iteration=iteration, sent=sent)
        sent = attack(view)
        history.append((sent, view.own))
    for iteration, (heads, own) in enumerate(history, start=1):
        expected = own if iteration <= last else history[last - 1][1]
        np.testing.assert_array_equal(heads, expected)
