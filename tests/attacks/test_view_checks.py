from collections.abc import Callable
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from bristle import attacks
from bristle._core import Pool
from bristle.attacks import View
from bristle.attacks import view as views

# Room for three victims of the views that are made here, with 3 attackers and 6 honest heads of 5 times 4.
THREE_VICTIMS = 2 * 3 * (3 + 6) * 5 * 4 * 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"own": [1.0]}, "view.own must be an array"),
        ({"own": np.zeros((3, 5, 4), dtype=int)}, "view.own must be of type float32 or float64"),
        ({"own": np.zeros((5, 4))}, r"view.own must be \[..., attackers, classes, features\]"),
        ({"own": np.zeros((3, 0, 4))}, "view.own must be"),
        ({"own": np.full((3, 5, 4), np.nan)}, "view.own holds values that are not finite"),
        ({"iteration": 0}, "view.iteration must be a whole number"),
        ({"total": 1.5}, "view.total must be a whole number"),
        ({"victim": np.zeros((4, 5))}, r"view.victim must be a ndarray of shape \(5, 4\)"),
        ({"victim": np.zeros((5, 4), dtype=np.float32)}, "view.victim must be of type float64"),
        ({"victim": np.full((5, 4), np.inf)}, "view.victim holds values"),
        ({"update": "yesterday"}, "view.update must be a ndarray of shape .* not str"),
        ({"update": np.full((5, 4), 1e30)}, "view.update holds values"),
        ({"testable": np.ones(5)}, "view.testable must be boolean, not float64"),
        ({"testable": np.ones(4, dtype=bool)}, "view.testable must be a ndarray of shape"),
        ({"sent": np.zeros((2, 5, 4))}, "view.sent must be a ndarray of shape"),
        ({"inbox": np.zeros((5, 4))}, "view.inbox must be an array"),
        ({"inbox": np.zeros((6, 4, 5))}, "view.inbox must be a ndarray of shape"),
        ({"inbox": None}, "view.inbox_mask is given, but no view.inbox"),
        ({"inbox_mask": np.ones(5, dtype=bool)}, "view.inbox_mask must be a ndarray of shape"),
        ({"inbox_mask": np.ones(6)}, "view.inbox_mask must be boolean"),
        ({"inbox": Pool(np.zeros((9, 5, 4)), np.zeros((2, 6), dtype=int))}, "view.inbox must be a Pool"),
        ({"inbox": Pool(np.zeros((9, 5, 4)), np.zeros(6))}, "view.inbox.index must be integers"),
        ({"inbox": Pool(np.zeros((9, 5, 4)), np.full(6, 9))}, "points outside its 9 heads"),
        ({"inbox": Pool(np.zeros((9, 4, 4)), np.zeros(6, dtype=int))}, "view.inbox.heads must be"),
    ],
)
def test_a_callers_mistake_gets_one_clear_error(
    make_view: Callable[..., View], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attacks.create("dissensus")(replace(make_view(), **change))


def test_arrays_of_two_libraries_do_not_mix(make_view: Callable[..., View]) -> None:
    view = make_view()
    with pytest.raises(ValueError, match=r"view\.victim must be a ndarray"):
        attacks.create("dissensus")(replace(view, victim=array_api_strict.asarray(view.victim)))


def test_a_block_gives_absent_and_unfit_heads_as_zeros(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(2,), models=4)
    inbox = np.array(view.inbox)
    inbox[0, 0], inbox[0, 1, 2, 1], inbox[1, 2] = np.nan, np.inf, 1e30
    mask = np.array([[True, True, True, False], [True, True, True, True]])
    blocks = list(views.blocks(replace(view, inbox=inbox, inbox_mask=mask), (2,), None))
    assert len(blocks) == 1
    block, draws = blocks[0]
    assert draws is None
    assert block.inbox_mask is not None
    assert block.inbox_mask.tolist() == [[False, False, True, False], [True, True, False, True]]
    assert isinstance(block.inbox, np.ndarray)
    assert (block.inbox[~block.inbox_mask] == 0).all()
    np.testing.assert_array_equal(block.inbox[block.inbox_mask], inbox[block.inbox_mask])


def test_blocks_hold_as_many_victims_as_fit(make_view: Callable[..., View], monkeypatch: pytest.MonkeyPatch) -> None:
    view = make_view(batch=(5, 2))
    monkeypatch.setattr(views, "block_bytes", lambda array: THREE_VICTIMS)
    draws = np.random.default_rng(0).random(view.own.shape)
    blocks = list(views.blocks(view, (5, 2), draws))
    assert [block.own.shape[0] for block, _ in blocks] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate([lanes for _, lanes in blocks]), draws.reshape(10, 3, 5, 4))


@pytest.mark.parametrize("name", ["krum", "trimmed-mean", "min-max", "additive-noise", "foreign-trojan", "none"])
@pytest.mark.parametrize("pooled", [False, True])
def test_small_blocks_give_the_same_answer(
    make_view: Callable[..., View], monkeypatch: pytest.MonkeyPatch, name: str, pooled: bool
) -> None:
    view = make_view(batch=(5, 2))
    if pooled:
        pool = Pool(np.asarray(view.inbox).reshape(60, 5, 4), np.arange(60)[::-1].reshape(5, 2, 6))
        view = replace(view, inbox=pool)
    attack = attacks.create(name)
    expected = attack(view, rng=np.random.default_rng(1))
    monkeypatch.setattr(views, "block_bytes", lambda array: THREE_VICTIMS)
    np.testing.assert_allclose(attack(view, rng=np.random.default_rng(1)), expected, rtol=1e-12)
