"""Contents of a report: plain values, checked on construction."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class LineKind(StrEnum):
    """The source of a line, which determines its style."""

    RULE = "rule"  # measured by us: solid, with the rule's colour and marker
    AUTHOR = "author"  # the author's own run of the rule of that label: dotted, in the rule's colour
    REFERENCE = "reference"  # what the rules are held against (oracle, local): grey and dashed


class Source(StrEnum):
    """The source of a claim."""

    PAPER = "paper"
    TARGET = "target"
    OBSERVATION = "observation"


class Better(StrEnum):
    """The better direction of the y axis."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve, with a band from `low` to `high` where there is one. NaN in `y` leaves a gap.

    The label is the rule's name, also for the author's run of it.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    kind: LineKind | str = LineKind.RULE

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", LineKind(self.kind))
        if (self.low is None) != (self.high is None):
            raise ValueError(f"line {self.label!r}: a band needs both low and high")
        lengths = {len(values) for values in (self.x, self.y, self.low, self.high) if values is not None}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"line {self.label!r}: x, y, low and high must be equally long and not empty")
        for values in (self.x, self.y, self.low or (), self.high or ()):
            if any(math.isinf(value) for value in values):
                raise ValueError(f"line {self.label!r}: infinite values cannot be drawn; leave them out or use NaN")
        if any(math.isnan(value) for value in self.x):
            raise ValueError(f"line {self.label!r}: x must be numbers")
        if all(math.isnan(value) for value in self.y):
            raise ValueError(f"line {self.label!r}: y holds no number")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Axes with lines. `better` None: an accuracy or an F1 score is better higher, anything else is not ranked."""

    title: str
    lines: tuple[Line, ...]
    xlabel: str
    ylabel: str
    ylim: tuple[float, float] | None = None
    log_x: bool = False
    log_y: bool = False
    better: Better | str | None = None

    def __post_init__(self) -> None:
        words = self.ylabel.lower()
        guess = Better.HIGHER if "accuracy" in words or "f1" in words else Better.NEITHER
        object.__setattr__(self, "better", guess if self.better is None else Better(self.better))
        if not self.lines:
            raise ValueError(f"panel {self.title!r} has no line")
        seen = [(line.label, line.kind) for line in self.lines]
        if len(set(seen)) != len(seen):
            raise ValueError(f"panel {self.title!r}: two lines of one kind have the same label among {seen}")
        if self.ylim is not None and not self.ylim[0] < self.ylim[1]:
            raise ValueError(f"panel {self.title!r}: ylim must rise, and is {self.ylim}")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim, whether it held (None: not measured), and the measured number."""

    claim: str
    held: bool | None
    measured: str
    source: Source | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Source(self.source))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells under {len(self.columns)} columns")


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a report; its figure's files have its name. A blank line in the text starts a paragraph."""

    name: str
    title: str
    text: str
    panels: tuple[Panel, ...] = ()
    tables: tuple[Table, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        if not FILE_NAME.fullmatch(self.name):
            raise ValueError(f"section name {self.name!r} names files: use letters, digits, dots, dashes, underscores")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report: summary, sections, and facts for reproduction (versions, seeds, machine, date)."""

    title: str
    summary: str
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        names = [section.name.lower() for section in self.sections]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"sections must have different names, and {twice[0]!r} is there twice")
