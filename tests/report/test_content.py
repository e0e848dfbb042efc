from __future__ import annotations

import math
from typing import Any

import pytest

from bristle.report import Better, Finding, Line, LineKind, Panel, Report, Section, Table


def line(**given: Any) -> Line:
    return Line(**({"label": "krum", "x": [1, 2], "y": [0.1, 0.2]} | given))


def panel(**given: Any) -> Panel:
    return Panel(**({"title": "t", "lines": (line(),), "xlabel": "x", "ylabel": "accuracy"} | given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"y": [0.1]}, "equally long"),
        ({"x": [], "y": []}, "not empty"),
        ({"low": [0, 0]}, "both low and high"),
        ({"y": [0.1, math.inf]}, "infinite"),
        ({"y": [math.nan, math.nan]}, "no number"),
        ({"x": [math.nan, 1]}, "x must be numbers"),
        ({"kind": "ours"}, "'ours' is not a valid LineKind"),
    ],
)
def test_lines_that_cannot_be_drawn(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        line(**given)


def test_panels_sections_tables_and_reports_are_checked() -> None:
    with pytest.raises(ValueError, match="no line"):
        panel(lines=())
    with pytest.raises(ValueError, match="same label"):
        panel(lines=(line(), line()))
    with pytest.raises(ValueError, match="ylim must rise"):
        panel(ylim=(1, 0))
    for name in ("", "../up", "a/b", ".hidden", "a b"):
        with pytest.raises(ValueError, match="names files"):
            Section(name=name, title="", text="")
    with pytest.raises(ValueError, match="2 cells under 1"):
        Table(title="t", columns=("a",), rows=(("a", 1),))
    with pytest.raises(ValueError, match="rumour"):
        Finding(claim="", held=True, measured="", source="rumour")
    twice = (Section(name="A", title="", text=""), Section(name="a", title="", text=""))
    with pytest.raises(ValueError, match="twice"):
        Report(title="", summary="", sections=twice, facts=())


def test_what_is_better() -> None:
    assert panel().better is Better.HIGHER
    assert panel(ylabel="F1 score").better is Better.HIGHER
    assert panel(ylabel="bytes").better is Better.NEITHER
    assert panel(ylabel="bytes", better="lower").better is Better.LOWER
    assert line(kind="author").kind is LineKind.AUTHOR
    assert panel(lines=(line(), line(kind="author"))).title == "t"
