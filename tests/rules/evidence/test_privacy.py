"""Statements with noise: sensitivities that the proof needs, the scale of the noise, and what is stated at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import rules
from bristle.learning.metrics import Evaluation
from bristle.rules.evidence import Evidence, Privacy, state, unfit
from bristle.rules.evidence.privacy import FOR_COUNTS, FOR_SCATTER, FOR_TRACE, RADIUS, clipped
from bristle.simulation import Scenario, World, measure
from tests.support.evidence import Town
from tests.support.fashion import features_of_digits


class Silent(np.random.Generator):
    """Draws nothing but zeros: what is stated then has no noise."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def standard_normal(self, size=None, dtype=np.float64, out=None):  # type: ignore[no-untyped-def]
        return np.zeros(() if size is None else size, dtype)


def people(count: int, features: int, classes: int, seed: int, scale: float = 1.0) -> Evaluation:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    return Evaluation(scale * rng.standard_normal((count, features)) + 2.0 * np.eye(classes, features)[labels], labels)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("releases", [1, 12])
def test_all_releases_together_give_epsilon(epsilon: float, delta: float, releases: int) -> None:
    rho = releases * Privacy(epsilon=epsilon, clip=1.0, delta=delta, releases=releases).rho
    assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) == pytest.approx(epsilon)


@pytest.mark.parametrize("last", [FOR_TRACE, FOR_SCATTER])
def test_parts_of_a_release_add_up_to_its_rho(last: float) -> None:
    """Sums change by at most `clip`, counts by 1, the trace by clip^2 and the scatter by RADIUS^2 clip^2."""
    privacy = Privacy(epsilon=3.0, clip=7.0, releases=2)
    spent = 0.0
    for part, most in ((1 - FOR_COUNTS - last, 7.0), (FOR_COUNTS, 1.0), (last, 49.0 if last == FOR_TRACE else 7.0)):
        spent += most**2 / (2 * privacy.noise(part, most) ** 2)
    assert spent == pytest.approx(privacy.rho)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 30),
    features=st.integers(1, 12),
    length=st.floats(0, 1e6),
    clip=st.floats(0.1, 100),
)
def test_one_sample_more_changes_sums_and_scatter_by_no_more_than_noise_is_made_for(
    seed: int, count: int, features: int, length: float, clip: float
) -> None:
    rng = np.random.default_rng(seed)
    x, centre = rng.standard_normal((count + 1, features)), rng.standard_normal(features) * length
    x[-1] *= length
    x = clipped(x, clip)
    assert np.linalg.norm(x.sum(axis=0) - x[:-1].sum(axis=0)) <= clip * (1 + 1e-9)
    assert abs((x**2).sum() - (x[:-1] ** 2).sum()) <= clip**2 * (1 + 1e-9)
    about = clipped(x - centre, RADIUS * clip)
    change = about.T @ about - about[:-1].T @ about[:-1]
    assert np.linalg.norm(change) <= (RADIUS * clip) ** 2 * (1 + 1e-6)


@given(seed=st.integers(0, 10**6), length=st.floats(0.1, 1e6), label=st.integers(0, 2))
@settings(max_examples=25)
def test_without_noise_one_sample_more_moves_the_stated_sums_by_at_most_clip(
    seed: int, length: float, label: int
) -> None:
    held = people(3000, 6, 3, seed, 4.0)
    new = np.random.default_rng(seed).standard_normal(6)
    more = Evaluation(
        np.concatenate([held.features, length * new[None]]), np.concatenate([held.labels, np.array([label])])
    )
    privacy = Privacy(epsilon=4.0, clip=3.0)
    before, after = (privacy.state(one, 3, rng=Silent()) for one in (held, more))
    counts = np.bincount(more.labels)
    sums = after.rows * counts[:, None] - before.rows * np.bincount(held.labels)[:, None]
    assert np.linalg.norm(sums) <= 3.0 * (1 + 1e-9)


def test_noise_on_sums_and_counts_has_the_scale_that_is_promised() -> None:
    count, clip = 4000, 5.0
    privacy = Privacy(epsilon=6.0, clip=clip)
    features = np.zeros((count, 40))
    features[:, 0] = 100.0  # clipped to (5, 0, 0, ...)
    held = Evaluation(features, np.zeros(count, dtype=np.int64))
    rows = np.stack([privacy.state(held, 1, rng=np.random.default_rng(seed)).rows[0] for seed in range(600)])
    whole = 1 - FOR_COUNTS - FOR_SCATTER
    sums = clip / math.sqrt(2 * whole * privacy.rho)
    counts = 1 / math.sqrt(2 * FOR_COUNTS * privacy.rho)
    assert rows[:, 1:].std() * count == pytest.approx(sums, rel=0.05)
    assert rows[:, 0].std() * count == pytest.approx(math.hypot(sums, clip * counts), rel=0.15)


def test_noise_on_the_scatter_has_the_scale_that_is_promised() -> None:
    """Its trace has noise of sqrt(D) standard deviations."""
    count, features = 20_000, 4
    privacy = Privacy(epsilon=2.0, clip=2.0)
    x = np.random.default_rng(0).choice([-0.5, 0.5], (count, features))
    held = Evaluation(x, np.zeros(count, dtype=np.int64))
    traces = []
    for seed in range(600):
        said = privacy.state(held, 1, rng=np.random.default_rng(seed))
        assert said.factors is not None
        assert said.diagonal is not None
        traces.append(float((said.factors**2).sum() + said.diagonal.sum()))
    expected = (RADIUS * 2.0) ** 2 / math.sqrt(2 * FOR_SCATTER * privacy.rho) * math.sqrt(features)
    assert np.mean(traces) == pytest.approx(1.0, rel=0.02)
    assert np.std(traces) * count == pytest.approx(expected, rel=0.3)


def test_many_samples_are_stated_nearly_as_they_are() -> None:
    held = people(60_000, 8, 2, 3)
    exact, noisy = state(held, 2), Privacy(epsilon=8.0, clip=12.0).state(held, 2, rng=np.random.default_rng(1))
    np.testing.assert_allclose(noisy.rows, exact.rows, atol=0.05)
    assert noisy.factors is not None
    assert noisy.diagonal is not None
    scatter = noisy.factors.T @ noisy.factors + np.diag(noisy.diagonal)
    np.testing.assert_allclose(scatter, np.eye(8), atol=0.1)
    assert (noisy.counts > 10_000).all()
    assert (noisy.counts <= 31_000).all()


def test_classes_with_few_samples_are_not_stated() -> None:
    held = Evaluation(np.ones((303, 30)), np.repeat([0, 1, 2], [200, 100, 3]))
    for seed in range(30):
        said = Privacy(epsilon=2.0, clip=6.0).state(held, 4, rng=np.random.default_rng(seed))
        assert (np.asarray(said.counts) > 0).tolist() == [True, True, False, False]
        assert not np.asarray(said.rows)[2:].any()
        assert (np.asarray(said.counts) % 1 == 0).all()
        assert unfit(said, 4, 30) is None


def test_nobody_can_draw_the_noise_again() -> None:
    held, privacy = people(500, 5, 2, 0), Privacy(epsilon=4.0, clip=5.0)
    assert not np.array_equal(privacy.state(held, 2).rows, privacy.state(held, 2).rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0, "clip": 1}, "epsilon must be a number above 0"),
        ({"epsilon": math.inf, "clip": 1}, "epsilon must be a number above 0"),
        ({"epsilon": 1, "clip": -1}, "clip must be a number above 0"),
        ({"epsilon": 1, "clip": 1, "delta": 0}, "delta must be a number between 0 and 1"),
        ({"epsilon": 1, "clip": 1, "delta": 1.0}, "delta must be a number between 0 and 1"),
        ({"epsilon": 1, "clip": 1, "releases": 0}, "releases must be a whole number of at least 1"),
        ({"epsilon": 1}, "privacy takes epsilon, clip, delta and releases"),
        ({"epsilon": 1, "clip": 1, "noise": 3}, "privacy takes epsilon, clip, delta and releases"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rules.create("evidence", privacy=options)


def test_privacy_must_be_a_table() -> None:
    with pytest.raises(ValueError, match="privacy must be a table"):
        rules.create("evidence", privacy=4)


def test_a_receiver_uses_its_own_samples_as_they_are() -> None:
    town = Town.of(5, classes=3)
    held = [town.samples(1, [0, 1], 40), town.samples(2, [0, 1, 2], 300), town.samples(3, [1, 2], 300)]
    rule = Evidence(privacy=Privacy(epsilon=8.0, clip=20.0))
    said = [rule.share(one, town.classes, rng=np.random.default_rng(place)) for place, one in enumerate(held)]
    noisy = rule(said[0], said[1:], evaluation=held[0])
    exact = rule(state(held[0], town.classes), said[1:], evaluation=held[0])
    np.testing.assert_array_equal(noisy.head, exact.head)


def test_withheld_classes_are_not_stated_but_used() -> None:
    held = people(90, 10, 3, 0)
    rule = Evidence(withheld=(1,))
    said = rule.share(held, 3)
    assert np.asarray(said.counts).tolist() == [30, 0, 30]
    assert not np.asarray(said.rows)[1].any()
    assert rule(said, [], evaluation=held).answers[0].known.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="withheld has the class 3, but classes are numbered 0 to 2"):
        Evidence(withheld=(3,)).share(held, 3)
    with pytest.raises(ValueError, match="withheld must be a whole number"):
        Evidence(withheld=(-1,))


def test_coarse_counts_are_powers_of_two() -> None:
    held = Evaluation(np.random.default_rng(0).standard_normal((84, 4)), np.repeat([0, 1, 2], [64, 19, 1]))
    said = Evidence(coarse_counts=True).share(held, 4)
    assert np.asarray(said.counts).tolist() == [64, 16, 1, 0]
    np.testing.assert_array_equal(said.rows, state(held, 4).rows)


def test_a_world_with_noise_repeats_and_learns() -> None:
    data = features_of_digits()
    rule = rules.create("evidence", privacy={"epsilon": 500.0, "clip": 32.0})
    scenario = Scenario(peers=4, rule=rule, iterations=1, samples_per_class=15, reuse=True, seed=1)
    worlds = [World(scenario, data) for _ in range(2)]
    found = [measure(world, world.advance()).accuracy for world in worlds]
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0].mean() > 0.6
