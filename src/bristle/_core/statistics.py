"""Confidence intervals of means, without a statistics library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

CONFIDENCE = 0.95


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of two or more independent values: mean ± t s / √n.

    t is the quantile of Student's distribution with n - 1 degrees of freedom, so that few values give a wide interval.
    """
    if len(values) < 2:
        raise ValueError("one value has no confidence interval: give at least two, e.g. of two seeds")
    reach = student_quantile((1 + CONFIDENCE) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    mean = fmean(values)
    return mean - reach, mean + reach


def student_quantile(share: float, freedom: int) -> float:
    """Return the t ≥ 0 with P(T ≤ t) = share, for share in [1/2, 1), by bisection."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 + _within(middle, freedom)) / 2 < share else (low, middle)
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """Return P(|T| ≤ √freedom tan(angle)), the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * power / (power + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
