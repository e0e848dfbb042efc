"""The tables of a page. Each has a caption and headers that say what they head, and scrolls on its own when narrow."""

from __future__ import annotations

from html import escape

from bristle.report.content import Finding, Kind, Line, Panel, Table
from bristle.report.style import Styles, rule_of
from bristle.report.words import best_of, last_of, number, one_line, plain, verdict


def claims_table(rows: list[tuple[Finding, str, str]]) -> str:
    """Return all findings, each with the title and the anchor of its section."""
    body = []
    for finding, title, anchor in rows:
        body.append(
            f'<tr><th scope="row">{_text(finding.claim)}</th><td>{verdict_span(finding)}</td>'
            f"<td>{_text(finding.measured)}</td><td>{_text(finding.source)}</td>"
            f'<td><a href="#{anchor}">{_text(title)}</a></td></tr>'
        )
    caption = "What was claimed, and what was measured"
    heads = ["Claim", "Verdict", "Measured", "From", "Where"]
    return _table(caption, "", _heads(heads), body, name="claims-table", kind="claims")


def verdict_span(finding: Finding) -> str:
    """Return how a claim came out, as a sign and in words."""
    sign, words = verdict(finding)
    return f'<span class="verdict {verdict_class(finding)}"><span aria-hidden="true">{sign}</span> {words}</span>'


def verdict_class(finding: Finding) -> str:
    """Return the CSS class of a verdict."""
    return verdict(finding)[1].replace(" ", "-")


def final_values(panels: tuple[Panel, ...], styles: Styles, *, name: str) -> str:
    """Return where every line ends: a row for every rule, a column for every panel, the best said in words."""
    rows: dict[tuple[bool, str], dict[Kind, dict[int, Line]]] = {}
    placed = [(place, line) for place, panel in enumerate(panels) for line in panel.lines]
    placed.sort(key=lambda each: styles[each[1]].rank)  # in the order of the legend
    for place, line in placed:
        key = (line.kind is Kind.REFERENCE, rule_of(line))
        rows.setdefault(key, {}).setdefault(Kind(line.kind), {})[place] = line
    best = [best_of(panel) for panel in panels]
    body = []
    for (reference, rule), kinds in rows.items():
        ours = kinds.get(Kind.REFERENCE if reference else Kind.RULE, {})
        author = kinds.get(Kind.AUTHOR, {})
        label = next(iter(ours.values())).label if ours else rule
        cells = [_value(ours.get(place), author.get(place), best[place]) for place in range(len(panels))]
        told = " <small>(reference)</small>" if reference else ""
        body.append(f'<tr><th scope="row">{_text(label)}{told}</th>{"".join(cells)}</tr>')
    heads = ["Rule", *(panel.title or panel.ylabel for panel in panels)]
    caption = f"Last values of {', '.join(dict.fromkeys(one_line(panel.ylabel) for panel in panels))}"
    notes = ["The range of the band stands below."] if any(line.low for panel in panels for line in panel.lines) else []
    notes += ["“Best” compares the rules, not the references."] if any(best) else []
    numeric = set(range(1, len(heads)))
    return _table(caption, " ".join(notes), _heads(heads, numeric), body, name=name)


def plain_table(table: Table, *, name: str) -> str:
    """Return a table as it was given; the first column heads the rows."""
    numeric = {
        place
        for place in range(len(table.columns))
        if table.rows and all(not isinstance(row[place], str) or row[place] in ("", "-") for row in table.rows)
    }
    body = []
    for row in table.rows:
        shown = [_text(cell) if isinstance(cell, str) else number(cell) for cell in row]
        cells = [f'<th scope="row">{shown[0]}</th>'] if shown else []
        cells += [f"<td{_numeric(place in numeric)}>{cell}</td>" for place, cell in enumerate(shown[1:], start=1)]
        body.append(f"<tr>{''.join(cells)}</tr>")
    return _table(table.title, table.caption, _heads(list(table.columns), numeric - {0}), body, name=name)


def _value(ours: Line | None, author: Line | None, best: set[str]) -> str:
    parts, winner = [], ours is not None and ours.label in best
    if ours is not None:
        last = last_of(ours)
        parts.append(f"<b>{number(float(last.y))} best</b>" if winner else number(float(last.y)))
        parts += [f"<small>{last.band}</small>"] if last.band else []
    if author is not None:
        parts.append(f"<small>author {number(float(last_of(author).y))}</small>")
    return f'<td class="number{" best" if winner else ""}">{"".join(parts) or "-"}</td>'


def _text(value: str) -> str:
    return escape(plain(value))


def _numeric(yes: bool) -> str:
    return ' class="number"' if yes else ""


def _heads(names: list[str], numeric: set[int] | None = None) -> str:
    return "".join(
        f'<th scope="col"{_numeric(place in (numeric or ()))}>{_text(name)}</th>' for place, name in enumerate(names)
    )


def _table(title: str, caption: str, heads: str, body: list[str], *, name: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    told = f" {_text(caption)}" if caption else ""
    return "\n".join(
        [
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}">',
            f'<table{named}><caption><span id="{name}"><strong>{_text(title)}.</strong>{told}</span></caption>',
            f"<thead><tr>{heads}</tr></thead>",
            "<tbody>",
            *body,
            "</tbody></table>",
            "</div>",
        ]
    )
