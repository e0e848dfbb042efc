"""The author's curves, as the page that settles the algorithm quotes them."""

from __future__ import annotations

import pytest

from bristle.paper import figures
from bristle.paper.measured import author_curve, author_timing


@pytest.mark.parametrize(
    ("figure", "panel", "last"),
    [
        ("non-iid", "10 classes", 0.923),
        ("non-iid", "4 classes", 0.880),
        ("byzantine-iid", "label-flip 5+5", 0.898),
        ("byzantine-iid", "trimmed-mean 5+5", 0.868),
        ("byzantine-non-iid", "label-flip", 0.869),
        ("byzantine-non-iid", "additive-noise", 0.897),
        ("byzantine-non-iid", "krum", 0.876),
        ("byzantine-non-iid", "trimmed-mean", 0.773),
        ("attackers", "9+1", 0.868),
        ("attackers", "10+10", 0.901),
        ("attackers", "10+24", 0.901),
        ("degree", "2 classes", 0.774),
        ("degree", "6 classes", 0.872),
        ("connection-ratio", "2 %", 0.40),
        ("connection-ratio", "5 %", 0.91),
    ],
)
def test_last_accuracy_of_bristle(figure: str, panel: str, last: float) -> None:
    found = next(one for one in figures() if one.name == figure)
    curve = author_curve(next(one for one in found.panels if one.name == panel), "bristle")
    assert curve is not None
    assert curve.accuracy[-1] == pytest.approx(last, abs=0.006)
    assert list(curve.iterations) == sorted(set(curve.iterations))


def test_timing_has_all_rules_up_to_96_peers() -> None:
    timing = author_timing()
    assert set(timing) == {"fedavg", "median", "krum", "bridge", "mozi", "bristle"}
    assert all([peers for peers, _ in pairs] == [1, 2, 4, 8, 16, 32, 64, 96] for pairs in timing.values())
    assert dict(timing["bristle"])[96] == 1854.52
