"""Confidence intervals of means."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import pytest

from bristle._core.statistics import mean_interval, student_quantile


@pytest.mark.parametrize(
    ("freedom", "published"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (120, 1.9799), (1000, 1.9623)],
)
def test_quantiles_are_those_of_the_printed_tables(freedom: int, published: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(published, abs=5e-5)


def test_the_interval_lies_about_the_mean() -> None:
    values = [0.91, 0.93, 0.96, 0.92]
    low, high = mean_interval(values)
    assert (low + high) / 2 == pytest.approx(fmean(values))
    assert (high - low) / 2 == pytest.approx(3.18245 * stdev(values) / math.sqrt(4), rel=1e-5)
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5)


def test_one_value_has_none() -> None:
    with pytest.raises(ValueError, match="give at least two"):
        mean_interval([0.5])
