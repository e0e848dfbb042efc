"""The figures are the paper's: who is in them, and what is done to them."""

from __future__ import annotations

import pytest

from bristle.paper import Figure, figures
from bristle.paper.measured import author_curve

FOUR = {"label-flip", "additive-noise", "krum", "trimmed-mean"}


def figure(name: str) -> Figure:
    return next(found for found in figures() if found.name == name)


def worlds(name: str) -> list[tuple[int, int, str, int, int, int | None]]:
    settings = [panel.setting for panel in figure(name).panels]
    return [(s.peers, s.attackers, s.attack, s.classes_per_peer, s.samples_per_class, s.hears) for s in settings]


def test_every_figure_of_the_paper_is_there() -> None:
    assert {found.name for found in figures()} >= {
        "regular-vs-transfer", "non-iid", "byzantine-iid", "byzantine-non-iid", "attackers", "degree",
        "connection-ratio", "intro", "speed", "traffic", "distances", "curves", "sybil", "samples",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("intro", [(10, 7, "label-flip", 4, 2, None)]),
        ("non-iid", [(10, 0, "none", 10, 2, None), (10, 0, "none", 4, 2, None)]),
        ("byzantine-non-iid", [(10, 5, attack, 4, 2, None) for attack in FOUR]),
        ("samples", [(10, 5, attack, 4, 10, None) for attack in FOUR]),
        ("byzantine-iid", [(5, 5, attack, 10, 2, None) for attack in FOUR]),
        ("attackers", [(p, a, "label-flip", 4, 2, None) for p, a in ((9, 1), (10, 5), (10, 10), (10, 24))]),
        ("degree", [(10, 5, "label-flip", classes, 2, None) for classes in (2, 4, 6)]),
        ("connection-ratio", [(100, count, "label-flip", 4, 2, count) for count in (2, 5)]),
        ("sybil", [(10, 100, "sybil", 4, 2, None)]),
    ],
)
def test_worlds(name: str, expected: list[tuple[int, int, str, int, int, int | None]]) -> None:
    assert sorted(worlds(name), key=str) == sorted(expected, key=str)


def test_numbers_are_those_printed_in_the_paper() -> None:
    printed = {found.in_paper: found.name for found in figures() if found.in_paper}
    assert printed == {
        "2": "intro", "4": "distances", "5 and 7": "curves", "8": "regular-vs-transfer", "9": "byzantine-iid",
        "10": "non-iid", "11": "byzantine-non-iid", "12": "attackers", "13": "degree", "14": "connection-ratio",
        "15": "speed",
    }  # fmt: skip
    assert figure("degree").heading == "Degree of non-i.i.d.-ness (figure 13 of the paper)"
    assert figure("traffic").heading == "Traffic"


def test_names_are_unique() -> None:
    names = [found.name for found in figures()]
    assert len(set(names)) == len(names)
    for found in figures():
        panels = [panel.name for panel in (*found.panels, *found.full_panels)]
        assert len(set(panels)) == len(panels)


def test_the_authors_run_of_each_panel_is_found() -> None:
    """A misspelt experiment would silently leave his line out."""
    for found in figures():
        for panel in (*found.panels, *found.full_panels):
            if panel.author is not None:
                rule = "fedavg" if panel.regular else "bristle"
                assert author_curve(panel, rule) is not None, (found.name, panel.name, panel.author)
