from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle import attacks
from bristle.attacks import View
from bristle.attacks.statistics import largest_step
from bristle.rules import FedAvg


def test_inner_product_turns_the_mean(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=5, models=4)
    mean = np.mean(np.array(view.inbox), axis=0)
    sent = attacks.create("inner-product", epsilon=3)(view)
    np.testing.assert_allclose(sent, np.broadcast_to(-3 * mean, sent.shape))
    answer = FedAvg()(view.victim, np.concatenate([np.array(view.inbox), sent])).head
    assert np.sum(answer * mean) < 0


def test_alie_steps_aside_by_the_published_z(make_view: Callable[..., View]) -> None:
    # 9 honest heads, the victim's own and 5 attackers: n = 15, s = 7 + 1 - 5 = 3, z = Φ⁻¹(7/10).
    view = make_view(attackers=5, models=9)
    inbox = np.array(view.inbox)
    z = NormalDist().inv_cdf(0.7)
    sent = attacks.create("alie")(view)
    np.testing.assert_allclose(sent, np.broadcast_to(inbox.mean(axis=0) - z * inbox.std(axis=0), sent.shape))
    fixed = attacks.create("alie", z=1.5)(view)
    np.testing.assert_allclose(fixed[0], inbox.mean(axis=0) - 1.5 * inbox.std(axis=0))


def test_alie_counts_what_each_victim_receives(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(2,), attackers=5, models=9)
    mask = np.ones((2, 9), dtype=bool)
    mask[1, 6:] = False
    sent = attacks.create("alie")(replace(view, inbox_mask=mask))
    inbox = np.array(view.inbox)[1, :6]
    z = NormalDist().inv_cdf((12 - 5 - (6 + 1 - 5)) / (12 - 5))
    np.testing.assert_allclose(sent[1, 0], inbox.mean(axis=0) - z * inbox.std(axis=0))


@pytest.mark.parametrize(("n", "f", "share"), [(50, 12, 24 / 38), (15, 5, 0.7), (10, 3, 4 / 7), (6, 1, 0.4)])
def test_z_follows_the_formula(n: int, f: int, share: float) -> None:
    assert largest_step(n, f) == pytest.approx(NormalDist().inv_cdf(share))


@given(st.integers(1, 40), st.integers(1, 40))
def test_z_is_always_finite_and_leaves_one_honest_head_farther_out(honest: int, f: int) -> None:
    z = largest_step(honest + f, f)
    assert np.isfinite(z)
    assert NormalDist().cdf(z) <= max(0.5, (honest - 1) / honest) + 1e-9
