from __future__ import annotations

import numpy as np
import pytest

from bristle import rules
from bristle.peer.step import Sharing
from bristle.simulation import FeatureData, Precision, Scenario, World
from bristle.simulation.mailbox import Asynchrony
from bristle.simulation.world import published

NOISY = Sharing(clip=0.5, noise=0.25)


def after(data: FeatureData, iterations: int, **options: object) -> World:
    world = World(Scenario(peers=6, classes_per_peer=3, **options), data)  # type: ignore[arg-type]
    for _ in range(iterations):
        world.advance()
    return world


def test_only_what_is_shared_changes(data: FeatureData) -> None:
    local = rules.Local()
    np.testing.assert_array_equal(
        after(data, 8, rule=local).heads, after(data, 8, rule=local, sharing=NOISY).heads, "the own head stays"
    )
    averaging = rules.create("fedavg")
    plain, noisy = after(data, 8, rule=averaging), after(data, 8, rule=averaging, sharing=NOISY)
    assert not np.array_equal(plain.heads, noisy.heads)
    assert np.array_equal(plain.mailbox.heads, plain.heads)
    np.testing.assert_array_equal(noisy.mailbox.heads, published(noisy.scenario, noisy.heads, 8))


def test_loud_noise_costs_what_is_learnt_from_others(data: FeatureData) -> None:
    plain, loud = after(data, 40), after(data, 40, sharing=Sharing(noise=5.0))
    assert plain.accuracy().mean() > loud.accuracy().mean() + 0.1


def test_a_run_with_noise_resumes_to_the_bit(data: FeatureData) -> None:
    whole, half = after(data, 8, sharing=NOISY), after(data, 5, sharing=NOISY)
    again = World(half.scenario, data)
    again.restore(half.arrays())
    for _ in range(3):
        again.advance()
    np.testing.assert_array_equal(again.heads, whole.heads)


ON_GRID = Precision(shared="grid")


def test_heads_on_a_grid_teach_as_well_in_fewer_bytes(data: FeatureData) -> None:
    exact, grid = after(data, 60), after(data, 60, precision=ON_GRID)
    assert abs(exact.accuracy().mean() - grid.accuracy().mean()) < 0.01
    assert (grid.bytes_sent < exact.bytes_sent / 2).all()
    far = np.linalg.norm(grid.mailbox.heads - grid.heads, axis=(1, 2)) / np.linalg.norm(grid.heads, axis=(1, 2))
    assert (far > 0).all()
    assert far.max() < 0.02


def test_a_run_on_a_grid_resumes_to_the_bit(data: FeatureData) -> None:
    options = {"precision": ON_GRID, "asynchrony": Asynchrony(slow=0.5, loss=0.2)}
    whole, half = after(data, 8, **options), after(data, 5, **options)
    again = World(half.scenario, data)
    again.restore(half.arrays())
    for _ in range(3):
        again.advance()
    np.testing.assert_array_equal(again.heads, whole.heads)
    np.testing.assert_array_equal(again.bytes_sent, whole.bytes_sent)


def test_only_heads_go_on_a_grid(data: FeatureData) -> None:
    with pytest.raises(ValueError, match="is for heads, and Evidence needs evidence"):
        World(Scenario(rule=rules.create("evidence"), precision=ON_GRID), data)
