from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import attacks
from bristle.attacks import FangKrum, FangKrumAlong, View
from bristle.attacks.fang import _coordinates
from bristle.rules import Krum, TrimmedMean


@pytest.fixture(scope="module")
def scattered() -> Callable[..., View]:
    """Make a view of benign heads that drifted from a common start and scattered about."""

    def make(*, seed: int, attackers: int, models: int, spread: float, dtype: Any = np.float64) -> View:
        rng = np.random.default_rng(seed)
        start = rng.normal(size=(5, 4))
        heads = start + 0.3 * rng.normal(size=(5, 4)) + spread * rng.normal(size=(models + 1, 5, 4))
        start, heads = start.astype(dtype), heads.astype(dtype)
        return View(
            own=np.zeros((attackers, 5, 4), dtype=dtype),
            inbox=heads[1:],
            victim=heads[0],
            update=(heads.mean(axis=0) - start),
        )

    return make


def benign_of(view: View) -> Any:
    return np.concatenate([np.asarray(view.victim)[None], np.asarray(view.inbox)])


def change_of(view: View) -> Any:
    return np.asarray(view.update)


def krum_chooses_attackers(view: View, sent: Any, f: int) -> bool:
    answer = Krum(f=f)(view.victim, np.concatenate([np.asarray(view.inbox), sent])).head
    return bool((np.abs(sent - answer) < 1e-9).all(axis=(1, 2)).any())


@pytest.mark.parametrize("name", ["krum", "krum-along"])
@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    attackers=st.integers(2, 4),
    extra=st.integers(1, 5),
    spread=st.sampled_from([0.01, 0.1, 1.0]),
)
def test_krum_chooses_the_head_but_not_one_twice_as_far(
    *, scattered: Callable[..., View], name: str, seed: int, attackers: int, extra: int, spread: float
) -> None:
    view = scattered(seed=seed, attackers=attackers, models=attackers + extra, spread=spread)
    sent = attacks.create(name)(view, rng=np.random.default_rng(seed))
    way = np.sign(change_of(view)) * (1 if name == "krum-along" else -1)
    centre = benign_of(view).mean(axis=0)
    steps = (sent[0] - centre) / way
    step = steps.mean()
    np.testing.assert_allclose(steps, step, rtol=1e-6, atol=1e-9)
    assert step > 1e-5  # Below it the search would have ended in vain.
    assert krum_chooses_attackers(view, sent, attackers)
    # Chosen at λ and not at 2λ: the last halving was needed, or λ is the bound itself.
    assert not krum_chooses_attackers(view, np.broadcast_to(centre + 2 * step * way, sent.shape), attackers)


def test_krum_chooses_heads_of_single_precision(scattered: Callable[..., View]) -> None:
    for seed in range(20):
        view = scattered(seed=seed, attackers=4, models=8, spread=0.1, dtype=np.float32)
        assert krum_chooses_attackers(view, attacks.create("krum")(view), 4)


def test_krum_goes_against_the_benign_change_and_along_goes_with_it(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=3, models=7, spread=0.02)
    change, centre = change_of(view), benign_of(view).mean(axis=0)
    against = attacks.create("krum")(view)[0] - centre
    along = attacks.create("krum-along")(view)[0] - centre
    assert (np.sign(against) == -np.sign(change)).all()
    assert (np.sign(along) == np.sign(change)).all()


def test_supporters_lie_within_a_tiny_distance(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=4, models=8)
    sent = FangKrum(epsilon=0.01)(view, rng=np.random.default_rng(0))
    step = np.abs(sent[0] - benign_of(view).mean(axis=0)).max()
    assert 0 < np.abs(sent[1:] - sent[0]).max() <= 0.01 * step * (1 + 1e-9)
    same = FangKrum(epsilon=0)(view)
    np.testing.assert_array_equal(same, np.broadcast_to(same[0], same.shape))


def test_krum_attack_heeds_the_f_that_the_victim_uses(make_view: Callable[..., View]) -> None:
    differing = 0
    for seed in range(10):
        view = make_view(attackers=3, models=8, seed=seed)
        for f in (2, 3, 5):
            assert krum_chooses_attackers(view, FangKrum(f=f)(view), f)
        differing += not np.allclose(FangKrum(f=2)(view)[0], FangKrum(f=5)(view)[0])
    assert differing > 0


def test_attackers_who_are_each_others_nearest_still_send_finite_heads(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=9, models=3)
    sent = attacks.create("krum")(view)
    assert np.isfinite(sent).all()
    assert krum_chooses_attackers(view, sent, 9)


def test_a_krum_that_cannot_work_gets_the_benign_mean(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=1, models=1)
    np.testing.assert_allclose(FangKrumAlong(f=5)(view)[0], benign_of(view).mean(axis=0), atol=1e-5)


def test_victims_with_fewer_heads_are_led_by_what_they_receive(make_view: Callable[..., View]) -> None:
    view = make_view(batch=(3,), attackers=3, models=9)
    mask = np.ones((3, 9), dtype=bool)
    mask[1, 5:], mask[2, :3] = False, False
    sent = attacks.create("krum")(replace(view, inbox_mask=mask), rng=np.random.default_rng(0))
    for i in range(3):
        alone = View(
            own=view.own[i],
            inbox=np.asarray(view.inbox)[i, mask[i]],
            victim=np.asarray(view.victim)[i],
            update=np.asarray(view.update)[i],
        )
        assert krum_chooses_attackers(alone, sent[i], 3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 20))
def test_coordinates_keep_lengths_and_distances(seed: int, count: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2, count, width)) * 10.0 ** rng.integers(-3, 3, size=(2, count, 1))
    points = _coordinates(np, vectors @ np.matrix_transpose(vectors))
    assert points.shape == (2, count, count)
    gram, expected = points @ np.matrix_transpose(points), vectors @ np.matrix_transpose(vectors)
    lengths = np.linalg.norm(vectors, axis=-1)
    assert (np.abs(gram - expected) <= 1e-12 * lengths[:, :, None] * lengths[:, None, :]).all()


@pytest.mark.parametrize("along", [False, True])
@given(seed=st.integers(0, 2**32 - 1), b=st.floats(1.1, 5))
def test_trimmed_mean_lies_beyond_the_benign_extremes(
    scattered: Callable[..., View], along: bool, seed: int, b: float
) -> None:
    view = scattered(seed=seed, attackers=3, models=5, spread=0.5)
    attack = attacks.create("trimmed-mean-along" if along else "trimmed-mean", b=b)
    sent = attack(view, rng=np.random.default_rng(seed))
    benign, change = benign_of(view), change_of(view)
    low, high = benign.min(axis=0), benign.max(axis=0)
    above = (change > 0) == along
    assert (sent >= high)[:, above].all()
    assert (sent <= low)[:, ~above].all()
    # And within the published interval.
    farthest_above = np.where(high > 0, b * high, high / b)
    farthest_below = np.where(low > 0, low / b, b * low)
    assert (sent <= farthest_above + 1e-9)[:, above].all()
    assert (sent >= farthest_below - 1e-9)[:, ~above].all()


def test_trimmed_mean_fills_its_interval_and_draws_for_each_attacker() -> None:
    head = np.array([[2.0, -2.0, 2.0, -2.0]])
    view = View(
        own=np.zeros((500, 1, 4)),
        inbox=np.repeat(head[None], 3, axis=0),
        victim=head,
        update=np.array([[-1.0, -1.0, 1.0, 1.0]]),  # the first two fall, the others rise
    )
    sent = attacks.create("trimmed-mean")(view, rng=np.random.default_rng(0))[:, 0]
    for column, (low, high) in enumerate([(2, 4), (-2, -1), (1, 2), (-4, -2)]):
        values = sent[:, column]
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high


@pytest.mark.parametrize("name", ["trimmed-mean", "krum"])
def test_the_change_may_be_the_way_to_the_neighbours(scattered: Callable[..., View], name: str) -> None:
    view = scattered(seed=3, attackers=4, models=7, spread=0.5)
    way = benign_of(view).mean(axis=0) - np.asarray(view.victim)
    told = attacks.create(name)(replace(view, update=way), rng=np.random.default_rng(0))
    found = attacks.create(name, change="neighbours")(view, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found, told, rtol=1e-9)
    with pytest.raises(ValueError, match="change must be one of training, neighbours, not 'up'"):
        attacks.create(name, change="up")


def test_trimmed_mean_moves_the_rule_it_is_made_for(make_view: Callable[..., View]) -> None:
    view = make_view(attackers=3, models=6, spread=0.2)
    honest = TrimmedMean(f=3)(view.victim, view.inbox).head
    change = np.sign(change_of(view))
    for name, sign in (("trimmed-mean", -1), ("trimmed-mean-along", 1)):
        sent = attacks.create(name)(view, rng=np.random.default_rng(0))
        moved = TrimmedMean(f=3)(view.victim, np.concatenate([np.asarray(view.inbox), sent])).head - honest
        assert np.mean(moved * change) * sign > 0.02
