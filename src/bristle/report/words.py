"""Texts of a report: numbers, descriptions of figures, verdicts."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from bristle.report.content import Better, Finding, Line, LineKind, Panel, Source

# What XML and HTML cannot hold, and lone halves of surrogate pairs, which no file can.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def plain(text: str) -> str:
    """Return text that can be written to any file."""
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, *, longest: int | None = None) -> str:
    """Return text in one line, cut to at most `longest` characters."""
    line = " ".join(plain(text).split())
    return line if longest is None or len(line) <= longest else line[: longest - 1].rstrip() + "…"


def number(value: float) -> str:
    """Return a number as text: three decimals below ten, else four digits with separated thousands."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "-"
    size = abs(value)
    if 0 < size < 0.001 or size >= 1e15:
        return f"{value:.3g}"
    decimals = 3 if size < 10 else 0 if value.is_integer() else max(0, 3 - int(math.log10(size)))
    return f"{value:,.{decimals}f}"


def position(value: float) -> str:
    """Return a position on an axis as text, without trailing digits."""
    return f"{value:,g}" if abs(value) < 1e6 else number(float(value))


@dataclass(frozen=True, kw_only=True)
class Last:
    """The last point of a line."""

    x: float
    y: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        band = f" ({self.band})" if self.band else ""
        return f"{number(float(self.y))}{band}"

    @property
    def band(self) -> str:
        """The band in words; empty where there is none."""
        known = self.low is not None and self.high is not None and not math.isnan(self.low + self.high)
        return f"{number(float(self.low or 0))} to {number(float(self.high or 0))}" if known else ""


def last_of(line: Line) -> Last:
    """Return the last point of a line that is a number."""
    at = max(place for place, value in enumerate(line.y) if not math.isnan(value))
    low, high = (None if values is None else values[at] for values in (line.low, line.high))
    return Last(x=line.x[at], y=line.y[at], low=low, high=high)


def best_of(panel: Panel) -> set[str]:
    """Return the labels of the best rules at the end; several if the printed numbers are equal."""
    ends = {line.label: last_of(line).y for line in panel.lines if line.kind is LineKind.RULE}
    if panel.better is Better.NEITHER or len(ends) < 2:
        return set()
    best = (max if panel.better is Better.HIGHER else min)(ends.values())
    return {label for label, end in ends.items() if number(float(end)) == number(float(best))}


def seen(panel: Panel) -> str:
    """Return a description of a panel, for screen readers."""
    xs = [value for line in panel.lines for value in line.x]
    axes = f"Line chart of {one_line(panel.ylabel)} against {one_line(panel.xlabel)}"
    axes += f" from {position(min(xs))} to {position(max(xs))}."
    ends = [(line, last_of(line)) for line in panel.lines]
    if panel.better is not Better.NEITHER:
        ends.sort(key=lambda end: end[1].y, reverse=panel.better is Better.HIGHER)
    at = {end.x for _, end in ends}
    where = f"At {position(at.pop())}" if len(at) == 1 else "At the end of each line"
    whose = {LineKind.AUTHOR: "the author's ", LineKind.REFERENCE: "reference ", LineKind.RULE: ""}
    said = [f"{whose[LineKind(line.kind)]}{one_line(line.label)} {end}" for line, end in ends]
    return f"{axes} {where}: {'; '.join(said)}."


def verdict(finding: Finding) -> tuple[str, str]:
    """Return a sign and words for the verdict on a claim."""
    if finding.held is None:
        return ("•", "observed") if finding.source is Source.OBSERVATION else ("?", "not measured")
    return ("✓", "held") if finding.held else ("✗", "not held")


def tally(findings: list[Finding]) -> str:
    """Return the number of claims that held, in words."""
    counts: dict[str, int] = {}
    for finding in findings:
        words = verdict(finding)[1]
        counts[words] = counts.get(words, 0) + 1
    order = ("held", "not held", "not measured", "observed")
    return ", ".join(f"{counts[words]} {words}" for words in order if words in counts)
