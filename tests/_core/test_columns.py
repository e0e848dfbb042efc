"""Sorting by columns: the right sums, whatever the number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bristle import rules
from bristle._core import sorting as columns
from bristle._core import threads
from bristle._core.sorting import sorts_columns, sum_of_sorted, sums_of_sorted_columns


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("batch", "count", "width"), [(1, 48, 5000), (2, 49, 1365), (3, 64, 17), (1, 400, 333)])
def test_sums_are_those_of_sorted_values(dtype: Any, batch: int, count: int, width: int) -> None:
    heads = np.random.default_rng(count).standard_normal((batch, count, width)).astype(dtype)
    ordered = np.sort(heads, axis=1).astype(np.float64)
    for wanted in (range(count), range(8, count - 8), range((count - 1) // 2, count // 2 + 1)):
        sums = sums_of_sorted_columns(heads[:, 0], heads[:, 1:], wanted)
        assert sums.dtype == dtype
        exact = ordered[:, wanted.start : wanted.stop].sum(axis=1)
        np.testing.assert_allclose(sums, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    heads = np.random.default_rng(1).standard_normal((2, 70, 9001)).astype(np.float32)
    answers = []
    for number in (1, workers):
        monkeypatch.setattr(threads, "threads", lambda number=number: number)
        answers.append(sums_of_sorted_columns(heads[:, 0], heads[:, 1:], range(9, 61)))
    assert answers[0].tobytes() == answers[1].tobytes()


def test_blocks_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = np.random.default_rng(1).standard_normal((1, 50, 3001)).astype(np.float32)
    whole = sums_of_sorted_columns(heads[:, 0], heads[:, 1:], range(9, 41))
    monkeypatch.setattr(columns, "BLOCK", 1 << 11)
    assert sums_of_sorted_columns(heads[:, 0], heads[:, 1:], range(9, 41)).tobytes() == whole.tobytes()


def test_only_many_large_models_are_sorted_by_columns() -> None:
    assert sorts_columns(np, 64, 65_536)
    assert not sorts_columns(np, 40, 1 << 20)
    assert not sorts_columns(np, 64, 8_000)
    assert not sorts_columns(None, 64, 65_536)


def test_the_median_is_that_of_the_network_to_the_bit() -> None:
    heads = np.random.default_rng(2).standard_normal((64, 4, 1 << 13)).astype(np.float32)
    by_column = rules.Median()(heads[0], heads[1:]).head
    by_network = sum_of_sorted(np, [heads], range(31, 33)) / 2
    assert by_column.tobytes() == by_network.tobytes()


@pytest.mark.parametrize("rule", [rules.TrimmedMean(f=8), rules.Median()])
def test_rules_leave_unfit_models_out_of_large_calls(rule: rules.Rule) -> None:
    heads = np.random.default_rng(3).standard_normal((66, 4, 1 << 13)).astype(np.float32)
    heads[5], heads[17, 0, 0] = np.inf, np.nan
    decision = rule(heads[0], heads[1:])
    fit = np.delete(heads, [5, 17], axis=0)
    assert decision.head.tobytes() == rule(fit[0], fit[1:]).head.tobytes()
