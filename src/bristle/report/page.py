"""A report as one self-contained HTML file: no script, no outside request, light and dark."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from html import escape
from importlib.resources import files

from bristle.report.content import Finding, Line, LineKind, Panel, Report, Section, Source, Table
from bristle.report.figure import inline, legend_entries, panel_svg, sample_svg, section_files, variable
from bristle.report.style import GRID, INK, MUTED, PAPER, Style, Styles, rule_of
from bristle.report.words import best_of, last_of, number, one_line, plain, seen, tally, verdict


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
    """Return the verdict on a claim, as a sign and in words."""
    sign, words = verdict(finding)
    return f'<span class="verdict {verdict_class(finding)}"><span aria-hidden="true">{sign}</span> {words}</span>'


def verdict_class(finding: Finding) -> str:
    """Return the CSS class of a verdict."""
    return verdict(finding)[1].replace(" ", "-")


def final_values(panels: tuple[Panel, ...], styles: Styles, *, name: str) -> str:
    """Return a table of final values: a row per rule, a column per panel, the best marked in words."""
    rows: dict[tuple[bool, str], dict[LineKind, dict[int, Line]]] = {}
    placed = [(place, line) for place, panel in enumerate(panels) for line in panel.lines]
    placed.sort(key=lambda each: styles[each[1]].rank)  # in the order of the legend
    for place, line in placed:
        key = (line.kind is LineKind.REFERENCE, rule_of(line))
        rows.setdefault(key, {}).setdefault(LineKind(line.kind), {})[place] = line
    best = [best_of(panel) for panel in panels]
    body = []
    for (reference, rule), kinds in rows.items():
        ours = kinds.get(LineKind.REFERENCE if reference else LineKind.RULE, {})
        author = kinds.get(LineKind.AUTHOR, {})
        label = next(iter(ours.values())).label if ours else rule
        cells = [_value(ours.get(place), author.get(place), best[place]) for place in range(len(panels))]
        words = " <small>(reference)</small>" if reference else ""
        body.append(f'<tr><th scope="row">{_text(label)}{words}</th>{"".join(cells)}</tr>')
    heads = ["Rule", *(panel.title or panel.ylabel for panel in panels)]
    caption = f"Last values of {', '.join(dict.fromkeys(one_line(panel.ylabel) for panel in panels))}"
    notes = ["The range of the band stands below."] if any(line.low for panel in panels for line in panel.lines) else []
    notes += ["“Best” compares the rules, not the references."] if any(best) else []
    numeric = set(range(1, len(heads)))
    return _table(caption, " ".join(notes), _heads(heads, numeric), body, name=name)


def plain_table(table: Table, *, name: str) -> str:
    """Return a table; its first column heads the rows."""
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
    words = f" {_text(caption)}" if caption else ""
    return "\n".join(
        [
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}">',
            f'<table{named}><caption><span id="{name}"><strong>{_text(title)}.</strong>{words}</span></caption>',
            f"<thead><tr>{heads}</tr></thead>",
            "<tbody>",
            *body,
            "</tbody></table>",
            "</div>",
        ]
    )


# What the page may load: nothing. Browsers hold it to that, whatever a label may contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
DARK_PAGE = {"--soft": "#1f252c", "--held": "#5fd6a0", "--not-held": "#ff9c85", "--link": "#5cadff"}


def page(report: Report, parts: Sequence[str], styles: Styles) -> str:
    """Return the whole page; `parts` are the results of `section_part` for the report's sections."""
    sheet = files("bristle.report").joinpath("page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(report.title)}</title>",
            f"<style>\n{sheet}{_colours(styles)}\n</style>",
            "</head>",
            '<body id="top">',
            '<a class="skip" href="#main">Skip to the content</a>',
            f"<header>\n<h1>{_text(report.title)}</h1>\n{_paragraphs(report.summary)}\n</header>",
            _contents(report),
            '<main id="main">',
            _claims(report),
            *parts,
            _facts(report),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _paragraphs(text: str) -> str:
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n".join(f"<p>{_text(part)}</p>" for part in parts if part)


def _colours(styles: Styles) -> str:
    """Return the colours of figures and page as variables, for both schemes; print is light."""
    named = {"--paper": PAPER, "--ink": INK, "--muted": MUTED, "--grid": GRID}
    dark_of = styles.dark_of()
    light = named | {variable(colour): colour for colour in dark_of}
    dark = {name: dark_of[colour] for name, colour in named.items()} | DARK_PAGE
    dark |= {variable(colour): instead for colour, instead in dark_of.items()}

    def rule(variables: Mapping[str, str]) -> str:
        return ":root { " + " ".join(f"{name}: {colour};" for name, colour in variables.items()) + " }"

    return f"{rule(light)}\n@media screen and (prefers-color-scheme: dark) {{ {rule(dark)} }}"


def _contents(report: Report) -> str:
    items = ['<li><a href="#claims">Claims and findings</a></li>'] if _findings_of(report) else []
    for section in report.sections:
        count = tally([finding for finding in section.findings if finding.source is not Source.OBSERVATION])
        words = f" <span>({count})</span>" if count else ""
        items.append(f'<li><a href="#{_anchor(section)}">{_text(section.title)}</a>{words}</li>')
    items.append('<li><a href="#facts">How this was made</a></li>')
    listed = "\n".join(items)
    return f'<nav aria-labelledby="contents">\n<h2 id="contents">Contents</h2>\n<ol>\n{listed}\n</ol>\n</nav>'


def _anchor(section: Section) -> str:
    return f"section-{section.name}"


def _findings_of(report: Report) -> list[Finding]:
    return [finding for section in report.sections for finding in section.findings]


def _claims(report: Report) -> str:
    if not (findings := _findings_of(report)):
        return ""
    rows = [(finding, section.title, _anchor(section)) for section in report.sections for finding in section.findings]
    rows.sort(key=lambda row: list(Source).index(Source(row[0].source)))  # the paper's claims first
    return "\n".join(
        [
            '<section id="claims" aria-labelledby="claims-title">',
            '<h2 id="claims-title">Claims and findings</h2>',
            f"<p>{tally(findings)}.</p>",
            claims_table(rows),
            "</section>",
        ]
    )


def section_part(section: Section, styles: Styles) -> str:
    """Return a section of the page, with each panel as a picture of its own, so that they wrap on a small screen."""
    name = _anchor(section)
    parts = [
        f'<section id="{name}" aria-labelledby="{name}:title">',
        f'<h2 id="{name}:title">{_text(section.title)}</h2>',
        f'<div class="text">\n{_paragraphs(section.text)}\n</div>',
    ]
    if section.panels:
        parts += [_figure(section, styles), final_values(section.panels, styles, name=f"{name}:last")]
    parts += [plain_table(table, name=f"{name}:table-{place}") for place, table in enumerate(section.tables)]
    if section.findings:
        parts += ["<h3>Findings</h3>", '<ul class="findings">', *map(_finding, section.findings), "</ul>"]
    parts += ['<p class="up"><a href="#top">Back to the top</a></p>', "</section>"]
    return "\n".join(parts)


def _finding(finding: Finding) -> str:
    source = "" if finding.source is Source.OBSERVATION else f" ({_text(finding.source)})"
    words = f"{_text(finding.claim)}<br>Measured: <strong>{_text(finding.measured)}</strong>"
    return f'<li class="{verdict_class(finding)}">{verdict_span(finding)}{source}: {words}</li>'


def _figure(section: Section, styles: Styles) -> str:
    colours = styles.dark_of()
    entries = legend_entries(section.panels, styles)
    keys = [_key(label, style, colours, f"key-{section.name}-{place}") for place, (label, style) in enumerate(entries)]
    few = len(section.panels) in (1, 2, 4)  # two columns instead of three
    panels = [
        _panel(panel, styles, f"panel-{section.name}-{place}", width=4.0 if few else 3.0)
        for place, panel in enumerate(section.panels)
    ]
    return "\n".join(
        [
            f'<figure role="group" aria-label="{_text(section.title)}: {len(panels)} '
            f'{"panel" if len(panels) == 1 else "panels"}">',
            '<ul class="legend" aria-label="Legend">',
            *keys,
            "</ul>",
            f'<div class="panels{" few" if few else ""}">',
            *panels,
            "</div>",
            "</figure>",
        ]
    )


def _key(label: str, style: Style, colours: Mapping[str, str], prefix: str) -> str:
    hidden = {"aria-hidden": "true", "focusable": "false"}
    sample = inline(sample_svg(style), prefix=prefix, colours=colours, attributes=hidden)
    return f"<li>{sample}<span>{_text(label)}</span></li>"


def _panel(panel: Panel, styles: Styles, name: str, *, width: float) -> str:
    words = {"role": "img", "aria-label": seen(panel)}
    drawn = inline(
        panel_svg(panel, styles, salt=name, width=width), prefix=name, colours=styles.dark_of(), attributes=words
    )
    return f"<figure><figcaption>{_text(panel.title)}</figcaption>{drawn}</figure>"


def _facts(report: Report) -> str:
    facts = "\n".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in report.facts)
    return (
        '<section id="facts" aria-labelledby="facts-title">\n<h2 id="facts-title">How this was made</h2>\n'
        f'<dl class="facts">\n{facts}\n</dl>\n</section>'
    )


Drawn = tuple[str, dict[str, bytes]]
"""A section of the page, and its figures by the names of their files."""


def draw(sections: Sequence[Section], styles: Styles, *, processes: int) -> Iterator[Drawn]:
    """Yield the sections drawn, in order."""
    work, processes = partial(_draw_section, styles), min(processes, len(sections))
    if processes <= 1:
        yield from map(work, sections)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as others:
        yield from others.map(work, sections)


def _draw_section(styles: Styles, section: Section) -> Drawn:
    part, files = section_part(section, styles), {}
    if section.panels:
        files[f"{section.name}.png"], files[f"{section.name}.svg"] = section_files(section, styles)
    return part, files
