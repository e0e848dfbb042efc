from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.simulation.mailbox import Asynchrony, Schedule


def schedule(asynchrony: Asynchrony, peers: int = 20, total: int = 100, seed: int = 0) -> Schedule:
    return Schedule(asynchrony, peers=peers, total=total, seed=seed)


def test_without_asynchrony_all_act_always() -> None:
    plain = schedule(Asynchrony())
    assert all(plain.acting(t).all() and plain.present(t).all() for t in range(1, 101))


@given(st.floats(0, 1), st.integers(1, 7), st.integers(0, 5))
def test_slow_peers_act_every_so_often(slow: float, period: int, seed: int) -> None:
    made = schedule(Asynchrony(slow=slow, period=period), seed=seed)
    acted = np.array([made.acting(t) for t in range(1, 12 * period + 1)])
    assert ((acted.sum(axis=0) == 12) | (acted.sum(axis=0) == 12 * period)).all()
    assert (made.period == period).sum() == (round(slow * 20) if period > 1 else 20)


@given(st.floats(0, 1), st.integers(2, 90), st.integers(0, 5))
def test_late_peers_come_and_stay(late: float, join_by: int, seed: int) -> None:
    made = schedule(Asynchrony(late=late, join_by=join_by), seed=seed)
    there = np.array([made.present(t) for t in range(1, 101)])
    assert (~there[0]).sum() == round(late * 20)
    assert there[join_by - 1 :].all()
    assert (np.diff(there.astype(int), axis=0) >= 0).all()


@pytest.mark.parametrize("away", [None, 10])
def test_leavers_go_once_and_return_if_they_do(away: int | None) -> None:
    made = schedule(Asynchrony(leaving=0.5, away=away))
    there = np.array([made.present(t) for t in range(1, 121)])
    gone = ~there.all(axis=0)
    assert gone.sum() == 10
    assert not made.acting(100)[~made.present(100)].any()
    if away is None:
        assert not there[-1, gone].any()
    else:
        assert ((~there).sum(axis=0)[gone] == 10).all()


def test_absences_as_listed() -> None:
    made = schedule(Asynchrony(absences=((3, 5, 7), (3, 9, 9))))
    assert [t for t in range(1, 20) if not made.present(t)[3]] == [5, 6, 7, 9]
    assert made.present(6).sum() == 19


def test_history_is_as_short_as_can_be() -> None:
    assert Asynchrony(slow=0.5, late=0.1).depth == 1
    assert Asynchrony(loss=0.1).depth == 1
    assert Asynchrony(loss=0.1, slow=0.5, period=4).depth == 4
    assert Asynchrony(delay=(1, 3), slow=0.5, period=4).depth == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": 1.2}, "loss must be a number between 0 and 1"),
        ({"delay": (3, 1)}, "the smallest and the largest"),
        ({"period": 0}, "period"),
        ({"join_by": 1}, "join_by"),
        ({"away": 0}, "away"),
        ({"absences": ((0, 5, 4),)}, "must be \\[peer, first iteration, last iteration\\]"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Asynchrony(**options)
    with pytest.raises(ValueError, match="numbered from 0 to 19"):
        schedule(Asynchrony(absences=((20, 1, 2),)))
