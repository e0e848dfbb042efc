from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle._core.sorting import Workspace, sum_of_sorted
from bristle._core.sorting_network import SortingNetwork, network_for, plan_for


def run(network: SortingNetwork, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Apply the comparators one by one; an output that is not kept becomes garbage."""
    rows = rows.copy()
    for low, high, keep_low, keep_high in network.comparators:
        smaller, larger = np.minimum(rows[low], rows[high]), np.maximum(rows[low], rows[high])
        rows[low], rows[high] = smaller if keep_low else 99, larger if keep_high else 99
    return rows[list(network.order)]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 16])
def test_every_network_sorts_all_zeros_and_ones(count: int) -> None:
    """A network that sorts these sorts everything (Knuth's zero-one principle)."""
    rows = np.array(list(product((0, 1), repeat=count)), dtype=np.int8).T
    np.testing.assert_array_equal(run(network_for(count, 0, count, False), rows), np.sort(rows, axis=0))


@pytest.mark.parametrize(("count", "extremes"), [(4, 1), (9, 1), (13, 3), (16, 2), (17, 2), (20, 5), (20, 3)])
def test_extremes_are_told_from_all_others_in_zeros_and_ones(count: int, extremes: int) -> None:
    bits = np.arange(1 << count, dtype=np.uint32)[:: 1 if count <= 17 else 5]
    rows = ((bits[None, :] >> np.arange(count, dtype=np.uint32)[:, None]) & 1).astype(np.int8)
    kept = run(network_for(count, extremes, count - extremes, True), rows)[extremes : count - extremes]
    np.testing.assert_array_equal(kept.sum(axis=0), np.sort(rows, axis=0)[extremes : count - extremes].sum(axis=0))


def test_setting_few_extremes_aside_takes_fewer_comparators_than_sorting() -> None:
    assert network_for(64, 8, 56, True).cost == 656
    assert network_for(64, 0, 64, False).cost == 1086
    assert network_for(256, 32, 224, True).cost < 0.75 * network_for(256, 0, 256, False).cost


@given(st.integers(1, 140), st.data())
@settings(max_examples=60, deadline=None)
def test_plans_sum_what_is_left_between_the_extremes(count: int, data: st.DataObject) -> None:
    extremes = data.draw(st.integers(0, (count - 1) // 2))
    cut = data.draw(st.integers(0, count))
    rows = np.random.default_rng(count).integers(-50, 50, (count, 2, 3)).astype(np.float32)
    before, workspace = rows.copy(), Workspace()
    wanted = range(extremes, count - extremes)
    expected = np.sort(rows, axis=0)[extremes : count - extremes].sum(axis=0)
    for stacks in ([rows], [rows[:cut], rows[cut:]], [row[None] for row in rows]):
        for _ in range(2):
            np.testing.assert_array_equal(sum_of_sorted(np, stacks, wanted, workspace=workspace), expected)
    np.testing.assert_array_equal(rows, before)


def test_rows_that_lie_together_are_compared_together() -> None:
    steps = plan_for((1, 63), 8, 56, True).steps
    assert len(steps) < network_for(64, 8, 56, True).cost / 5
