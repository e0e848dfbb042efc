from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bristle import attacks
from bristle.attacks import View
from bristle.rules import FedAvg


def test_mimic_copies_one_honest_head(make_view: Callable[..., View]) -> None:
    view = make_view(models=4)
    inbox = np.array(view.inbox)
    for target, place in ((0, 0), (2, 2), (3, 3), (6, 2)):
        sent = attacks.create("mimic", target=target)(view)
        np.testing.assert_array_equal(sent, np.broadcast_to(inbox[place], sent.shape))


def test_mimic_turns_to_the_next_where_its_target_is_absent(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(3,), models=4)
    mask = np.array([[True] * 4, [True, True, False, False], [False, False, False, True]])
    sent = attacks.create("mimic", target=2)(replace(view, inbox_mask=mask))
    for victim, place in enumerate((2, 0, 3)):
        np.testing.assert_array_equal(sent[victim, 0], np.array(view.inbox)[victim, place])


def test_dissensus_follows_the_formula(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(2,), attackers=2, models=5)
    inbox, victims = np.asarray(view.inbox), np.asarray(view.victim)
    mask = np.array([[True] * 5, [True, False, True, True, False]])
    sent = attacks.create("dissensus", epsilon=0.7)(replace(view, inbox_mask=mask))
    for i in range(2):
        pull = sum(inbox[i, j] - victims[i] for j in np.flatnonzero(mask[i]))
        expected = victims[i] - 0.7 * pull / 2
        np.testing.assert_allclose(sent[i], np.broadcast_to(expected, sent[i].shape), rtol=1e-12)


@pytest.mark.parametrize(("epsilon", "progress"), [(1.0, 0.0), (1.5, -0.5), (0.5, 0.5)])
def test_dissensus_cancels_or_turns_the_pull_of_honest_heads(
    make_view: Callable[..., View], epsilon: float, progress: float
) -> None:
    view = make_view(attackers=3, models=5)
    honest = np.array(view.inbox)
    sent = attacks.create("dissensus", epsilon=epsilon)(view)
    moved = FedAvg()(view.victim, np.concatenate([honest, sent])).head - view.victim
    np.testing.assert_allclose(moved, progress * np.sum(honest - view.victim, axis=0) / 9, atol=1e-12)


def test_free_riders_send_the_mean_in_a_thin_disguise(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=3, models=5)
    mean = np.mean(np.array(view.inbox), axis=0)
    attack = attacks.create("free-ride", noise=0.01)
    assert not attack.trains
    sent = attack(view, rng=np.random.default_rng(0))
    assert 0.005 < np.abs(sent - mean).max() <= 0.01
    assert not np.allclose(sent[0], sent[1], atol=1e-4)
    plain = attacks.create("free-ride", noise=0)(view)
    np.testing.assert_allclose(plain[1], mean)
