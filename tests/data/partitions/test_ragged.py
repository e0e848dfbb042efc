import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bristle.data.partitions.allocation import Ragged, spread

rows_strategy = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8)


def make(rows: list[list[int]]) -> Ragged:
    flat = np.array([value for row in rows for value in row], dtype=np.int64)
    return Ragged.from_lengths(flat, np.array([len(row) for row in rows], dtype=np.int64))


@given(rows=rows_strategy)
def test_rows_and_padding(rows: list[list[int]]) -> None:
    ragged = make(rows)
    assert [ragged[at].tolist() for at in range(len(ragged))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]
    padded = ragged.padded()
    assert padded.shape == (len(rows), max(map(len, rows), default=0))
    assert [[value for value in row if value >= 0] for row in padded.tolist()] == rows
    for row, length in zip(padded, ragged.lengths, strict=True):
        assert (row[length:] == -1).all()


@given(rows=rows_strategy.filter(bool), data=st.data())
def test_choosing_rows(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    picked = make(rows).rows(np.array(chosen, dtype=np.int64))
    assert [picked[at].tolist() for at in range(len(picked))] == [rows[at] for at in chosen]


def test_spread() -> None:
    assert spread(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]


def test_no_such_row() -> None:
    with pytest.raises(IndexError, match="row 1 of 1"):
        make([[1]])[1]
