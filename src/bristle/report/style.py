"""Styles of rules: the same colour and marker in every figure, distinguishable without colour.

Every colour has a contrast of at least 3 to 1 with the page, in the light scheme and in the dark one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bristle.report.content import Line, LineKind

Dash = tuple[float, ...]

PAPER, INK, MUTED, GRID = "#ffffff", "#1c2126", "#59636e", "#e2e6ea"
DARK_OF = {PAPER: "#15191e", INK: "#e8ebee", MUTED: "#a3adb8", GRID: "#333b44"}
DOTTED: Dash = (1.0, 1.6)
AUTHORS, REFERENCE = 1000, 2000  # ranks: all of these stand behind the rules


@dataclass(frozen=True, kw_only=True)
class Style:
    """The style of a line. Lines with a smaller `rank` are drawn in front."""

    colour: str
    dark: str
    marker: str = ""
    hollow: bool = False
    dash: Dash = ()
    width: float = 1.3
    rank: int = 10


def _rule(rank: int, colour: str, dark: str, marker: str, width: float = 1.3) -> Style:
    return Style(colour=colour, dark=dark, marker=marker, width=width, rank=rank)


RULES = {
    "bristle": _rule(0, "#0055b8", "#5cadff", "o", 2.4),
    "evidence": _rule(1, "#b00020", "#ff7b8e", "+", 2.2),
    "fedavg": _rule(3, "#bf7f00", "#f2b632", "D"),
    "median": _rule(4, "#00815b", "#38c997", "^"),
    "krum": _rule(5, "#b5408c", "#f190c8", "X"),
    "trimmed-mean": _rule(6, "#2a93cc", "#8bd3ff", "v"),
    "mozi": _rule(7, "#6b3e26", "#c99b7d", "P"),
    "fltrust": _rule(8, "#5b2a86", "#b79be0", "*"),
    "bulyan": _rule(9, "#7d7a00", "#cfcb4a", "<"),
    "multi-krum": _rule(10, "#d6336c", "#ff85a8", ">"),
    "geometric-median": _rule(11, "#0b7a75", "#4fd1c9", "p"),
    "mean-around-median": _rule(12, "#3f8f29", "#8fdc78", "h"),
    "centered-clipping": _rule(13, "#8a1c1c", "#f08c8c", "d"),
    "self-centered-clipping": _rule(14, "#334155", "#c3cedb", "H"),
    "nearest-neighbour-averaging": _rule(15, "#4c51bf", "#a5a9ff", "8"),
    "balance": _rule(16, "#9c5a1a", "#e5a566", "x"),
    "mda": _rule(17, "#1f6f3d", "#6fce92", "1"),
    "smea": _rule(18, "#7a1fa2", "#d59cf0", "2"),
    "caf": _rule(19, "#00677f", "#66c8de", "3"),
    "cge": _rule(20, "#a03060", "#f09abb", "4"),
}
SAME_RULE = {"bridge": "trimmed-mean"}
REFERENCES = {
    "oracle": Style(colour="#434b54", dark="#ccd3da", dash=(6.0, 2.0), rank=REFERENCE),
    "local": Style(colour="#7c868f", dark="#929da8", dash=(2.6, 1.8), rank=REFERENCE + 1),
}


@dataclass(frozen=True)
class Styles:
    """The styles of all lines of a report."""

    own: dict[str, Style]
    references: dict[str, Style]

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Styles:
        """Assign styles: fixed ones by name, spare ones to other labels in alphabetical order."""
        names: dict[bool, set[str]] = {True: set(), False: set()}
        for line in lines:
            names[line.kind is LineKind.REFERENCE].add(rule_of(line))
        own, references = dict(RULES), dict(REFERENCES)
        for number, name in enumerate(sorted(names[False] - set(own))):
            own[name] = _spare(number)
        for number, name in enumerate(sorted(names[True] - set(references))):
            dash = (6.0, 1.5, *(1.0, 1.5) * (1 + number))
            references[name] = Style(colour=MUTED, dark=DARK_OF[MUTED], dash=dash, rank=REFERENCE + 2 + number)
        return cls(own, references)

    def __getitem__(self, line: Line) -> Style:
        name = rule_of(line)
        if line.kind is LineKind.REFERENCE:
            return self.references[name]
        style = self.own[name]
        if line.kind is LineKind.AUTHOR:
            return Style(colour=style.colour, dark=style.dark, dash=DOTTED, width=1.1, rank=AUTHORS + style.rank)
        return style

    def dark_of(self) -> dict[str, str]:
        """Return every colour that figures use, with its counterpart in the dark scheme."""
        styles = [*self.own.values(), *self.references.values()]
        return DARK_OF | {style.colour: style.dark for style in styles}


def rule_of(line: Line) -> str:
    """Return the name that determines a line's style."""
    name = line.label.strip().lower()
    if line.kind is LineKind.AUTHOR:
        name = name.removesuffix("(author)").strip()
    return SAME_RULE.get(name, name)


def _spare(number: int) -> Style:
    """Return the style of an unknown rule: hollow markers, to distinguish it from known ones."""
    markers = "os^Dvph"
    lent = list(RULES.values())[3 + number % (len(RULES) - 3)]
    return Style(
        colour=lent.colour, dark=lent.dark, marker=markers[number % len(markers)], hollow=True, rank=17 + number
    )
