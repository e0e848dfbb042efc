from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle.report import Line, Panel
from bristle.report.words import best_of, last_of, number, one_line, plain, position, seen


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.93449, "0.934"),
        (1.0, "1.000"),
        (0, "0"),
        (0.0, "0.000"),
        (32_000, "32,000"),
        (83_000.0, "83,000"),
        (1234.56, "1,235"),
        (12.345, "12.35"),
        (0.00012345, "0.000123"),
        (math.nan, "-"),
        (-2.5, "-2.500"),
    ],
)
def test_numbers_as_people_write_them(value: float, words: str) -> None:
    assert number(value) == words


@settings(deadline=None)
@given(value=st.floats(-1e300, 1e300))
def test_a_number_in_words_is_near_the_number(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=6e-3, abs=6e-4)


def test_positions() -> None:
    assert [position(value) for value in (0, 300, 300.0, 0.5, 2_500_000)] == ["0", "300", "300", "0.5", "2,500,000"]


@settings(deadline=None)
@given(text=st.text())
def test_plain_text_can_be_written_anywhere(text: str) -> None:
    plain(text).encode("utf-8")
    assert "\n" not in one_line(text)
    assert len(one_line(text, longest=5)) <= 5


def test_the_last_number_counts() -> None:
    line = Line(label="a", x=[1, 2, 3], y=[0.1, 0.2, math.nan], low=[0, 0.1, math.nan], high=[1, 0.3, math.nan])
    assert str(last_of(line)) == "0.200 (0.100 to 0.300)"
    panel = Panel(title="", lines=(line, Line(label="b", x=[3], y=[0.2])), xlabel="x", ylabel="accuracy")
    assert best_of(panel) == {"a", "b"}
    assert "At the end of each line: a 0.200" in seen(panel)


def test_lower_may_be_better() -> None:
    lines = (
        Line(label="a", x=[1], y=[5.0]),
        Line(label="b", x=[1], y=[3.0]),
        Line(label="c", x=[1], y=[1], kind="author"),
    )
    panel = Panel(title="", lines=lines, xlabel="x", ylabel="seconds", better="lower")
    assert best_of(panel) == {"b"}
