"""Looks: fixed for every rule, told apart without colour, visible in both schemes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bristle import rules
from bristle.report import Line, LineKind
from bristle.report.style import DARK_OF, PAPER, REFERENCES, RULES, Styles


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def line(label: str, kind: LineKind = LineKind.RULE) -> Line:
    return Line(label=label, x=[0], y=[0], kind=kind)


@pytest.mark.parametrize("name", [*RULES, *REFERENCES])
def test_colours_are_visible_in_both_schemes(name: str) -> None:
    style = (RULES | REFERENCES)[name]
    assert contrast(style.colour, PAPER) >= 3
    assert contrast(style.dark, DARK_OF[PAPER]) >= 3


def test_every_rule_has_looks_of_its_own() -> None:
    assert set(rules.names()) <= {*RULES, *REFERENCES}
    assert len({style.marker for style in RULES.values()}) == len(RULES)
    assert len({style.colour for style in RULES.values()}) == len(RULES)
    assert len({style.dash for style in REFERENCES.values()}) == len(REFERENCES)


def test_bristle_stands_in_front_and_is_strongest() -> None:
    others = [style for name, style in RULES.items() if name != "bristle"]
    assert all(style.rank > RULES["bristle"].rank and style.width < RULES["bristle"].width for style in others)


def test_the_authors_line_has_the_rules_colour_and_dots() -> None:
    ours, bridge = line("trimmed-mean"), line("BRIDGE", LineKind.AUTHOR)
    styles = Styles.of([ours, bridge])
    assert styles[bridge].colour == styles[ours].colour
    assert styles[bridge].dash
    assert not styles[ours].dash
    assert not styles[bridge].marker
    assert styles[bridge].width < styles[ours].width
    marked = line("bristle (author)", LineKind.AUTHOR)
    assert Styles.of([marked])[marked].colour == RULES["bristle"].colour


@settings(max_examples=40, deadline=None)
@given(labels=st.lists(st.text(max_size=8), unique_by=lambda label: label.strip().lower(), max_size=12))
def test_other_rules_differ_from_known_ones_and_from_each_other(labels: list[str]) -> None:
    lines = [line(label) for label in labels]
    styles = Styles.of(lines)
    looks = [(styles[each].colour, styles[each].marker, styles[each].hollow) for each in lines]
    assert len(set(looks)) == len(looks)
    for each, (_, _, hollow) in zip(lines, looks, strict=True):
        assert hollow == (each.label.strip().lower() not in {*RULES, "bridge"})


def test_looks_do_not_depend_on_the_order_of_lines() -> None:
    lines = [line(label) for label in ("zeta", "alpha", "krum", "beta")]
    forward, backward = Styles.of(lines), Styles.of(lines[::-1])
    assert all(forward[each] == backward[each] for each in lines)
    assert all(forward[one] != forward[other] for one, other in pairwise(lines))
