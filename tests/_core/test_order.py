from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bristle._core import argsort, namespace, sort_rows, spread

ROWS = hnp.arrays(np.float32, st.tuples(st.integers(1, 70), st.integers(1, 6)), elements=st.integers(-3, 3))


@given(ROWS)
@settings(deadline=None)
def test_network_sorts_in_every_library(rows: np.ndarray[Any, Any]) -> None:
    expected = np.sort(rows, axis=0)
    for convert in (np.array, torch.asarray, array_api_strict.asarray):
        stacks = [convert(rows[:1]), convert(rows[1:])]
        ordered = sort_rows(namespace(stacks[0]), stacks)
        np.testing.assert_array_equal(np.stack([np.asarray(row) for row in ordered]), expected)


@given(ROWS, st.data())
@settings(deadline=None)
def test_only_what_is_wanted_need_be_right(rows: np.ndarray[Any, Any], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    expected, untouched = np.sort(rows, axis=0)[start:stop], rows.copy()
    exact = sort_rows(np, [rows], wanted=range(start, stop))
    np.testing.assert_array_equal(np.stack(exact[start:stop]), expected)
    as_set = sort_rows(np, [rows[:1], rows[1:]], wanted=range(start, stop), as_set=True)
    np.testing.assert_array_equal(np.sort(np.stack(as_set[start:stop]), axis=0), expected)
    np.testing.assert_array_equal(rows, untouched)


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.integers(0, 3)))
@settings(deadline=None)
def test_equal_values_keep_their_order_everywhere(values: np.ndarray[Any, Any]) -> None:
    expected = sorted(range(len(values)), key=lambda i: values[i])
    for convert in (np.asarray, torch.asarray, array_api_strict.asarray):
        array = convert(values)
        assert np.asarray(argsort(namespace(array), array)).tolist() == expected


@given(st.integers(1, 5), st.integers(1, 8), st.data())
@settings(deadline=None)
def test_spread_undoes_a_selection(batch: int, count: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    chosen_count = data.draw(st.integers(0, count))
    order = np.stack([rng.permutation(count) for _ in range(batch)])
    values = rng.random((batch, count, 2))
    chosen = np.take_along_axis(values, order[:, :chosen_count, None], axis=1)
    laid_out = spread(np, chosen, order, -1)
    for b in range(batch):
        for j in range(count):
            selected = j in order[b, :chosen_count]
            np.testing.assert_array_equal(laid_out[b, j], values[b, j] if selected else [-1, -1])
