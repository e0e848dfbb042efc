from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bristle import attacks
from bristle.attacks import LabelFlip, Sybil, View


def test_identities_send_one_head_with_jitter(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=4)
    sent = attacks.create("sybil", jitter=0.01)(view, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(sent[0], view.own[0])
    offsets = np.abs(sent[1:] - view.own[0])
    assert offsets.min() > 0
    assert 0.005 < offsets.max() <= 0.01
    assert len({head.tobytes() for head in sent}) == 4


@pytest.mark.parametrize("inner", [name for name in attacks.names(shares="heads") if name != "sybil"])
def test_any_attack_can_be_behind_it(make_view: Callable[..., View], inner: str) -> None:
    view = make_view(batch=(2,), attackers=3)
    draws = np.random.default_rng(0).random(view.own.shape)
    sybil, plain = attacks.create("sybil", inner=inner, jitter=0), attacks.create(inner)
    alike = replace(
        view,
        own=np.broadcast_to(view.own[:, :1], view.own.shape),
        sent=np.broadcast_to(np.asarray(view.sent)[:, :1], view.own.shape),
    )
    sent, expected = sybil(view, rng=draws), plain(alike, rng=draws)[:, :1]
    np.testing.assert_array_equal(sent, np.broadcast_to(expected, sent.shape))
    told = (sybil.knows, sybil.trains, sybil.flips_labels, sybil.finite)
    assert told == (plain.knows, plain.trains, plain.flips_labels, plain.finite)


def test_labels_are_those_of_the_inner_attack() -> None:
    assert Sybil(inner=LabelFlip(classes=3)).labels(np.array([2, 0])).tolist() == [0, 1]
